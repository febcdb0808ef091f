"""`python3 runner.pyz convert|build|serve --spec JSON`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from . import produce, serve
from .report import StepError, run_step, stop_on_sigterm

_TERMINATION_LOG = Path("/dev/termination-log")


def main(arguments: list[str] | None = None) -> int:
    """Run one step and return its exit status: 0, 64 (permanent), 75 (may pass), or tritonserver's own for `serve`."""
    parser = argparse.ArgumentParser(prog="runner.pyz", description=__doc__)
    parser.add_argument("step", choices=("convert", "build", "serve"))
    parser.add_argument("--spec", required=True, help="the step's arguments as a JSON object")
    parser.add_argument("--termination-log", type=Path, default=_TERMINATION_LOG, help="where the report goes")
    options = parser.parse_args(arguments)
    stop_on_sigterm(options.termination_log)
    server_status = 0

    def step() -> dict[str, Any]:
        nonlocal server_status
        try:
            spec = json.loads(options.spec)
        except ValueError as error:
            raise StepError("SpecInvalid", f"--spec is not JSON: {error}") from None
        if options.step == "serve":
            server_status = serve.serve(spec)
            return {}
        return produce.convert(spec) if options.step == "convert" else produce.build(spec)

    return run_step(step, options.termination_log) or server_status


if __name__ == "__main__":
    sys.exit(main())
