"""Builds on real nodes that are disturbed: nothing is built twice, nothing half is seen, and it ends well."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from demo.kubectl import Kubectl, Obj, wait_for
from demo.stack import (
    CLAIM,
    OPERATOR,
    OPERATOR_NAMESPACE,
    POD_SECURITY,
    Stack,
    make_namespace,
    reference,
    remove_namespace,
)
from demo.third_node import TARGET as L4
from demo.third_node import third_node
from trtllm_operator.objects import CONTAINER_SECURITY

from .invariants import check, check_gone, staged, visible
from .smollm2 import A100, H100, delete, llmengine, wait_condition, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

BUILD_SECONDS = 120
LOST_SECONDS = 240
HANGS_SECONDS = 8
"""Less than the 20 s after which a node that does not report counts as lost."""
SMALL_MIB, ENOUGH_MIB = 400, 2048
"""SmolLM2's model and checkpoint take 270 MB each: the second does not fit."""


def built_only(*targets: dict[str, Any]) -> list[dict[str, Any]]:
    """Engines without servers, which are not what these tests are about."""
    return [{**target, "replicas": 0} for target in targets]


@pytest.fixture(autouse=True)
def all_goes(namespace: Kubectl, stack: Stack) -> Iterator[None]:
    """After each test nothing is left, however it went."""
    yield
    for engine in namespace.items("llmengines"):
        delete(namespace, engine["metadata"]["name"])
    check_gone(stack, namespace)


def building(kubectl: Kubectl) -> Obj:
    """The Pod of the engine's build as soon as a node has it."""
    found: list[Obj] = []

    def missing() -> str | None:
        pods = kubectl.items("pods", "-l", "llmengine.dev/attempt")
        mine = [p for p in pods if p["metadata"]["name"].startswith("engine-") and p["spec"].get("nodeName")]
        found.extend(p for p in mine if p["status"]["phase"] in ("Pending", "Running"))
        return None if found else f"the Pods are {[p['metadata']['name'] for p in pods]}"

    wait_for("an engine's build on a node", missing, limit_seconds=BUILD_SECONDS, every_seconds=0.2)
    return found[0]


def test_three_classes_from_one_object(namespace: Kubectl, stack: Stack) -> None:
    """The third generation joins while the others build."""
    namespace.apply(llmengine(targets=built_only(A100, H100, L4)))
    building(namespace)
    with third_node(stack):
        # With no registry, a node that joins has no image until it is given the archives.
        wait_ready(namespace, passing="ImagePullFailed")
        check(stack, namespace)
        artifacts = namespace.items("engineartifacts")
        nodes = {a["status"]["nodeName"] for a in artifacts if a["spec"]["type"] == "Engine"}
        assert nodes == {"a100", "h100", "l4"}
        assert sorted(a["spec"]["type"] for a in artifacts) == ["Checkpoint", *["Engine"] * 3, "Model"]


def test_a_build_that_is_preempted_is_made_once_the_place_is_free(namespace: Kubectl, stack: Stack) -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    container = {
        "name": "main",
        "image": reference(stack.images["operator"]),
        "command": ["python3", "-c", "import time; time.sleep(3600)"],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "securityContext": CONTAINER_SECURITY,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "urgent"},
        "spec": {
            "priorityClassName": "urgent",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "securityContext": POD_SECURITY,
            "containers": [container],
        },
    }
    namespace.apply(urgent)
    namespace.apply(llmengine(targets=built_only(H100)))
    first = building(namespace)
    namespace.apply(pod)
    try:
        # Servers of others that hold such a GPU, as the demo's, have to finish what they were asked first.
        namespace("wait", "pod/urgent", "--for=condition=Ready", "--timeout=180s", timeout_seconds=190)
        left = namespace.find("pod", first["metadata"]["name"])
        assert left is None or left["status"]["phase"] == "Failed", f"not preempted: {left['status']}"
        wait_condition(namespace, "Ready", "False", reason="WaitingForGpu")
    finally:
        namespace("delete", "pod", "urgent", "--grace-period=1")
    wait_ready(namespace)
    check(stack, namespace)
    (engine,) = [a for a in namespace.items("engineartifacts") if a["spec"]["type"] == "Engine"]
    assert engine["status"]["attempt"] == 1, "what the cluster does to a build is no failure of it"


def test_an_operator_killed_by_force_in_the_middle_of_a_build(namespace: Kubectl, stack: Stack) -> None:
    operator = stack.kubectl(OPERATOR_NAMESPACE)
    namespace.apply(llmengine(targets=built_only(A100, H100)))
    building(namespace)
    operator("delete", "pod", "-l", f"app.kubernetes.io/name={OPERATOR}", "--force", "--grace-period=0")
    wait_ready(namespace)
    check(stack, namespace)


def test_a_node_that_hangs_for_a_moment_is_waited_for(namespace: Kubectl, stack: Stack) -> None:
    namespace.apply(llmengine(targets=built_only(H100)))
    node = stack.cluster.node(building(namespace)["spec"]["nodeName"])
    node.stop()
    try:
        time.sleep(HANGS_SECONDS)
    finally:
        node.resume()
    wait_ready(namespace)
    check(stack, namespace)
    (engine,) = [a for a in namespace.items("engineartifacts") if a["spec"]["type"] == "Engine"]
    assert engine["status"]["attempt"] == 1


@pytest.mark.soak
def test_a_node_lost_during_a_build_and_back_again(namespace: Kubectl, stack: Stack) -> None:
    namespace.apply(llmengine(targets=built_only(H100)))
    pod = building(namespace)
    node = stack.cluster.node("h100")
    node.lose()
    try:

        def noticed() -> str | None:
            live = namespace.find("pod", pod["metadata"]["name"])
            if live is None or "deletionTimestamp" in live["metadata"]:
                return None
            return f"Pod {pod['metadata']['name']} is {live['status']['phase']}"

        wait_for("the Pod of the lost node to be given up", noticed, limit_seconds=LOST_SECONDS)
    finally:
        node.start()
    wait_ready(namespace)
    check(stack, namespace)


def test_a_store_that_is_full_and_then_enlarged(stack: Stack) -> None:
    name = "small-store"
    remove_namespace(stack, name)
    kubectl = make_namespace(stack, name, store_size_mib=SMALL_MIB)
    try:
        root = stack.cluster.host_root(name, CLAIM)
        kubectl.apply(llmengine(targets=built_only(H100)))
        stalled = wait_condition(kubectl, "Stalled", "True", reason="DiskFull")
        assert "MiB" in stalled["message"] or "MB" in stalled["message"], "how full it is, in numbers"
        assert [n.partition("-")[0] for n in visible(root)] == ["model"]
        assert staged(root) == [], "what did not fit is taken away again"
        check(stack, kubectl)

        subprocess.run(["mount", "-o", f"remount,size={ENOUGH_MIB}m", str(root)], check=True)
        (checkpoint,) = [a for a in kubectl.items("engineartifacts") if a["spec"]["type"] == "Checkpoint"]
        kubectl("annotate", "engineartifact", checkpoint["metadata"]["name"], "llmengine.dev/retry=1")
        wait_for_ready_again(kubectl)
        check(stack, kubectl)
        delete(kubectl)
        check_gone(stack, kubectl)
    finally:
        remove_namespace(stack, name)


def wait_for_ready_again(kubectl: Kubectl) -> None:
    """Stalled is still said for a moment after the retry was asked for."""
    wait_condition(kubectl, "Ready", "False", reason="RunningConvert")
    wait_ready(kubectl)
