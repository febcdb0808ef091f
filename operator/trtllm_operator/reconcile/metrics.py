"""What happens to LLMEngines and their builds, for Prometheus.

Gauges are read from the cache when they are asked for. Counters grow with what is written, so a restart of the operator
sets them to zero and counts nothing twice.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..artifacts.build_result import new_results
from ..artifacts.plan import is_ready
from ..kube.cache import Cache
from ..kube.client import Client
from ..kube.resource import SERVICE, Obj
from ..objects import ENGINE, TARGET, annotation, label
from ..serving.revision import CHAIN_LABELS
from ..serving.triton import SWITCHED_AT
from .watches import ENGINE_ARTIFACT, LLM_ENGINE

_BUILD_SECONDS = (10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)
_REFUSALS = frozenset({400, 401, 403, 413, 415, 422, 500})
"""Answers that a write gets by its own fault, a quota's or a webhook's."""
_READS = frozenset({"get", "list", "logs"})


class DomainMetrics(Collector):
    """Counts builds as they end, and reads the rest from the cache."""

    def __init__(self, registry: CollectorRegistry, cache: Cache, client: Client) -> None:
        self._cache = cache
        self._client = client
        self._builds = Counter(
            "llmengine_builds_total",
            "Attempts at an artifact that have ended.",
            ["type", "result", "reason"],
            registry=registry,
        )
        self._seconds = Histogram(
            "llmengine_build_duration_seconds",
            "Time of a successful attempt.",
            ["type"],
            buckets=_BUILD_SECONDS,
            registry=registry,
        )
        self._bytes = Counter(
            "llmengine_published_bytes_total", "Size of the artifacts that were published.", ["type"], registry=registry
        )
        self._reused = Counter(
            "llmengine_artifacts_reused_total",
            "Artifacts that a new revision found built already.",
            ["type"],
            registry=registry,
        )
        registry.register(self)

    def status_written(self, obj: Obj, status: Obj) -> None:
        """The status of `obj` becomes `status`."""
        if obj["kind"] != ENGINE_ARTIFACT.kind:
            return
        type_ = str(obj["spec"]["type"])
        for build in new_results(obj.get("status") or {}, status):
            self._builds.labels(type_, build.result, build.reason).inc()
            if build.seconds is not None:
                self._seconds.labels(type_).observe(build.seconds)
            if build.size_bytes is not None:
                self._bytes.labels(type_).inc(build.size_bytes)

    def created(self, obj: Obj) -> None:
        """An object was created that did not exist."""
        if obj["kind"] != "ControllerRevision":
            return
        namespace = obj["metadata"]["namespace"]
        for type_, chain_label in CHAIN_LABELS.items():
            artifact = self._cache.get(ENGINE_ARTIFACT, namespace, label(obj, chain_label) or "")
            if artifact is not None and is_ready(artifact):
                self._reused.labels(type_).inc()

    def collect(self) -> Iterator[Metric]:
        """The state of this moment."""
        yield self._artifacts()
        yield from self._targets()
        yield self._switches()
        yield self._api_refusals()

    def _artifacts(self) -> Metric:
        gauge = GaugeMetricFamily("llmengine_artifacts", "Artifacts by what becomes of them.", labels=["type", "phase"])
        counts = Counts(
            (str(a["spec"].get("type")), str((a.get("status") or {}).get("phase") or "Pending"))
            for a in self._cache.find(ENGINE_ARTIFACT)
        )
        for (type_, phase), count in sorted(counts.items()):
            gauge.add_metric([type_, phase], count)
        return gauge

    def _targets(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            "llmengine_ready", "1 where every target serves the spec.", labels=["namespace", "name", "reason"]
        )
        stalled = GaugeMetricFamily(
            "llmengine_stalled", "1 where a person must act.", labels=["namespace", "name", "reason"]
        )
        servers = GaugeMetricFamily(
            "llmengine_target_ready_servers", "Servers that answer.", labels=["namespace", "name", "target"]
        )
        wanted = GaugeMetricFamily(
            "llmengine_target_servers", "Servers that the spec asks for.", labels=["namespace", "name", "target"]
        )
        for engine in self._cache.find(LLM_ENGINE):
            # Whatever somebody wrote into one status, the others are shown.
            with suppress(AttributeError, KeyError, TypeError, ValueError):
                meta, status = engine["metadata"], engine.get("status") or {}
                names = [str(meta["namespace"]), str(meta["name"])]
                conditions = {c.get("type"): c for c in status.get("conditions") or ()}
                for gauge, type_ in ((ready, "Ready"), (stalled, "Stalled")):
                    condition = conditions.get(type_, {})
                    holds = float(condition.get("status") == "True")
                    gauge.add_metric([*names, str(condition.get("reason", ""))], holds)
                for target in status.get("targets") or ():
                    labels = [*names, str(target.get("name"))]
                    servers.add_metric(labels, float(target.get("readyReplicas") or 0))
                    wanted.add_metric(labels, float(target.get("replicas") or 0))
        yield from (ready, stalled, servers, wanted)

    def _switches(self) -> Metric:
        gauge = GaugeMetricFamily(
            "llmengine_target_last_switch_timestamp_seconds",
            "When the Service came to select the revision that it selects.",
            labels=["namespace", "name", "target"],
        )
        for service in self._cache.find(SERVICE):
            target, switched = label(service, TARGET), annotation(service, SWITCHED_AT)
            if target and (at := _seconds(switched)) is not None:
                gauge.add_metric([service["metadata"]["namespace"], label(service, ENGINE) or "", target], at)
        return gauge

    def _api_refusals(self) -> Metric:
        family = CounterMetricFamily(
            "llmengine_api_refusals", "Writes that the API server refused.", labels=["verb", "resource", "code"]
        )
        for call, count in sorted(self._client.calls.items()):
            if call.code in _REFUSALS and call.verb not in _READS:
                family.add_metric([call.verb, call.resource, str(call.code)], count)
        return family


def _seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None
