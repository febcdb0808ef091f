"""What a person reads while a tool of this repository works."""

from __future__ import annotations

import io
import re
import time

import pytest

from testbed import progress as progress_module
from testbed.progress import Progress


def test_a_step_says_how_long_it_took_and_whether_it_failed() -> None:
    output = io.StringIO()
    progress = Progress(output)
    with progress.step("hub: build"):
        pass
    with pytest.raises(ValueError, match="broken"), progress.step("operator: build"):
        raise ValueError("broken")
    first, second = output.getvalue().splitlines()
    assert re.fullmatch(r"\[ +\d+\.\d s\] hub: build: done in 0\.0 s", first)
    assert second.endswith("operator: build: failed after 0.0 s")


def test_a_long_step_gives_signs_of_life_and_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "SIGN_OF_LIFE_SECONDS", 0.01)
    output = io.StringIO()
    progress = Progress(output)
    with progress.step("modules") as step:
        step.update(3, 10)
        while "... modules (3 of 10, 0 s)" not in output.getvalue():
            time.sleep(0.005)


def test_steps_at_the_same_time_share_one_display_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    output = Terminal()
    progress = Progress(output)
    with progress.step("images"), progress.step("cluster") as cluster:
        cluster.update(1, 2)
        progress.say("said meanwhile")
    assert "said meanwhile" in output.getvalue()
    assert "images: done in" in output.getvalue()
