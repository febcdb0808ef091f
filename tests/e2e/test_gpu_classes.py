"""Any GPU on a real cluster: a node of a new generation joins, is served, and is lost again."""

from __future__ import annotations

import pytest

from demo.kubectl import Kubectl, Obj, condition, wait_for
from demo.stack import Stack
from demo.third_node import third_node

from .smollm2 import answer, get, llmengine, wait_condition, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

A100, H100, L4 = "gpu-a100-sxm4-80gb", "gpu-h100-80gb-hbm3", "gpu-l4"
GONE_SECONDS = 240
"""The cluster removes the Pods of a node that is gone some time after it noticed."""


def target(kubectl: Kubectl, name: str) -> Obj:
    targets = get(kubectl)["status"].get("targets", ())
    return next((t for t in targets if t["name"] == name), {"reason": "absent"})


def test_any_gpu_follows_the_nodes_that_come_and_says_which_are_gone(namespace: Kubectl, stack: Stack) -> None:
    namespace.apply(llmengine(targets=[{"name": "gpu", "gpu": {"any": {}}}]))
    wait_ready(namespace)
    services = namespace.items("services", "-l", "llmengine.dev/target")
    assert {s["metadata"]["name"] for s in services} == {f"smollm2--{A100}", f"smollm2--{H100}"}
    served = target(namespace, A100)["servedRevision"]

    with third_node(stack) as node:
        wait_condition(namespace, "Ready", "False")
        wait_ready(namespace, passing="ImagePullFailed")
        assert target(namespace, L4)["reason"] == "Serving"
        assert "Paris" in answer(namespace, L4)
        (pod,) = namespace.items("pods", "-l", f"llmengine.dev/target={L4}")
        assert pod["spec"]["nodeName"] == node.name
        artifact = namespace.get("engineartifact", target(namespace, L4)["artifact"])
        assert artifact["status"]["nodeName"] == node.name, "built on the node that it is for"
        assert target(namespace, A100)["servedRevision"] == served, "the others are left alone"

    wait_condition(namespace, "NodesMatch", "False", reason="NoMatchingNode")

    def said() -> str | None:
        found = target(namespace, L4)
        return None if found["reason"] == "NoMatchingNode" else f"target {L4} says {found}"

    wait_for("the loss of the last L4 to be said", said, limit_seconds=GONE_SECONDS)
    lost, status = target(namespace, L4), get(namespace)
    assert "no node has nvidia.com/gpu.product=NVIDIA-L4" in lost["message"]
    assert "NVIDIA-A100-SXM4-80GB (a100)" in lost["message"], "what there is instead"
    assert condition(status, "Stalled").get("status") != "True", "a node may come back: nobody has to act"
    assert lost["servedRevision"], "what served is kept"
    assert len(namespace.items("deployments", "-l", "llmengine.dev/target")) == 3
    assert "Paris" in answer(namespace, A100)

    namespace("delete", "controllerrevisions", "-l", f"llmengine.dev/target={L4}")
    wait_ready(namespace)
    assert target(namespace, L4)["reason"] == "absent", "a class that is gone for good has been let go"
