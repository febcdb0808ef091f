"""What stands for shared storage: directories of the machine that every node sees, as PersistentVolumes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from testbed.cluster.client import Client
from testbed.cluster.errors import ClusterError
from testbed.cluster.kubectl import kubectl
from testbed.cluster.mounts import mounted, unmount_below
from testbed.cluster.paths import STATE
from testbed.cluster.processes import run

DIRECTORY = STATE / "shared"
CAPACITY_MIB = 100 * 1024


def prepare() -> None:
    """Makes the directory a mount that hands later mounts on to the nodes."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    if not mounted(DIRECTORY):
        run("mount", "--bind", DIRECTORY, DIRECTORY)
        run("mount", "--make-shared", DIRECTORY)


def create(kubeconfig: Path, namespace: str, claim: str, size_mib: int | None = None) -> Path:
    """Makes an empty PersistentVolume for exactly this claim; the claim itself is the user's to make.

    The claim must ask for no storage class (`storageClassName: ""`). With `size_mib` the volume is a file system of
    that size, in memory, so that it can be filled. Returns the directory on this machine.
    """
    delete(kubeconfig, namespace, claim)
    directory = DIRECTORY / f"{namespace}-{claim}"
    directory.mkdir()
    if size_mib is not None:
        run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "llmengine", directory)
    # A hostPath volume knows no fsGroup, so every user may write.
    directory.chmod(0o777)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": directory.name},
        "spec": {
            "capacity": {"storage": f"{size_mib or CAPACITY_MIB}Mi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": str(directory), "type": "Directory"},
        },
    }
    kubectl(kubeconfig, "create", "-f", "-", given=json.dumps(volume))
    return directory


def delete(kubeconfig: Path, namespace: str, claim: str) -> None:
    """Removes the volume made for this claim, the claim and what is in it, or does nothing where there is none.

    Kubernetes keeps a claim for as long as a Pod names it, even one that has ended: delete those first.
    """
    name = f"{namespace}-{claim}"
    gone = ("--ignore-not-found", "--timeout=30s")
    if kubectl(kubeconfig, "get", "persistentvolume", name, "--ignore-not-found", "-o", "name"):
        kubectl(kubeconfig, "delete", f"--namespace={namespace}", "persistentvolumeclaim", claim, *gone)
        kubectl(kubeconfig, "delete", "persistentvolume", name, *gone)
    directory = DIRECTORY / name
    unmount_below(directory)
    if directory.is_dir():
        shutil.rmtree(directory)


def directory_of(kubeconfig: Path, namespace: str, claim: str) -> Path:
    """The directory on this machine behind a bound claim."""
    client = Client(kubeconfig)
    found = client.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    name = (found or {}).get("spec", {}).get("volumeName")
    if not name:
        raise ClusterError(f"claim {namespace}/{claim} {'is not bound' if found else 'does not exist'}")
    volume = client.get(f"/api/v1/persistentvolumes/{name}")
    path = volume["spec"].get("hostPath", {}).get("path")
    if path is None:
        raise ClusterError(f"claim {namespace}/{claim} is not on this machine: its volume {name} is no hostPath")
    return Path(path)
