"""A real API server for every test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.cluster.apiserver import ApiServer


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """etcd and kube-apiserver alone: no controllers, no nodes. One per pytest-xdist worker, about 400 MB each."""
    with ApiServer() as server:
        yield server
