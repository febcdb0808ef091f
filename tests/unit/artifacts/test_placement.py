"""Why no node takes a Pod, told node by node."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.artifacts.placement import obstacles, quantity, requests

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
INSUFFICIENT = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def node(name: str, labels: dict[str, str] | None = None, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "labels": {**H100, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(gpus: int = 1, memory: str = "8Gi", **spec: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": k, "operator": "In", "values": [v]} for k, v in H100.items()]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    limits = {"memory": memory, "nvidia.com/gpu": str(gpus)}
    return {
        "spec": {
            "initContainers": [
                {"name": "stage", "resources": {"requests": {"memory": "256Mi"}}},
                {"name": "build", "resources": {"limits": limits}},
            ],
            "containers": [{"name": "publish", "resources": {"requests": {"memory": "256Mi"}}}],
            "affinity": {"nodeAffinity": required},
            **spec,
        }
    }


def test_full_nodes_are_waited_for_and_named() -> None:
    found = obstacles(pod(), [node("a"), node("b"), node("c", {"nvidia.com/gpu.product": "NVIDIA-L4"})], INSUFFICIENT)
    assert found.reason == "WaitingForGpu"
    assert found.message.startswith("waits for 1 nvidia.com/gpu on a, b, taken now")
    assert "c: label nvidia.com/gpu.product is NVIDIA-L4, NVIDIA-H100-80GB-HBM3 is wanted" in found.message
    assert INSUFFICIENT in found.message


def test_memory_that_is_taken_is_not_called_a_gpu() -> None:
    assert obstacles(pod(), [node("a")], "0/1 nodes: 1 Insufficient memory.").reason == "WaitingForResources"


@pytest.mark.parametrize(
    ("asked", "there", "words"),
    [
        (pod(nodeSelector={"pool": "builds"}), node("a"), "label pool is not there, builds is wanted"),
        (pod(nodeSelector={"pool": "builds"}), node("a", {"pool": "web"}), "label pool is web, builds is wanted"),
        (pod(), node("a", unschedulable=True), "a: it is cordoned"),
        (pod(gpus=9), node("a"), "it has 8 nvidia.com/gpu in all, 9 nvidia.com/gpu is asked for"),
        (pod(memory="600Gi"), node("a"), "it has 512.0 GiB memory in all, 600.0 GiB memory is asked for"),
    ],
)
def test_what_can_never_fit_says_which_label_taint_memory_or_gpus(
    asked: dict[str, Any], there: dict[str, Any], words: str
) -> None:
    found = obstacles(asked, [there], "")
    assert found.reason == "Unschedulable"
    assert words in found.message


def test_nodes_alike_are_told_together_and_many_are_counted() -> None:
    nodes = [node(f"n{i}", unschedulable=True) for i in range(9)]
    assert "n0, n1, n2, n3 and 5 more: it is cordoned" in obstacles(pod(), nodes, "").message


TAINT = {"key": "team", "value": "research", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "team", "value": "research"}, True),
        ({"key": "team", "value": "sales"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_are_tolerated_as_the_scheduler_does(toleration: dict[str, str], tolerated: bool) -> None:
    found = obstacles(pod(tolerations=[toleration]), [node("a", taints=[TAINT])], INSUFFICIENT)
    assert ("taint team=research:NoSchedule is not tolerated" in found.message) is not tolerated


def test_a_pod_asks_for_the_larger_of_its_steps() -> None:
    asked = requests(pod(gpus=2))
    assert asked == {"nvidia.com/gpu": 2, "memory": 8 * 2**30}


@pytest.mark.parametrize(
    ("text", "number"), [("1500m", "1.5"), ("2Gi", 2 * 2**30), ("3", 3), ("1k", 1000), ("0.5", "0.5"), (4, 4)]
)
def test_quantities(text: object, number: object) -> None:
    assert quantity(text) == quantity(str(number))
