"""From what the cluster says to routes: only ready servers of the served revision, and nothing raises."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtllm_operator.front.backends import Backend, Limits
from trtllm_operator.front.cluster_state import routes_of

TARGET = {
    "name": "h100",
    "servedRevision": "smol-h100-1",
    "service": "smol-h100",
    "servedModel": "model-1",
    "maxBatchSize": 8,
    "maxInputLen": 512,
    "maxSeqLen": 1024,
}


def engine(*targets: Any, **condition: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "False", "reason": "Building", "message": "engine is being built", **condition}
    return {"metadata": {"name": "smol"}, "status": {"targets": list(targets), "conditions": [ready]}}


def endpoint(pod: str, address: str = "10.0.0.1", **conditions: Any) -> dict[str, Any]:
    return {"addresses": [address], "conditions": {"ready": True, **conditions}, "targetRef": {"name": pod}}


def slice_of(*endpoints: Any, service: str = "smol-h100") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{service}-x", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8000}, {"name": "grpc", "port": 8001}],
        "endpoints": list(endpoints),
    }


def test_a_ready_server_of_the_served_revision_is_routed_to() -> None:
    routes = routes_of(engine(TARGET), [slice_of(endpoint("smol-h100-1-abc-xyz"))])
    assert routes.backends == (Backend("10.0.0.1:8001", "h100", "smol-h100-1", "model-1", Limits(8, 512, 1024)),)


def test_servers_that_are_not_ready_or_of_another_revision_are_not() -> None:
    others = (
        endpoint("smol-h100-1-abc-xyz", ready=False),
        endpoint("smol-h100-2-abc-xyz"),
        endpoint("smol-h100-10-abc"),
        {"addresses": ["10.0.0.2"], "conditions": {"ready": True}},
        endpoint("smol-h100-1-abc", address="not an address"),
    )
    assert routes_of(engine(TARGET), [slice_of(*others)]).backends == ()


def test_a_target_that_serves_nothing_yet_does_not_hide_the_others() -> None:
    waiting = {"name": "a100", "reason": "Building"}
    routes = routes_of(engine(waiting, TARGET), [slice_of(endpoint("smol-h100-1-a"))])
    assert [b.target for b in routes.backends] == ["h100"]


def test_the_reason_is_the_llmengine_s_own() -> None:
    assert routes_of(engine(), []).reason == "Building: engine is being built"
    assert routes_of(None, []).reason == "the LLMEngine does not exist"


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=8), scalars, max_size=3)
names = st.sampled_from(
    ["metadata", "status", "targets", "conditions", "labels", "endpoints", "ports", "addresses", "targetRef", "name"]
)
objects = st.dictionaries(names, json_values | st.dictionaries(names, json_values, max_size=4), max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(objects, st.lists(objects, max_size=3))
def test_whatever_the_objects_hold_nothing_raises(one: dict[str, Any], slices: list[dict[str, Any]]) -> None:
    routes_of(one, slices)
    routes_of(engine(TARGET, one), [*slices, slice_of(one), slice_of(endpoint("smol-h100-1-a"))])
