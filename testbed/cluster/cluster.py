"""The cluster as tests and the demo see it: the local one, or an existing one that KUBECONFIG names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.cluster import config, images, local, node, volumes
from testbed.cluster.errors import ClusterError
from testbed.cluster.prerequisites import existing_kubeconfig


@dataclass(frozen=True)
class Cluster:
    """`Cluster.connect()` in a test, `Cluster.up()` to have a local one."""

    kubeconfig: Path
    local: bool
    """Whether this is the local cluster: an existing one takes no images, loses no nodes and shows no volumes."""

    @classmethod
    def connect(cls) -> Cluster:
        """The cluster that KUBECONFIG names, or the local one that is up."""
        existing = existing_kubeconfig()
        if existing is not None and existing.resolve() != local.KUBECONFIG.resolve():
            return cls(existing, local=False)
        if not local.is_up():
            raise ClusterError("no cluster: run `make cluster-up`, or set KUBECONFIG to use an existing one")
        return cls(local.KUBECONFIG, local=True)

    @classmethod
    def up(cls, nodes_file: Path = config.DEFAULT_NODES_FILE) -> Cluster:
        """Brings the local cluster up with the nodes of a file, whatever state it is in."""
        local.up(config.load(nodes_file))
        return cls(local.KUBECONFIG, local=True)

    def down(self) -> None:
        """Takes the local cluster down and removes every trace of it."""
        self._require_local("take it down")
        local.down()

    def node(self, name: str) -> Node:
        self._require_local("handle its machines")
        return Node(name)

    def add_node(self, spec: config.Node) -> Node:
        """Adds a node while the cluster runs and waits until it is ready."""
        self._require_local("add a node")
        local.add_node(spec)
        return Node(spec.name)

    def import_images(self, *archives: Path, nodes: list[str] | None = None) -> list[images.Image]:
        """Gives OCI archives to the nodes (by default all): Pods name them by tag or by `Image.by_digest`."""
        self._require_local("import images")
        return local.import_images(list(archives), nodes)

    def create_volume(self, namespace: str, claim: str, size_mib: int | None = None) -> Path:
        """An empty shared volume for one claim (`storageClassName: ""`), of `size_mib` if it is to be filled."""
        self._require_local("make a shared directory")
        return volumes.create(self.kubeconfig, namespace, claim, size_mib)

    def delete_volume(self, namespace: str, claim: str) -> None:
        self._require_local("remove a shared directory")
        volumes.delete(self.kubeconfig, namespace, claim)

    def host_root(self, namespace: str, claim: str) -> Path:
        """The directory on this machine behind a bound claim."""
        self._require_local("show a volume's directory")
        return volumes.directory_of(self.kubeconfig, namespace, claim)

    def _require_local(self, what: str) -> None:
        if not self.local:
            raise ClusterError(f"{self.kubeconfig} is an existing cluster: to {what}, unset KUBECONFIG")


@dataclass(frozen=True)
class Node:
    """A machine of the local cluster."""

    name: str

    @property
    def state(self) -> str:
        """running, stopped or lost."""
        return node.load(self.name).state

    def lose(self) -> None:
        """Ends everything on it at once, as a power cut would. Its Node object stays and becomes NotReady."""
        node.load(self.name).group.kill()

    def stop(self) -> None:
        """Freezes everything on it, as a machine that hangs."""
        machine = node.load(self.name)
        if not machine.running:
            raise ClusterError(f"node {self.name} is lost, so it cannot be stopped")
        machine.group.freeze()

    def resume(self) -> None:
        """Lets it go on after `stop`."""
        node.load(self.name).group.freeze(False)

    def start(self) -> None:
        """Switches it on again after `lose`, and waits until it is ready."""
        local.add_node(node.load(self.name).spec)
