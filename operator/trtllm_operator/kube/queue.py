"""Keys to look at: each waits once, is worked on once at a time, in the order in which they came."""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 30.0


class KeyQueue(Generic[K]):
    """A work queue of keys.

    A key added while it waits is not added again; one added while it is worked on runs once more afterwards,
    behind those that wait. A key has one timer: the earliest of those set since it was last taken.
    `take` and `done` are plain functions of the clock; `get` waits for `take`.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._ready: dict[K, float] = {}
        self._active: dict[K, float] = {}
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._failures: dict[K, int] = {}
        self._pushed = 0
        self._wake = asyncio.Event()
        #: Keys that were made ready since the start.
        self.added = 0
        #: Passes that failed since the start.
        self.retried = 0

    def add(self, key: K) -> None:
        """Look at `key` as soon as its turn comes."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = self._clock()
            self.added += 1
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Look at `key` in `seconds`, unless an earlier time is set already."""
        due = self._clock() + seconds
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._pushed += 1
            heapq.heappush(self._heap, (due, self._pushed, key))
            self._wake.set()

    def take(self) -> K | None:
        """The next key to work on, if one is due; it must be given to `done` or `failed`."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        if not self._ready:
            return None
        key = next(iter(self._ready))
        del self._ready[key]
        # This pass decides anew when to look again.
        self._due.pop(key, None)
        self._active[key] = now
        return key

    async def get(self) -> K:
        """Wait for `take`. Each waiter that gets a key wakes the next."""
        while True:
            if (key := self.take()) is not None:
                if self._ready or self._heap:
                    self._wake.set()
                return key
            self._wake.clear()
            try:
                async with asyncio.timeout(max(0.0, self._heap[0][0] - self._clock()) if self._heap else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def done(self, key: K, again_after: float | None = None) -> None:
        """The pass over `key` succeeded; look again in so many seconds, if at all before something changes."""
        self._failures.pop(key, None)
        self._release(key, again_after)

    def failed(self, key: K) -> float:
        """The pass over `key` failed; look again after a delay that doubles each time, up to 30 s. The delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.retried += 1
        delay = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10))
        delay *= 1 - 0.5 * self._jitter()
        self._release(key, delay)
        return delay

    def postponed(self, key: K) -> None:
        """The pass over `key` came to nothing and not by its fault: it goes to the end of the line."""
        self._again.add(key)
        self._release(key, None)

    def _release(self, key: K, again_after: float | None) -> None:
        del self._active[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)
        if again_after is not None:
            self.add_after(key, again_after)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._ready)

    @property
    def scheduled(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    def oldest_wait_seconds(self) -> float:
        """For how long the key at the head of the line has waited."""
        return self._clock() - next(iter(self._ready.values())) if self._ready else 0.0

    def running_seconds(self) -> list[float]:
        """For how long each key that is worked on now has been."""
        now = self._clock()
        return [now - since for since in self._active.values()]
