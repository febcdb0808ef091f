"""A namespace, a kind of objects and a client of the test's own on the real API server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.faults import FaultProxy
from tests.integration.kube.waiting import eventually
from tests.integration.kube.world import World
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.kubeconfig import from_kubeconfig
from trtllm_operator.kube.resource import NAMESPACE


@pytest.fixture
async def client(apiserver: ApiServer) -> AsyncIterator[Client]:
    client = Client(from_kubeconfig(apiserver.kubeconfig), field_manager="test")
    yield client
    await client.close()


@pytest.fixture
async def other(apiserver: ApiServer) -> AsyncIterator[Client]:
    """Somebody else, as the API server sees it."""
    client = Client(from_kubeconfig(apiserver.kubeconfig), field_manager="somebody")
    yield client
    await client.close()


@pytest.fixture
async def namespace(client: Client) -> str:
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.apply(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
async def world(client: Client, namespace: str) -> World:
    """The user's side of the sample operator; its kind is served."""
    world = World(client, namespace)
    await world.install()
    await eventually(world.is_served, "the API server to serve the new kind")
    return world


@pytest.fixture
async def proxy(apiserver: ApiServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(from_kubeconfig(apiserver.kubeconfig)) as proxy:
        yield proxy
