"""Runs an operator: kopf watches; our cache, queue and workers do the work; a Lease says who."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import kopf
from prometheus_client import CollectorRegistry, ProcessCollector

from trtllm_operator.kube.cache import Cache, Change
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.lease import Lease, LeaseSettings
from trtllm_operator.kube.metrics import PassMetrics, StateCollector
from trtllm_operator.kube.probes import Probes
from trtllm_operator.kube.queue import KeyQueue
from trtllm_operator.kube.resource import Obj, Resource
from trtllm_operator.kube.resync import Resync, Watch
from trtllm_operator.kube.served import Schema, outdated
from trtllm_operator.kube.watcher import Watcher
from trtllm_operator.kube.worker import Worker

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)

#: A pass that takes longer hangs: nothing in it may wait for anything but an API call.
_STUCK_PASS_SECONDS = 600.0

#: A definition that has just been applied, as with this very version, is served a moment later.
_PUBLISHED_SECONDS = 10.0

#: kopf allows what it started five seconds to end.
_WATCHER_STOP_SECONDS = 8.0


@dataclass(frozen=True)
class Host(Generic[K]):
    """What an operator is made of.

    `keys` says which keys an object that came, changed or went concerns; `reconcile` brings one key's world into
    order and returns after how many seconds to look again, or None. It is never run twice at once for one key.
    An `ApiError` it raises is retried: when the server answers again where that was the trouble, else with a
    growing delay of at most 30 s. `cache` must hold every watched resource.

    Typical use::

        client = Client(load_config(), field_manager="llmengine-operator")
        cache = Cache([LLM_ENGINE, JOB], indexed_labels=["llmengine.dev/engine"])
        host = Host(client=client, cache=cache,
                    watches=[Watch(LLM_ENGINE), Watch(JOB, "llmengine.dev/managed=true")],
                    keys=keys, reconcile=Reconciler(client, cache).reconcile,
                    lease=LeaseSettings(namespace="llmengine-system", name="llmengine-operator"))
        raise SystemExit(run(host))
    """

    client: Client
    cache: Cache
    watches: Sequence[Watch]
    keys: Callable[[Resource, Obj, Cache], Iterable[K]]
    reconcile: Callable[[K], Awaitable[float | None]]
    #: None: work without asking (a single replica that is never two).
    lease: LeaseSettings | None = None
    #: Empty: all namespaces, which takes the permission to list and watch CustomResourceDefinitions.
    namespaces: Sequence[str] = ()
    workers: int = 8
    resync_seconds: float = 300.0
    #: Where /livez, /readyz and /metrics are served; port 0 picks a free one.
    address: str = "0.0.0.0"  # noqa: S104 (the kubelet asks from outside the Pod)
    port: int = 8080
    #: The schema of each kind as this operator was written for it: where the server's lacks a field, the host ends.
    schemas: Mapping[Resource, Schema] = field(default_factory=dict)
    #: Add the operator's own metrics here.
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)


def run(host: Host[K]) -> int:
    """Run until SIGTERM or SIGINT (0), or until a lost Lease, a dead background task or a server whose definitions lack
    fields (1); the exit code."""
    kopf.configure(log_format=kopf.LogFormat.JSON)
    return asyncio.run(serve(host))


async def serve(host: Host[K]) -> int:
    """As `run`, within an event loop in the main thread."""
    return await _Run(host).until_stopped()


class _Run(Generic[K]):
    """One life of a host: standby, lead, stop."""

    def __init__(self, host: Host[K]) -> None:
        self._host = host
        self._stop = asyncio.Event()
        self._fits = False
        """The definitions on the server have been looked at."""
        self._leading = False
        self._queue: KeyQueue[K] = KeyQueue()
        self._lease = Lease(host.client, host.lease) if host.lease else None
        self._resync = Resync(
            host.client,
            host.cache,
            host.watches,
            namespaces=host.namespaces,
            period_seconds=host.resync_seconds,
            on_full=self._wake_all,
        )
        self._watcher = Watcher(
            host.client, host.cache, host.watches, namespaces=host.namespaces, on_list=self._resync.request
        )
        self._passes = PassMetrics(host.metrics)
        ProcessCollector(registry=host.metrics)
        host.metrics.register(StateCollector(host.client, host.cache, self._queue, self._resync, lambda: self._leading))
        host.cache.subscribe(self._changed)
        self._probes = Probes(livez=self._livez, readyz=self._readyz, metrics=host.metrics)

    async def until_stopped(self) -> int:
        self._take_signals()
        port = await self._probes.start(self._host.address, self._host.port)
        log.info("serving /livez, /readyz and /metrics on port %d", port)
        stopped = asyncio.create_task(self._stop.wait(), name="stop signal")
        try:
            # Before it asks for the Lease: in a rollout the version before goes on working meanwhile.
            compared = asyncio.create_task(self._outdated(), name="definitions")
            await asyncio.wait([compared, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not compared.done():
                await _cancel([compared])
                return 0
            if problem := compared.result():
                log.critical("%s", problem)
                return 1
            self._fits = True
            if self._lease and not await _first(self._lease.acquire(), stopped):
                return 0
            return await self._lead(stopped)
        finally:
            stopped.cancel()
            await self._probes.stop()
            await self._host.client.close()

    async def _lead(self, stopped: asyncio.Task[bool]) -> int:
        """Work until told to stop, or until something ends that never should."""
        self._leading = True
        workers = [
            asyncio.create_task(self._worker().run(), name=f"worker {number}") for number in range(self._host.workers)
        ]
        resync = asyncio.create_task(self._resync.run(), name="resync")
        lease = asyncio.create_task(self._lease.keep(), name="lease") if self._lease else None
        watcher = asyncio.create_task(self._watch(), name="watcher")
        endless = [*workers, resync, watcher, *([lease] if lease else [])]
        done, _ = await asyncio.wait([stopped, *endless], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in done if task is not stopped]
        for task in failed:
            error = None if task.cancelled() else task.exception()
            log.critical("%s ended, so does the process", task.get_name(), exc_info=error)
        self._leading = False
        await _cancel([*workers, resync])
        await self._probes.stop()
        self._watcher.stop()
        if not self._resync.synced.is_set():
            watcher.cancel()
        await asyncio.wait([watcher], timeout=_WATCHER_STOP_SECONDS)
        if lease and self._lease:
            lost = lease.done()
            await _cancel([lease])
            if not lost:
                await self._lease.release()
        return 1 if failed else 0

    async def _watch(self) -> None:
        """kopf comes last: every kind must be served, and it waits at its end for tasks created after it. Kinds that
        were not served at the start are compared now."""
        await self._resync.synced.wait()
        if problem := await self._outdated():
            raise RuntimeError(problem)
        await self._watcher.run(self._take_signals)

    async def _outdated(self) -> str:
        """What is wrong with the server's definitions, once they have had the time to be published."""
        began = time.monotonic()
        while problem := await outdated(self._host.client, self._host.schemas):
            if time.monotonic() - began > _PUBLISHED_SECONDS:
                return problem
            await asyncio.sleep(1)
        return ""

    def _worker(self) -> Worker[K]:
        return Worker(
            self._queue,
            self._host.reconcile,
            pause=self._host.client.pause,
            synced=self._resync.synced,
            metrics=self._passes,
        )

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _changed(self, change: Change) -> None:
        """Wake the keys that the object concerns, and those that it concerned before."""
        for obj in (change.old, change.new):
            if obj is not None:
                self._wake(change.resource, obj)

    def _wake_all(self) -> None:
        for resource in self._host.cache.resources:
            for obj in self._host.cache.find(resource):
                self._wake(resource, obj)

    def _wake(self, resource: Resource, obj: Obj) -> None:
        try:
            for key in self._host.keys(resource, obj, self._host.cache):
                self._queue.add(key)
        except Exception:
            # One object nobody understands must not keep all others waiting.
            log.exception("no keys for %s %s", resource.kind, obj["metadata"].get("name"))

    def _livez(self) -> str:
        if max(self._queue.running_seconds(), default=0.0) > _STUCK_PASS_SECONDS:
            return f"a pass has been running for more than {_STUCK_PASS_SECONDS:.0f} s"
        since = time.monotonic() - self._resync.last_attempt
        if self._leading and since > 3 * self._host.resync_seconds:
            return f"no list was begun for {since:.0f} s"
        return ""

    def _readyz(self) -> str:
        """A replica that waits for the Lease is ready: to take over."""
        if not self._fits:
            return "the definitions on the server have not been looked at yet"
        return "the cache is not filled yet" if self._leading and not self._resync.synced.is_set() else ""


async def _first(work: Awaitable[None], stopped: asyncio.Task[bool]) -> bool:
    """Wait for `work`, or until stopped; whether the work was done."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    await _cancel([task])
    return False


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
