"""One cluster with the operator for all end-to-end tests; a namespace and a store of its own for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.kubectl import Kubectl
from demo.stack import Stack, make_namespace, remove_namespace, up
from testbed.cluster.prerequisites import existing_kubeconfig


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Left up afterwards: the next run then starts in seconds; `make clean-cluster` removes it."""
    if existing_kubeconfig() is not None:
        pytest.skip("KUBECONFIG names an existing cluster, which cannot be given this tree's images")
    return up()


@pytest.fixture(scope="module")
def namespace(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    remove_namespace(stack, name)
    yield make_namespace(stack, name)
    remove_namespace(stack, name)
