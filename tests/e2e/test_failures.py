"""Failures of builds on a real cluster: what is said, what is tried again, and what then goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from demo.kubectl import Kubectl, Obj, condition, wait_for
from demo.stack import Stack, make_namespace, remove_namespace

from .smollm2 import delete, get, llmengine, wait_condition, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def nothing_left(namespace: Kubectl) -> Iterator[None]:
    yield
    for engine in namespace.items("llmengines"):
        delete(namespace, engine["metadata"]["name"])


def artifact(kubectl: Kubectl, type_: str) -> Obj:
    """The newest of that type."""
    found = [a for a in kubectl.items("engineartifacts") if a["spec"]["type"] == type_]
    assert found, f"no {type_} yet"
    return max(found, key=lambda a: str(a["metadata"]["creationTimestamp"]))


def wait_reason(kubectl: Kubectl, name: str, reason: str, limit_seconds: int = 120) -> Obj:
    def missing() -> str | None:
        found = get(kubectl, name).get("status", {}).get("reason")
        return None if found == reason else f"the reason is {found}"

    wait_for(f"LLMEngine {name} with reason {reason}", missing, limit_seconds=limit_seconds)
    return condition(get(kubectl, name), "Ready")


def test_what_fits_no_node_is_told_node_by_node_and_goes_on_when_the_spec_lets_it(namespace: Kubectl) -> None:
    """Held back by a selector that no node has; then let go."""
    namespace.apply(llmengine("memory"))
    wait_ready(namespace, "memory")
    budgets = {"maxBatchSize": 4, "maxInputLen": 512, "maxSeqLen": 1024, "maxNumTokens": 1024}
    held: dict[str, Any] = {"nodeSelector": {"llmengine.dev/nowhere": "true"}}
    namespace.apply(llmengine("memory", budgets=budgets, build=held))
    ready = wait_reason(namespace, "memory", "Unschedulable")
    for words in ("h100: label llmengine.dev/nowhere is not there", "a100"):
        assert words in ready["message"]

    namespace.apply(llmengine("memory", budgets=budgets))
    wait_ready(namespace, "memory")
    reasons = [a["reason"] for a in artifact(namespace, "Engine")["status"]["attempts"]]
    assert reasons == ["PolicyChanged"], "the attempt that waited made way for the changed policy"


def test_a_quota_is_told_where_no_pod_can_be_created(namespace: Kubectl) -> None:
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "no-gpus"},
            "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
        }
    )
    try:
        namespace.apply(llmengine("quota", budgets={**llmengine()["spec"]["budgets"], "maxBatchSize": 3}))
        ready = wait_reason(namespace, "quota", "QuotaExceeded")
        for words in ("exceeded quota: no-gpus", "requests.nvidia.com/gpu=1"):
            assert words in ready["message"]
        assert condition(get(namespace, "quota"), "Stalled") == {}, "room may come by itself"
    finally:
        namespace("delete", "resourcequota", "no-gpus")


def test_a_store_that_is_full_is_told_with_its_numbers(stack: Stack) -> None:
    """The model fits, the checkpoint beside it does not."""
    name = "store-full"
    remove_namespace(stack, name)
    kubectl = make_namespace(stack, name, store_size_mib=400)
    try:
        kubectl.apply(llmengine())
        stalled = wait_condition(kubectl, "Stalled", "True", reason="DiskFull")
        for words in ("MiB are free", "Enlarge the claim"):
            assert words in stalled["message"]
        assert artifact(kubectl, "Model")["status"]["phase"] == "Ready"
        (record,) = artifact(kubectl, "Checkpoint")["status"]["attempts"]
        assert record["reason"] == "DiskFull"
    finally:
        remove_namespace(stack, name)
