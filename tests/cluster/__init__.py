"""A real Kubernetes cluster on one machine, for tests and the demo."""

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError

__all__ = ["Cluster", "ClusterError"]
