"""Takes keys from the queue and has them reconciled; decides what becomes of a key whose pass failed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.metrics import PassMetrics
from trtllm_operator.kube.pause import Pause
from trtllm_operator.kube.queue import KeyQueue

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)


class Worker(Generic[K]):
    """One of several that share a queue; starts when the cache is filled."""

    def __init__(
        self,
        queue: KeyQueue[K],
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        pause: Pause,
        synced: asyncio.Event,
        metrics: PassMetrics,
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._pause = pause
        self._synced = synced
        self._metrics = metrics

    async def run(self) -> None:
        """Work until cancelled."""
        await self._synced.wait()
        while True:
            await self.work(await self._queue.get())

    async def work(self, key: K) -> None:
        """One pass over `key`."""
        begun = time.monotonic()
        try:
            again_after = await self._reconcile(key)
        except ApiError as error:
            result = self._refused(key, error)
        except Exception:
            log.exception("pass over %s failed, next try in %.1f s", key, self._queue.failed(key))
            result = "error"
        else:
            self._queue.done(key, again_after)
            result = "success" if again_after is None else "requeue_after"
        self._metrics.passed(result, time.monotonic() - begun)

    def _refused(self, key: K, error: ApiError) -> str:
        if error.is_namespace_terminating:
            self._queue.done(key)
            return "success"
        if (error.is_overload or error.is_internal) and not self._pause.is_open:
            # Said once, by the pause, for everyone.
            self._queue.postponed(key)
            return "requeue"
        delay = self._queue.failed(key)
        level = logging.INFO if error.is_conflict or error.is_not_found else logging.WARNING
        log.log(level, "pass over %s failed, next try in %.1f s: %s", key, delay, error)
        return "error"
