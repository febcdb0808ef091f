"""`python3 -m trtllm_operator.steps inspect|digest|fetch|stage|provide|publish|check|collect --spec JSON`."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from ..runner.report import StepError, run_step, stop_on_sigterm
from .credentials import redact, redacted

_STEPS = {
    **dict.fromkeys(("inspect", "fetch"), "model"),
    "digest": "calibration_texts",
    **dict.fromkeys(("stage", "provide", "publish", "check", "collect"), "publish"),
}
"""The module of each step, imported when it runs: every build and every server waits for one that needs little."""
_TERMINATION_LOG = Path("/dev/termination-log")


def main(arguments: list[str] | None = None) -> int:
    """Run one step and return its exit status: 0, 64 (permanent) or 75 (may pass)."""
    parser = argparse.ArgumentParser(prog="trtllm_operator.steps", description=__doc__)
    parser.add_argument("step", choices=tuple(_STEPS))
    parser.add_argument("--spec", required=True, help="the step's arguments as a JSON object")
    parser.add_argument("--termination-log", type=Path, default=_TERMINATION_LOG, help="where the report goes")
    options = parser.parse_args(arguments)
    stop_on_sigterm(options.termination_log)

    def step() -> dict[str, Any]:
        try:
            spec = json.loads(options.spec)
        except ValueError as error:
            raise StepError("SpecInvalid", f"--spec is not JSON: {error}") from None
        module = import_module(f".{_STEPS[options.step]}", __package__)
        try:
            result: dict[str, Any] = getattr(module, options.step)(spec)
        except StepError as error:
            raise redacted(error) from None
        except OSError:
            raise  # told by its number and file alone
        except Exception as error:
            # A library's words may hold what it was given, also in the errors that led to this one.
            said = redact(f"{type(error).__name__}: {error}")
            raise StepError("Internal", f"the step failed with an internal error: {said}") from None
        return result

    return run_step(step, options.termination_log)


if __name__ == "__main__":
    sys.exit(main())
