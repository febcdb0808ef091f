"""An API server with controllers and no nodes, on which the tests play the nodes; a namespace for every history."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.chaos.kubelet import Kubelets, Machine, a100, h100
from tests.integration.chaos.replica import ROOT
from tests.integration.chaos.world import World
from tests.integration.kube.waiting import eventually
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.kubeconfig import from_kubeconfig
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

MakeWorld = Callable[..., World]


@pytest.fixture(scope="session")
def controlled() -> Iterator[ApiServer]:
    """etcd, kube-apiserver and kube-controller-manager, with the operator's kinds."""
    definitions = sorted((ROOT / "crds").glob("[el]*.yaml"))
    with ApiServer(controller_manager=True, definitions=definitions) as server:
        yield server


@pytest.fixture
async def client(controlled: ApiServer) -> AsyncIterator[Client]:
    """The users'."""
    client = Client(from_kubeconfig(controlled.kubeconfig), field_manager="chaos")

    async def served() -> bool:
        try:
            await client.list(LLM_ENGINE)
            await client.list(ENGINE_ARTIFACT)
        except ApiError as error:
            if error.is_not_found or error.is_overload:
                return False
            raise
        return True

    await eventually(served, "the kinds to be served")
    yield client
    await client.close()


@pytest.fixture
def machines() -> list[Machine]:
    return [Machine("cpu"), a100(), h100()]


@pytest.fixture
async def kubelets(client: Client, machines: list[Machine], tmp_path: Path) -> AsyncIterator[Kubelets]:
    async with Kubelets(client, tmp_path, machines) as kubelets:
        yield kubelets


@pytest.fixture
def make_world(client: Client, kubelets: Kubelets, tmp_path: Path) -> MakeWorld:
    """An async context manager: a World of its own namespace."""

    def make(name: str = "world", replicas: int = 1) -> World:
        return World(client, kubelets, f"{name}-{uuid.uuid4().hex[:6]}", tmp_path / "operators", replicas)

    return make
