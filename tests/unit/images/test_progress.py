"""What a person reads while images are built."""

from __future__ import annotations

import io
import re

import pytest

from images import progress as progress_module
from images.progress import Progress


def test_a_step_says_how_long_it_took_and_whether_it_failed() -> None:
    output = io.StringIO()
    with Progress(output) as progress:
        with progress.step("hub: build"):
            pass
        with pytest.raises(ValueError, match="broken"), progress.step("operator: build"):
            raise ValueError("broken")
    first, second = output.getvalue().splitlines()
    assert re.fullmatch(r"\[ +\d+\.\d s\] hub: build: done in 0\.0 s", first)
    assert second.endswith("operator: build: failed in 0.0 s")


def test_a_long_step_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress_module, "_REFRESH_SECONDS_LOG", 0.01)
    output = io.StringIO()
    with Progress(output) as progress, progress.step("base: bootstrap"):
        while "running: base: bootstrap" not in output.getvalue():
            progress_module.time.sleep(0.005)
    assert "running: base: bootstrap" in output.getvalue()
