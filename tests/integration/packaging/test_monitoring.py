"""Alerts and dashboard: off by default, and nothing in them that no process exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import yaml
from prometheus_client import CollectorRegistry

from tests.integration.packaging.rendered import CHART, NAMESPACE, RELEASE, chart
from trtllm_operator.front.metrics import FrontMetrics
from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.metrics import PassMetrics, StateCollector
from trtllm_operator.kube.queue import KeyQueue
from trtllm_operator.kube.resync import Resync
from trtllm_operator.reconcile.metrics import DomainMetrics
from trtllm_operator.reconcile.watches import RESOURCES

MONITORING = "monitoring.coreos.com/v1"
ALL = {"metrics": {part: {"enabled": True} for part in ("serviceMonitor", "prometheusRule", "dashboard")}}
FILES = CHART / "files" / "monitoring"


class _Nothing:
    """Stands for a client and a resync that have done nothing."""

    calls: dict[Any, int] = {}
    pause = type("Pause", (), {"is_open": True})()
    rounds = cured = 0


def exported() -> set[str]:
    """Names of all metrics of the operator and of an endpoint, as Prometheus stores them."""
    client, cache = cast("Client", _Nothing()), Cache(RESOURCES)
    registry, front = CollectorRegistry(), CollectorRegistry()
    PassMetrics(registry)
    registry.register(StateCollector(client, cache, KeyQueue(), cast("Resync", _Nothing()), lambda: True))
    DomainMetrics(registry, cache, client)
    FrontMetrics(front)
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    return {
        metric.name + ending for one in (registry, front) for metric in one.collect() for ending in endings[metric.type]
    }


def expressions() -> Iterator[str]:
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((FILES / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_every_metric_that_alerts_and_dashboard_name_is_exported() -> None:
    known = exported()
    named = {m for text in expressions() for m in re.findall(r"\b(?:llmengine|gen_ai)_[a-z_]+\b", text)}
    named -= {"llmengine_dev_engine"}  # the label of the Pods
    assert len(named) > 15
    assert named - known == set()


def test_they_are_off_by_default() -> None:
    plain = {kind for kind, _, _ in chart()}
    assert not plain & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert ("ConfigMap", NAMESPACE, f"{RELEASE}-dashboard") not in chart()


def test_switched_on_they_are_what_the_files_say() -> None:
    made = chart(ALL, kinds=(MONITORING,))
    rules = made["PrometheusRule", NAMESPACE, RELEASE]["spec"]
    assert rules == yaml.safe_load((FILES / "alerts.yaml").read_text())
    shown = made["ConfigMap", NAMESPACE, f"{RELEASE}-dashboard"]
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(shown["data"]["llmengine-operator.json"]) == json.loads((FILES / "dashboard.json").read_text())


def test_the_namespace_of_a_series_is_the_llmengine_s() -> None:
    (endpoint,) = chart(ALL, kinds=(MONITORING,))["ServiceMonitor", NAMESPACE, RELEASE]["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_endpoints_are_scraped_where_the_operator_works() -> None:
    narrow = chart({**ALL, "watchNamespaces": ["team-a"]}, kinds=(MONITORING,))
    key = ("PodMonitor", NAMESPACE, f"{RELEASE}-front")
    assert narrow[key]["spec"]["namespaceSelector"] == {"matchNames": ["team-a"]}
    assert chart(ALL, kinds=(MONITORING,))[key]["spec"]["namespaceSelector"] == {"any": True}


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
            assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
