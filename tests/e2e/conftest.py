"""The cluster that end-to-end tests run on."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster, ClusterError


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster that KUBECONFIG names, or the local one, which is brought up where it is not yet."""
    try:
        return Cluster.connect()
    except ClusterError:
        return Cluster.up()
