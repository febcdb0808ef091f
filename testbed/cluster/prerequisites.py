"""What the machine must have: Debian packages are installed where that is possible, all else is said in one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from testbed.cluster import cgroups
from testbed.cluster.errors import ClusterError
from testbed.cluster.paths import STATE
from testbed.cluster.processes import run
from testbed.progress import PROGRESS

OTHERWISE = "or set KUBECONFIG to use an existing cluster"
PACKAGES = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "runc": "runc", "sysctl": "procps"}
"""Command to the Debian package it is in."""
APT_SECONDS = 600


def ensure_commands(packages: Mapping[str, str]) -> None:
    """Installs the Debian package of every missing command (as root on Debian), or raises ClusterError naming them."""
    missing = sorted({package for command, package in packages.items() if shutil.which(command) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"missing: install {' '.join(missing)} (Debian's names for them), {OTHERWISE}")
    with PROGRESS.step(f"Install {' '.join(missing)}"):
        apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y")
        run(*apt, "update", timeout_seconds=APT_SECONDS)
        run(*apt, "install", "--no-install-recommends", *missing, timeout_seconds=APT_SECONDS)


def check_machine() -> None:
    """Raises ClusterError where nodes cannot run here: no root, no namespaces, no cgroups, no overlay."""
    if os.geteuid() != 0:
        raise ClusterError(f"real nodes need root: run this with sudo, {OTHERWISE}")
    ensure_commands(PACKAGES)
    try:
        run("unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "true")
    except ClusterError as error:
        raise ClusterError(
            f"mount, PID and network namespaces are not allowed here ({error}); use a machine or a "
            f"privileged container, {OTHERWISE}"
        ) from error
    try:
        cgroups.CLUSTER.create()
    except OSError as error:
        raise ClusterError(
            f"cgroups cannot be made here ({error}); use a machine or a privileged container, {OTHERWISE}"
        ) from error
    existing = next(path for path in (STATE, *STATE.parents) if path.exists())
    if run("stat", "--file-system", "--format=%T", existing).strip() == "overlayfs":
        raise ClusterError(
            f"{STATE} is on an overlay file system, on which containerd's overlays cannot lie: "
            "set LLMENGINE_CLUSTER_STATE to a directory on a disk or a volume"
        )


def existing_kubeconfig() -> Path | None:
    """What KUBECONFIG names, or None where it is not set."""
    value = os.environ.get("KUBECONFIG")
    if not value:
        return None
    path = Path(value)
    if not path.is_file():
        raise ClusterError(f"KUBECONFIG names {value}, which is no file")
    return path
