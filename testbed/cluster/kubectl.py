"""kubectl with a kubeconfig."""

from __future__ import annotations

from pathlib import Path

from testbed.cluster import binaries
from testbed.cluster.processes import run


def kubectl(kubeconfig: Path, *arguments: str, given: str | None = None, timeout_seconds: float = 60) -> str:
    """Runs kubectl and returns what it printed; ClusterError quotes what it complained of."""
    return run(
        binaries.kubectl(), f"--kubeconfig={kubeconfig}", *arguments, given=given, timeout_seconds=timeout_seconds
    )
