"""Lists of our own: the first fill of the cache, and the cure for deletions that no watch reported."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import Resource

log = logging.getLogger(__name__)

#: A watch that breaks often breaks for many kinds at once: wait for them to list together.
SETTLE_SECONDS = 1.0
_FIRST_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 8.0


@dataclass(frozen=True)
class Watch:
    """A resource to watch and, where not all its objects matter, the label selector of those that do."""

    resource: Resource
    label_selector: str = ""


class Resync:
    """Keeps the cache equal to what the API server lists.

    A list follows each list of the watcher's (`request`), because a watch that starts anew never says what was deleted
    in between; and every `period_seconds`, because a watch may also just go quiet. `on_full` is called after each
    complete round.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        watches: Sequence[Watch],
        *,
        namespaces: Sequence[str] = (),
        period_seconds: float = 300.0,
        on_full: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._watches = tuple(watches)
        self._namespaces = tuple(namespaces) or ("",)
        self._period_seconds = period_seconds
        self._on_full = on_full
        self._clock = clock
        self._requested: set[Watch] = set()
        self._wake = asyncio.Event()
        #: Set once every watched resource has been listed.
        self.synced = asyncio.Event()
        #: Complete rounds, and changes that a list brought after the first round, since the start.
        self.rounds = 0
        self.cured = 0
        #: On our clock: when a list was last begun, whatever became of it.
        self.last_attempt = clock()

    def request(self, watch: Watch) -> None:
        """List this resource again soon."""
        self._requested.add(watch)
        self._wake.set()

    async def run(self) -> None:
        """List all, then whatever is requested, and all again every period; never returns."""
        due = self._clock()
        failures = 0
        while True:
            full = self._clock() >= due
            watches = set(self._watches) if full else set(self._requested)
            self._requested -= watches
            self._wake.clear()
            failed = [watch for watch in self._watches if watch in watches and not await self._list(watch)]
            if full and not failed:
                due = self._clock() + self._period_seconds * random.uniform(0.9, 1.1)  # noqa: S311
                self.rounds += 1
                self.synced.set()
                self._on_full()
            if failed:
                self._requested.update(failed)
                failures += 1
                await asyncio.sleep(min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(failures, 10)))
                continue
            failures = 0
            try:
                async with asyncio.timeout(max(0.0, due - self._clock())):
                    await self._wake.wait()
                    await asyncio.sleep(SETTLE_SECONDS)
            except TimeoutError:
                continue

    async def _list(self, watch: Watch) -> bool:
        """Bring the cache to what is listed now; False, and said, where that could not be done."""
        self.last_attempt = self._clock()
        try:
            for namespace in self._namespaces if watch.resource.namespaced else ("",):
                await self._list_namespace(watch, namespace)
        except ApiError as error:
            if error.is_not_found:
                log.warning("%s is not served: is its CustomResourceDefinition installed?", watch.resource)
                self._cache.remove_unlisted(watch.resource, set(), self._cache.newest(watch.resource))
            elif not error.is_overload:
                log.warning("cannot list %s: %s", watch.resource, error)
            return False
        return True

    async def _list_namespace(self, watch: Watch, namespace: str) -> None:
        listed: set[str] = set()
        version = changes = 0
        async for page in self._client.pages(watch.resource, namespace=namespace, label_selector=watch.label_selector):
            version = page.resource_version
            listed.update(item["metadata"]["uid"] for item in page.items)
            changes += sum(self._cache.put(watch.resource, item) is not None for item in page.items)
        changes += len(self._cache.remove_unlisted(watch.resource, listed, version, namespace=namespace))
        if self.synced.is_set():
            self.cured += changes
