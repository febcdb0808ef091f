"""Says what is being done, how far it is and how long it took.

On a terminal a step is a line with a bar; elsewhere there is a line when a step ends, and one every 20 s meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_INTERVAL_SECONDS = 20


class Step:
    """One step under way."""

    def __init__(self, title: str, output: TextIO) -> None:
        self.title = title
        self._output = output
        self._started = self._spoken = time.monotonic()

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started

    def update(self, done: int, total: int) -> None:
        """Says that `done` of `total` parts are done."""
        if time.monotonic() - self._spoken > PLAIN_INTERVAL_SECONDS:
            self._spoken = time.monotonic()
            self._say(f"{self.title}: {done} of {total}, {self.elapsed_seconds:.0f} s")

    def finish(self, outcome: str) -> None:
        self._say(f"{self.title}{outcome}: {self.elapsed_seconds:.1f} s")

    def _say(self, text: str) -> None:
        print(text, file=self._output, flush=True)


class TerminalStep(Step):
    """A step with a bar that moves."""

    def __init__(self, title: str, output: TextIO) -> None:
        super().__init__(title, output)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(file=output), transient=True)
        self._task = self._bar.add_task(title, total=None)
        self._bar.start()

    def update(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def finish(self, outcome: str) -> None:
        self._bar.stop()
        super().finish(outcome)


@contextmanager
def step(title: str, output: TextIO | None = None) -> Iterator[Step]:
    """Shows a step for as long as the block runs: `with step("Build") as progress: ... progress.update(3, 10)`."""
    stream = output or sys.stdout
    running = (TerminalStep if stream.isatty() else Step)(title, stream)
    try:
        yield running
    except BaseException:
        running.finish(" failed")
        raise
    running.finish("")
