"""Says what is being done, how far it is and how long it took.

On a terminal the steps under way are lines with a bar and a clock; elsewhere a line when a step ends, and one every ten
seconds meanwhile. Steps may run at the same time in several threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

SIGN_OF_LIFE_SECONDS = 10.0
"""In a log each sign of life is a line, so there are few."""


class Step:
    """One step under way."""

    def __init__(self, title: str, bars: Bars | None) -> None:
        self.title = title
        self.began = time.monotonic()
        self.told = ""
        self._bars = bars
        self._task: TaskID | None = bars.add_task(title, total=None) if bars else None

    def update(self, done: int, total: int) -> None:
        """Says that `done` of `total` parts are done."""
        self.told = f"{done} of {total}, "
        if self._bars and self._task is not None:
            self._bars.update(self._task, completed=done, total=total)

    def end(self) -> float:
        """The seconds it took."""
        if self._bars and self._task is not None:
            self._bars.remove_task(self._task)
        return time.monotonic() - self.began


class Progress:
    """Prints to `stream` (standard error by default) from any thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream, stderr=stream is None, soft_wrap=True, highlight=False)
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._running: list[Step] = []
        self._bars: Bars | None = None
        self._quiet = threading.Event()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """One step; its end, or its failure, is printed with the time it took."""
        step = self._begin(title)
        outcome = "failed after"
        try:
            yield step
            outcome = "done in"
        finally:
            self._end(step, outcome)

    def say(self, message: str) -> None:
        """Print one line, after the seconds since the first."""
        elapsed = f"[{time.monotonic() - self._started:6.1f} s]"
        self._console.print(f"{elapsed} {message}", markup=False)

    def _begin(self, title: str) -> Step:
        with self._lock:
            if not self._running:
                self._show()
            step = Step(title, self._bars)
            self._running.append(step)
            return step

    def _end(self, step: Step, outcome: str) -> None:
        with self._lock:
            self._running.remove(step)
            seconds = step.end()
            self.say(f"{step.title}: {outcome} {seconds:.1f} s")
            if not self._running:
                self._hide()

    def _show(self) -> None:
        if self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._bars.start()
        else:
            self._quiet = threading.Event()
            threading.Thread(target=self._tick, args=(self._quiet,), daemon=True).start()

    def _hide(self) -> None:
        if self._bars:
            self._bars.stop()
            self._bars = None
        self._quiet.set()

    def _tick(self, quiet: threading.Event) -> None:
        while not quiet.wait(SIGN_OF_LIFE_SECONDS):
            with self._lock:
                running = [f"{s.title} ({s.told}{time.monotonic() - s.began:.0f} s)" for s in self._running]
            if running:
                self.say(f"... {', '.join(running)}")


PROGRESS = Progress()
"""Of this process: one display, whoever has something to say."""
