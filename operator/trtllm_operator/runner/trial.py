"""The trial of a finished engine: load it on the GPU it was built on and have it generate a token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import child, classify, memory
from .report import StepError, progress

_GENERATED = "Output [Text 0 Beam 0]"
"""How examples/run.py begins the line with what was generated."""


def generate_one_token(command: Sequence[str], scratch: Path) -> None:
    """Run the release's own examples/run.py. Raises StepError EngineBroken, or HostMemoryExhausted or Terminated when
    that is how it ended."""
    progress("working", what="loading the engine and generating a token")
    before = memory.read()
    try:
        outcome = child.run(command, cwd=scratch, keep=lambda line: line.startswith(_GENERATED))
    except OSError as error:
        raise StepError("ToolMissing", f"this image has no {command[0]} that can be run ({error.strerror})") from None
    if outcome.status == 0 and outcome.signalled is None and outcome.kept:
        return
    failure = classify.tool_failure("the trial of the engine", outcome, before, memory.read())
    if failure.reason in ("HostMemoryExhausted", "Terminated"):
        raise failure
    why = failure.message if outcome.status else f"it generated nothing: {classify.last_words(outcome.tail)}"
    raise StepError(
        "EngineBroken",
        f"The engine was built and does not work on the GPU it was built on; it is not published. {why}",
        log=failure.log,
    )
