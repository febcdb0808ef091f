"""Steps say what they were and how long they took, also where nobody watches a terminal."""

from __future__ import annotations

import io
import re

import pytest

from tests.cluster.progress import step


def test_a_step_ends_with_its_time() -> None:
    output = io.StringIO()
    with step("Boil water", output):
        pass
    assert re.fullmatch(r"Boil water: \d+\.\d s\n", output.getvalue())


def failing_step(output: io.StringIO) -> None:
    with step("Boil water", output):
        raise ValueError("no water")


def test_a_failed_step_says_so() -> None:
    output = io.StringIO()
    with pytest.raises(ValueError, match="no water"):
        failing_step(output)
    assert output.getvalue().startswith("Boil water failed: ")
