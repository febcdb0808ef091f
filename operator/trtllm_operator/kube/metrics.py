"""What the operator's process can be watched by: its passes, queue, calls and cache."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.queue import KeyQueue
from trtllm_operator.kube.resync import Resync

_PREFIX = "llmengine_operator_"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class PassMetrics:
    """Passes over keys: how they ended and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter(_PREFIX + "passes_total", "Passes over keys.", ["result"], registry=registry)
        self._seconds = Histogram(
            _PREFIX + "pass_duration_seconds", "Time of one pass.", buckets=_SECONDS, registry=registry
        )

    def passed(self, result: str, seconds: float) -> None:
        """Count one pass."""
        self._total.labels(result).inc()
        self._seconds.observe(seconds)


class StateCollector(Collector):
    """Reads queue, client, cache and resync when asked, so that they need to know nothing of metrics."""

    def __init__(
        self, client: Client, cache: Cache, queue: KeyQueue[Any], resync: Resync, is_leader: Callable[[], bool]
    ) -> None:
        self._client = client
        self._cache = cache
        self._queue = queue
        self._resync = resync
        self._is_leader = is_leader

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        running = self._queue.running_seconds()
        yield _gauge("leader", "1 where this replica works.", float(self._is_leader()))
        yield _gauge("queue_depth", "Keys that wait for a worker.", self._queue.depth)
        yield _gauge("queue_scheduled", "Keys that wait for their time.", self._queue.scheduled)
        yield _gauge("queue_oldest_wait_seconds", "Wait of the next key.", self._queue.oldest_wait_seconds())
        yield _gauge("queue_unfinished_work_seconds", "Time in passes not ended yet.", sum(running))
        yield _gauge("queue_longest_running_pass_seconds", "The longest of them.", max(running, default=0.0))
        yield _counter("queue_adds", "Keys made ready.", self._queue.added)
        yield _counter("queue_retries", "Passes that failed.", self._queue.retried)
        yield _counter("resync_rounds", "Complete lists of everything.", self._resync.rounds)
        yield _counter("resync_corrections", "Changes that a list brought.", self._resync.cured)
        yield _gauge("api_paused", "1 while all calls wait for the server.", not self._client.pause.is_open)
        calls = CounterMetricFamily(
            _PREFIX + "api_requests", "Calls to the API server.", labels=["verb", "resource", "code"]
        )
        for call, count in sorted(Counts(self._client.calls).items()):
            calls.add_metric([call.verb, call.resource, str(call.code)], count)
        yield calls
        objects = GaugeMetricFamily(_PREFIX + "cache_objects", "Objects known.", labels=["resource"])
        for resource in self._cache.resources:
            objects.add_metric([str(resource)], self._cache.size(resource))
        yield objects


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, value=value)
