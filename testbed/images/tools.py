"""The programs a build calls: finds them, installs them where it may, runs them with their output in a log."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.images.errors import BuildError
from testbed.progress import Progress

DEBIAN_PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "unshare": "util-linux"}
"""Program -> the Debian package that has it."""

_LOG_LINES_SHOWN = 15
_INSTALL_SECONDS = 300


def ensure(programs: Sequence[str], progress: Progress) -> None:
    """Make sure that `programs` are there: as root on Debian by installing them.

    Raises:
        BuildError: this user may not build, or a program is missing and cannot be installed.
    """
    if os.geteuid() != 0:
        raise BuildError("building images needs root (mounts and chroot): run it as root")
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    packages = sorted(DEBIAN_PACKAGES[program] for program in missing)
    command = f"apt-get install --yes --no-install-recommends {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise BuildError(f"missing: {', '.join(missing)}; on Debian: {command}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"install {', '.join(packages)}"):
        for line in ("apt-get update", command):
            done = subprocess.run(
                line.split(), env=environment, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
            if done.returncode != 0:
                raise BuildError(f"`{line}` failed: {_last_lines(done.stderr)}")


def run(
    command: Sequence[str | Path], *, log: Path, timeout_seconds: float, environment: Mapping[str, str] | None = None
) -> None:
    """Run `command` with both outputs in `log`.

    Raises:
        BuildError: it failed or took longer than `timeout_seconds`; with the log's last lines.
    """
    arguments = [str(argument) for argument in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        try:
            done = subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BuildError(
                f"{arguments[0]} did not end within {timeout_seconds:.0f} s; log: {log}\n{_last_lines(log.read_text())}"
            ) from None
    if done.returncode != 0:
        raise BuildError(f"{arguments[0]} exited {done.returncode}; log: {log}\n{_last_lines(log.read_text())}")


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LOG_LINES_SHOWN:])
