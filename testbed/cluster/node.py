"""One node: its files and its processes."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.cluster import cgroups, components, gpus, images, network, pki
from testbed.cluster.build import Programs
from testbed.cluster.config import Network, Node
from testbed.cluster.errors import ClusterError
from testbed.cluster.paths import PACKAGE, STATE
from testbed.cluster.processes import start
from testbed.cluster.waiting import wait_until

DIRECTORY = STATE / "nodes"
OWN_DIRECTORIES = ("kubelet", "containerd", "run", "pods", "containers", "netns", "cni")
# What node-init.sh mounts over, which must exist.
MOUNT_POINTS = (
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/run/containerd",
    "/var/log/pods",
    "/var/log/containers",
    "/run/netns",
)
FIRST_KUBELET_PORT = 10250
MAX_PODS = 500
CONTAINERD_SECONDS = 60
CONTAINERD = f"""
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{images.PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE, as in some sandboxes, runc may not lower oom_score_adj and dies of it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["%(cni)s"]
    conf_dir = "%(configuration)s"
"""


@dataclass(frozen=True)
class LocalNode:
    """A node of the local cluster; `index` decides its kubelet's port, as all nodes have one address."""

    spec: Node
    index: int

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def directory(self) -> Path:
        return DIRECTORY / self.name

    @property
    def group(self) -> cgroups.Group:
        return cgroups.NODES.child(self.name)

    @property
    def containerd_socket(self) -> Path:
        return self.directory / "run" / "containerd.sock"

    @property
    def devices(self) -> dict[str, list[dict[str, Any]]]:
        """What its device plugin offers, by resource."""
        return gpus.devices(self.spec)

    @property
    def running(self) -> bool:
        return self.group.populated

    @property
    def came_up(self) -> bool:
        """Whether it has been ready since it was last started: one left by an interrupted start may end by itself."""
        return self._ready_mark.exists()

    def mark_ready(self) -> None:
        self._ready_mark.touch()

    @property
    def _ready_mark(self) -> Path:
        return self.directory / "ready"

    @property
    def state(self) -> str:
        """running, stopped (its processes are frozen) or lost (it has none)."""
        if not self.running:
            return "lost"
        return "stopped" if self.group.frozen else "running"

    def write(self, plane: components.ControlPlane, addresses: Network, programs: Programs) -> None:
        """Writes everything the node reads when it starts."""
        for name in OWN_DIRECTORIES:
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        files = {
            "containerd.toml": CONTAINERD % {"cni": programs.cni, "configuration": self.directory / "cni"},
            "kubelet.yaml": yaml.safe_dump(kubelet_configuration(self, plane, addresses), sort_keys=False),
            "resolv.conf": f"nameserver {addresses.cluster_address}\n",
            "cni/10-pods.conflist": json.dumps(cni_configuration(addresses)),
        }
        if self.spec.gpu:
            files["devices.json"] = json.dumps(self.devices)
        # Last, so that a node of which only a part was written is not found.
        files["node.json"] = json.dumps({"index": self.index, "spec": self.spec.model_dump(mode="json")})
        authority = pki.Authority.load(plane.pki, "ca")
        user = f"system:node:{self.name}"
        client = authority.issue(user, organizations=("system:nodes",))
        config = pki.kubeconfig(plane.url, authority, user, client)
        pki.write_secret(self.directory / "kubeconfig", config.encode())
        serving = authority.issue(
            user, organizations=("system:nodes",), dns_names=(self.name,), addresses=(plane.address,)
        )
        serving.write(self.directory, "kubelet")
        for name, content in files.items():
            (self.directory / name).write_text(content)

    def start(self, programs: Programs, address: str) -> None:
        """Starts the node's processes, as a machine that was switched on."""
        self._ready_mark.unlink(missing_ok=True)
        # A machine's /run is empty when it starts.
        for name in ("run", "netns"):
            shutil.rmtree(self.directory / name)
            (self.directory / name).mkdir()
        self.group.create()
        namespaces = ("--mount", "--propagation=slave", "--pid", "--fork", "--mount-proc", "--kill-child")
        start(
            network.inside(
                "unshare",
                *namespaces,
                "bash",
                PACKAGE / "node-init.sh",
                self.directory,
                programs.directory,
                *kubelet_flags(self, address),
            ),
            # A v2 group that hands controllers on to Pods may hold no process itself.
            self.group.child("system"),
            self.directory / "init.log",
        )

    def import_archive(self, programs: Programs, archive: Path) -> list[images.Image]:
        """Imports an OCI archive as soon as containerd answers."""

        def answering() -> bool:
            if not self.running:
                raise ClusterError(f"node {self.name} has ended; its logs are in {self.directory}")
            return self.containerd_socket.is_socket()

        wait_until(answering, CONTAINERD_SECONDS, f"containerd of node {self.name}")
        return images.import_archive(programs.ctr, self.containerd_socket, archive)


def load(name: str) -> LocalNode:
    """The node of this name; ClusterError names those there are."""
    path = DIRECTORY / name / "node.json"
    if not path.is_file():
        known = ", ".join(node.name for node in load_all()) or "no node"
        raise ClusterError(f"there is no node {name}: there is {known}")
    content = json.loads(path.read_text())
    return LocalNode(Node.model_validate(content["spec"]), content["index"])


def load_all() -> list[LocalNode]:
    """Every node that was added, running or not, in that order."""
    nodes = [load(path.parent.name) for path in DIRECTORY.glob("*/node.json")]
    return sorted(nodes, key=lambda node: node.index)


def kubelet_flags(node: LocalNode, address: str) -> list[str]:
    labels = dict(node.spec.labels)
    if node.spec.gpu:
        labels = gpus.labels(node.spec.gpu) | labels
    return [
        f"--config={node.directory / 'kubelet.yaml'}",
        f"--kubeconfig={node.directory / 'kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={address}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in sorted(labels.items()))}",
    ]


def kubelet_configuration(node: LocalNode, plane: components.ControlPlane, addresses: Network) -> dict[str, object]:
    reserved: dict[str, str] = {}
    if node.spec.allocatable_memory_mib is not None:
        total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        if node.spec.allocatable_memory_mib > total_mib:
            raise ClusterError(
                f"node {node.name} is to offer {node.spec.allocatable_memory_mib} MiB of memory; "
                f"this machine has {total_mib} MiB"
            )
        reserved = {"memory": f"{total_mib - node.spec.allocatable_memory_mib}Mi"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plane.address,
        "port": FIRST_KUBELET_PORT + node.index,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(node.directory / "kubelet.crt"),
        "tlsPrivateKeyFile": str(node.directory / "kubelet.key"),
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.group.path}",
        "enforceNodeAllocatable": [],
        "systemReserved": reserved,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [addresses.dns_service_address],
        "clusterDomain": "cluster.local",
        # The machine's own resolver is out of reach of Pods.
        "resolvConf": "",
        "maxPods": MAX_PODS,
        "registerWithTaints": [taint.model_dump() for taint in node.spec.taints],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 20,
        "podLogsDir": "/var/log/pods",
        "serializeImagePulls": False,
    }


def cni_configuration(addresses: Network) -> dict[str, object]:
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": network.BRIDGE,
                "isDefaultGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(STATE / "addresses"),
                    "ranges": [[{"subnet": str(addresses.pods)}]],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "backend": "nftables"},
        ],
    }
