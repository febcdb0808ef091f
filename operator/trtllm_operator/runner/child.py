"""One child process: its output passed on as it comes, signals forwarded, its end measured."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

TAIL_LINES = 200
KEPT_LINES = 60
_MAX_LINE_BYTES = 4096
_DRAIN_SECONDS = 5.0
"""How long after the child's end a grandchild that holds its output may keep us."""
_LINE_END = re.compile(rb"[\r\n]+")


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    status: int
    """Exit status; negative is the signal that killed it."""
    tail: tuple[str, ...]
    """Last lines of its output, both streams in the order they came."""
    kept: tuple[str, ...]
    """Lines that the caller asked to keep wherever they stood, the first KEPT_LINES of them."""
    duration_seconds: float
    peak_process_bytes: int
    """Resident memory of the largest process the child or its descendants were."""
    signalled: int | None
    """Signal this process was sent and passed on, if any."""


class _Output:
    def __init__(self, keep: Callable[[str], bool]) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.kept: list[str] = []
        self._keep = keep

    def pump(self, stream: IO[bytes]) -> None:
        """Copy to our standard output as it comes, progress bars too, and remember lines."""
        rest = b""
        while chunk := os.read(stream.fileno(), 65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            *lines, rest = _LINE_END.split(rest + chunk)
            for line in lines:
                self._line(line)
            if len(rest) > _MAX_LINE_BYTES:
                self._line(rest)
                rest = b""
        self._line(rest)

    def _line(self, raw: bytes) -> None:
        line = raw[:_MAX_LINE_BYTES].decode(errors="replace").rstrip()
        if not line:
            return
        self.tail.append(line)
        if len(self.kept) < KEPT_LINES and self._keep(line):
            self.kept.append(line)


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    forward: Callable[[int, int], None] = os.killpg,
    keep: Callable[[str], bool] = lambda _line: False,
) -> Outcome:
    """Run a command to its end. SIGTERM and SIGINT are passed on by `forward`, which gets the child's process id (its
    group's too) and the signal; by default they go to the whole group.

    Raises FileNotFoundError or PermissionError when it cannot be started. Call from the main thread.
    """
    output = _Output(keep)
    child: subprocess.Popen[bytes] | None = None
    signalled: int | None = None

    def pass_on(number: int) -> None:
        if child is None or child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            forward(child.pid, number)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        signalled = number
        pass_on(number)

    started = time.monotonic()
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        if signalled is not None:
            pass_on(signalled)
        assert child.stdout is not None
        reader = threading.Thread(target=output.pump, args=(child.stdout,), daemon=True)
        reader.start()
        status = child.wait()
        duration = time.monotonic() - started
        reader.join(_DRAIN_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Outcome(
        status=status,
        tail=tuple(output.tail),
        kept=tuple(output.kept),
        duration_seconds=round(duration, 3),
        peak_process_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        signalled=signalled,
    )
