"""A real Kubernetes cluster on one machine, for tests and the demo."""

from testbed.cluster.cluster import Cluster
from testbed.cluster.errors import ClusterError

__all__ = ["Cluster", "ClusterError"]
