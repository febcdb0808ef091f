"""MIG slices and shared GPUs on real nodes: asked for by their own resource, built and served where they are."""

from __future__ import annotations

import pytest

from demo.kubectl import Kubectl
from demo.stack import Stack
from demo.third_node import L4_GPU, third_node
from testbed.cluster.config import Gpu, Mig, Node, Sharing

from .smollm2 import answer, delete, get, llmengine, wait_condition, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SLICES = Node(
    name="slices",
    gpu=Gpu(
        name="NVIDIA A100-SXM4-80GB",
        compute_capability="8.0",
        memory_mib=81920,
        count=1,
        driver="580.159.04",
        cuda="13.0",
        mig=Mig(strategy="mixed", profile="3g.40gb", instances=2, memory_mib=40192),
    ),
)
SHARED = Node(name="shared", gpu=L4_GPU.model_copy(update={"sharing": Sharing(strategy="time-slicing", replicas=4)}))


def leave(kubectl: Kubectl) -> None:
    """Before the node goes: the Pods of a lost node are waited for long."""
    delete(kubectl)
    kubectl("wait", "pod", "-l", "llmengine.dev/engine", "--for=delete", "--timeout=120s", timeout_seconds=130)


def test_a_mig_slice_is_a_class_of_its_own(namespace: Kubectl, stack: Stack) -> None:
    slices = {"name": "slice", "gpu": {"product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"}}
    with third_node(stack, SLICES) as node:
        namespace.apply(llmengine(targets=[slices]))
        wait_ready(namespace, passing="ImagePullFailed")
        assert "Paris" in answer(namespace, "slice")
        (pod,) = namespace.items("pods", "-l", "llmengine.dev/target=slice")
        assert pod["spec"]["nodeName"] == node.name, "never on the whole A100 of another node"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-3g.40gb"] == "1"
        (engine,) = [a for a in namespace.items("engineartifacts") if a["spec"]["type"] == "Engine"]
        assert engine["status"]["nodeName"] == node.name, "built on what it is for"

        namespace.apply(llmengine(targets=[slices], parallelism={"tensor": 3}))
        refused = wait_condition(namespace, "Validated", "False")
        assert "slice" in refused["message"], "GPUs of one server must reach each other, and slices do not"
        assert "Paris" in answer(namespace, "slice"), "what serves goes on serving"
        leave(namespace)


@pytest.mark.soak
def test_a_shared_gpu_is_used_only_by_its_full_name(namespace: Kubectl, stack: Stack) -> None:
    with third_node(stack, SHARED) as node:
        namespace.apply(llmengine(targets=[{"name": "l4", "gpu": {"product": "NVIDIA-L4"}}]))
        waiting = wait_condition(namespace, "NodesMatch", "False")
        assert "NVIDIA-L4-SHARED" in waiting["message"], "what there is instead"

        namespace.apply(llmengine(targets=[{"name": "l4", "gpu": {"product": "NVIDIA-L4-SHARED"}}]))
        wait_ready(namespace, passing="ImagePullFailed")
        assert "Paris" in answer(namespace, "l4")
        (pod,) = namespace.items("pods", "-l", "llmengine.dev/target=l4")
        assert pod["spec"]["nodeName"] == node.name
        assert {t["reason"] for t in get(namespace)["status"]["targets"]} == {"Serving"}
        leave(namespace)
