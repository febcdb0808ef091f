"""Says which rank is being made, by the files that are there already."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from .report import progress

_POLL_SECONDS = 1.0
_REPEAT_SECONDS = 15.0
"""How often the same is said again, so that it stands near the end of a log that the tool fills."""


class RankWatch:
    """While it is entered, one line of progress for each new rank, and one every 15 s."""

    def __init__(self, directory: Path, suffix: str, ranks: int, first: str | None = None) -> None:
        """`first` is what is done before the first rank file can appear, where that takes long."""
        self._directory, self._suffix, self._ranks, self._first = directory, suffix, ranks, first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        said, since = -1, 0.0
        while not self._stop.is_set():
            done = sum(1 for rank in range(self._ranks) if (self._directory / f"rank{rank}{self._suffix}").exists())
            since += _POLL_SECONDS
            if done != said or since >= _REPEAT_SECONDS:
                said, since = done, 0.0
                self._say(done)
            self._stop.wait(_POLL_SECONDS)

    def _say(self, done: int) -> None:
        if done == 0 and self._first:
            progress("working", what=self._first)
        else:
            progress("rank", rank=min(done + 1, self._ranks), ranks=self._ranks)
