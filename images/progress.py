"""Says what a build is doing, step by step, with elapsed times."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_QUIET_SECONDS = 2.0
"""A step that ends sooner needs no sign of life."""
_REFRESH_SECONDS_TERMINAL = 0.5
_REFRESH_SECONDS_LOG = 10.0
"""In a log each sign of life is a line, so there are fewer."""


class Progress:
    """Prints a line as each step ends, and while steps run says which ones and for how long.

    Steps may run at the same time in several threads. On a terminal the running steps are one line that is
    overwritten; elsewhere they are a line every ten seconds.
    """

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._started = time.monotonic()
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._ticker.join()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step; its end, or its failure, is printed with the time it took."""
        began = time.monotonic()
        with self._lock:
            self._running[title] = began
        outcome = "failed"
        try:
            yield
            outcome = "done"
        finally:
            with self._lock:
                del self._running[title]
            self.say(f"{title}: {outcome} in {time.monotonic() - began:.1f} s")

    def say(self, message: str) -> None:
        """Print one line, after the seconds since the build began."""
        with self._lock:
            clear = "\r\x1b[K" if self._terminal else ""
            print(f"{clear}[{time.monotonic() - self._started:6.1f} s] {message}", file=self._stream, flush=True)

    def _tick(self) -> None:
        while not self._done.wait(_REFRESH_SECONDS_TERMINAL if self._terminal else _REFRESH_SECONDS_LOG):
            now = time.monotonic()
            with self._lock:
                slow = {title: now - began for title, began in self._running.items() if now - began > _QUIET_SECONDS}
                if not slow:
                    continue
                line = ", ".join(f"{title} ({seconds:.0f} s)" for title, seconds in slow.items())
                clock = f"[{now - self._started:6.1f} s]"
                if self._terminal:
                    print(f"\r\x1b[K{clock} {line}"[:160], end="", file=self._stream, flush=True)
                else:
                    print(f"{clock} running: {line}", file=self._stream, flush=True)
