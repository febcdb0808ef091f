"""What an operator can be watched by, named as controller-runtime names it so that its dashboards fit."""

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

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class PassMetrics:
    """Passes over keys: how they ended and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter("controller_runtime_reconcile_total", "Passes over keys.", ["result"], registry=registry)
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds", "Time of one pass.", buckets=_SECONDS, registry=registry
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
        yield _gauge("leader_election_master_status", "1 where this replica works.", float(self._is_leader()))
        yield _gauge("workqueue_depth", "Keys that wait for a worker.", self._queue.depth)
        yield _gauge("workqueue_scheduled", "Keys that wait for their time.", self._queue.scheduled)
        yield _gauge("workqueue_oldest_wait_seconds", "Wait of the next key.", self._queue.oldest_wait_seconds())
        yield _gauge("workqueue_unfinished_work_seconds", "Time in passes not ended yet.", sum(running))
        yield _gauge("workqueue_longest_running_processor_seconds", "The longest of them.", max(running, default=0.0))
        yield CounterMetricFamily("workqueue_adds", "Keys made ready.", value=self._queue.added)
        yield CounterMetricFamily("workqueue_retries", "Passes that failed.", value=self._queue.retried)
        yield CounterMetricFamily("resync_rounds", "Complete lists of everything.", value=self._resync.rounds)
        yield CounterMetricFamily("resync_cured", "Changes that a list brought.", value=self._resync.cured)
        yield _gauge("rest_client_paused", "1 while all calls wait for the server.", not self._client.pause.is_open)
        calls = CounterMetricFamily(
            "rest_client_requests", "Calls to the API server.", labels=["method", "resource", "code"]
        )
        for call, count in sorted(Counts(self._client.calls).items()):
            calls.add_metric([call.verb, call.resource, str(call.code)], count)
        yield calls
        objects = GaugeMetricFamily("cache_objects", "Objects known.", labels=["resource"])
        for resource in self._cache.resources:
            objects.add_metric([str(resource)], self._cache.size(resource))
        yield objects


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
