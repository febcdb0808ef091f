"""Which keys an object wakes: those of nodes that GPUs concern, and whoever can remove what an operator left."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trtllm_operator.kube.cache import Cache, Change
from trtllm_operator.kube.resource import CONFIG_MAP, NODE, key_of
from trtllm_operator.objects import MANAGED
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, INDEXED_LABELS, LLM_ENGINE, REDUCED, RESOURCES, keys

from ..artifacts.world import node
from ..engines.simulation import engine

H100, L40S = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"


class Cluster:
    """A cache as the operator has it, and the names that the last event woke."""

    def __init__(self) -> None:
        self.cache = Cache(RESOURCES, indexed_labels=INDEXED_LABELS, reduced=REDUCED)
        self.version = 0
        self.changes: list[Change] = []
        self.cache.subscribe(self.changes.append)
        for name, target, conditions in (
            ("for-h100", {"product": H100}, []),
            ("for-l40s", {"product": L40S}, []),
            ("for-any", {"any": {}}, []),
            ("for-hopper", {"architecture": "hopper"}, []),
            ("waiting", {"product": "NVIDIA-B200"}, [{"type": "NodesMatch", "status": "False"}]),
        ):
            made = engine(name, targets=[{"name": "t", "gpu": target}])
            self.put(LLM_ENGINE, {**made, "status": {"conditions": conditions}})
        for name, reason in (("engine-waits", "NoMatchingNode"), ("engine-runs", "RunningBuild")):
            spec = {"type": "Engine", "inputs": {}}
            meta = {"name": name, "namespace": "team"}
            self.put(ENGINE_ARTIFACT, {"metadata": meta, "spec": spec, "status": {"reason": reason}})

    def put(self, resource: Any, obj: dict[str, Any]) -> set[str]:
        self.version += 1
        made = copy.deepcopy(obj)
        made["metadata"] |= {"resourceVersion": str(self.version), "uid": f"uid-{made['metadata']['name']}"}
        self.changes.clear()
        self.cache.put(resource, made)
        return self._woken()

    def remove(self, obj: dict[str, Any]) -> set[str]:
        self.version += 1
        self.changes.clear()
        self.cache.remove(NODE, key_of(obj), f"uid-{obj['metadata']['name']}", self.version)
        return self._woken()

    def _woken(self) -> set[str]:
        seen = [(change.resource, obj) for change in self.changes for obj in (change.old, change.new) if obj]
        return {key.name for resource, obj in seen for key in keys(resource, obj, self.cache)}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def gpu_node(product: str = H100, ready: str = "True", heartbeat: int = 0, gpus: int = 8) -> dict[str, Any]:
    made = node("n", product)
    made["metadata"]["annotations"] = {"nfd.node.kubernetes.io/feature-labels": str(heartbeat)}
    made["spec"] = {"podCIDR": "10.0.0.0/24"}
    made["status"] = {
        "allocatable": {"nvidia.com/gpu": str(gpus), "memory": "64Gi"},
        "images": [{"names": [f"image-{heartbeat}"]}],
        "conditions": [
            {"type": "Ready", "status": ready, "lastHeartbeatTime": str(heartbeat)},
            {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": str(heartbeat)},
        ],
    }
    return made


SELECTING = {"for-any", "for-hopper", "waiting", "engine-waits"}


def test_a_node_that_comes_wakes_what_may_use_it_and_what_waits(cluster: Cluster) -> None:
    assert cluster.put(NODE, gpu_node()) == SELECTING | {"for-h100"}
    assert cluster.put(NODE, {**gpu_node(L40S), "metadata": {**gpu_node(L40S)["metadata"], "name": "m"}}) == (
        SELECTING | {"for-l40s"}
    )


def test_a_heartbeat_wakes_nothing(cluster: Cluster) -> None:
    cluster.put(NODE, gpu_node())
    assert cluster.put(NODE, gpu_node(heartbeat=1)) == set()
    assert cluster.put(NODE, gpu_node(heartbeat=2)) == set()


@pytest.mark.parametrize(
    "change",
    [
        {"ready": "Unknown"},
        {"gpus": 7},
        {"product": f"{H100}-SHARED"},
    ],
)
def test_what_matters_to_pods_wakes_whom_it_was_for(cluster: Cluster, change: dict[str, Any]) -> None:
    cluster.put(NODE, gpu_node())
    assert cluster.put(NODE, gpu_node(**change)) >= {"for-h100", "for-any"}


def test_a_cordon_and_a_taint_wake(cluster: Cluster) -> None:
    cluster.put(NODE, gpu_node())
    assert "for-h100" in cluster.put(NODE, {**gpu_node(), "spec": {"unschedulable": True}})
    taint = {"key": "team", "effect": "NoSchedule"}
    assert "for-h100" in cluster.put(NODE, {**gpu_node(), "spec": {"taints": [taint]}})


def test_a_node_that_goes_wakes_what_it_was_for(cluster: Cluster) -> None:
    cluster.put(NODE, gpu_node())
    assert cluster.remove(gpu_node()) == SELECTING | {"for-h100"}


def test_a_node_without_gpus_wakes_nothing(cluster: Cluster) -> None:
    assert cluster.put(NODE, node("cpu")) == set()


def test_gpus_that_get_no_labels_are_said_to_those_who_wait(cluster: Cluster) -> None:
    bare = {**node("bare"), "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    assert cluster.put(NODE, bare) == SELECTING


def test_a_config_map_that_an_operator_left_wakes_what_removes_it() -> None:
    """All that is left where an operator died once the last artifact was gone: nothing else would wake anybody."""
    cluster = Cluster()
    left = {"metadata": {"name": "llmengine-runner-1", "namespace": "team", "labels": {MANAGED: "true"}}}
    assert [(k.kind, k.namespace) for k in keys(CONFIG_MAP, left, cluster.cache)] == [("Shared", "team")]
