"""Commands that end and daemons that stay."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.cluster.cgroups import Group
from testbed.cluster.errors import ClusterError

Argument = str | Path
COMMAND_SECONDS = 120
LOG_TAIL_BYTES = 2000
# Kept so that the interpreter reaps those that end before it does.
_daemons: list[subprocess.Popen[bytes]] = []


def run(*command: Argument, given: str | None = None, timeout_seconds: float = COMMAND_SECONDS) -> str:
    """The standard output of a command that must succeed; ClusterError quotes what it said otherwise."""
    shown = " ".join(str(part) for part in command)
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{shown}` did not end within {timeout_seconds:g} s") from error
    if done.returncode != 0:
        raise ClusterError(f"`{shown}` failed with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def start(command: Sequence[Argument], group: Group, log: Path, environment: dict[str, str] | None = None) -> None:
    """Starts a daemon in `group`, in a session of its own and with nothing of the caller's but its environment."""
    group.create()
    with log.open("ab") as output:
        _daemons.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=os.environ | (environment or {}),
                start_new_session=True,
                preexec_fn=group.join,
            )
        )


def tail(log: Path) -> str:
    """The end of a log, for a message."""
    try:
        return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return "(no log)"
