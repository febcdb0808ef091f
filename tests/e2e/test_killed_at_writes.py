"""Real Pods, and an operator that is killed with SIGKILL as soon as the API server has carried out any write of its."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo.kubectl import Kubectl
from demo.stack import OPERATOR, OPERATOR_NAMESPACE, Stack
from tests.integration.chaos.replica import Replica
from trtllm_operator.kube.kubeconfig import from_kubeconfig

from .invariants import check, check_gone
from .smollm2 import A100, H100, delete, llmengine, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1200)]
READY_SECONDS = 600
MANY = 30
"""Lives: two engines from one download are made, served and removed in no fewer writes."""


@pytest.fixture
def config(stack: Stack) -> Iterator[dict[str, object]]:
    """The configuration of the cluster's operator, which is away meanwhile."""
    operator = stack.kubectl(OPERATOR_NAMESPACE)
    operator("scale", f"deployment/{OPERATOR}", "--replicas=0")
    operator("wait", "pod", "-l", f"app.kubernetes.io/name={OPERATOR}", "--for=delete", "--timeout=50s")
    yield yaml.safe_load(operator.get("configmap", OPERATOR)["data"]["config.yaml"])
    operator("scale", f"deployment/{OPERATOR}", "--replicas=1")
    operator("rollout", "status", f"deployment/{OPERATOR}", "--timeout=120s", timeout_seconds=130)


async def test_killed_at_each_of_its_writes(
    namespace: Kubectl, stack: Stack, config: dict[str, object], tmp_path: Path
) -> None:
    def history() -> None:
        namespace.apply(llmengine(targets=[A100, {**H100, "replicas": 0}]))
        wait_ready(namespace, limit_seconds=READY_SECONDS)
        check(stack, namespace)
        attempts = {a["status"]["attempt"] for a in namespace.items("engineartifacts")}
        assert attempts == {1}, "no attempt was made twice"
        delete(namespace)
        check_gone(stack, namespace, limit_seconds=READY_SECONDS)

    upstream = from_kubeconfig(stack.cluster.kubeconfig)
    async with Replica(upstream, namespace.namespace, "operator", tmp_path / "operator", config) as replica:
        replica.dies_at_every_write()
        await asyncio.to_thread(history)
        print(f"{replica.lives} lives, {replica.writes} writes")
        assert replica.lives > MANY
