"""The local cluster: up, down and what lies between.

Every function may be called in any state and leads to the one it names.
"""

from __future__ import annotations

import json
import shutil
import socket
import string
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.cluster import build, cgroups, components, config, images, mounts, network, node, prerequisites, volumes
from testbed.cluster.client import Client
from testbed.cluster.errors import ClusterError
from testbed.cluster.kubectl import kubectl
from testbed.cluster.locking import locked
from testbed.cluster.node import LocalNode
from testbed.cluster.paths import PACKAGE, STATE
from testbed.cluster.processes import start, tail
from testbed.cluster.waiting import wait_until
from testbed.progress import PROGRESS

RECORD = STATE / "cluster.json"
KUBECONFIG = STATE / "kubeconfig"
"""The administrator's; the path is stable."""
READY_SECONDS = 120
NODE_SECONDS = 180
COMPONENTS = ("etcd", "apiserver", "controller-manager", "scheduler", "proxy", "dns")


@dataclass(frozen=True)
class Record:
    """What is known of the running cluster."""

    boot_id: str
    programs: str
    network: dict[str, str]
    complete: bool
    """Whether `up` got to its end; a cluster that did not is started anew."""
    created_directories: tuple[str, ...]
    """Made on the machine because the nodes mount over them; removed by `down`."""

    def write(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        STATE.chmod(0o755)
        partial = RECORD.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.rename(RECORD)

    @property
    def addresses(self) -> config.Network:
        return config.Network.model_validate(self.network)


def is_up() -> bool:
    """Whether a cluster was brought up since the machine started, and its API server runs."""
    record = _record()
    return record is not None and record.complete and component_group("apiserver").populated


def up(wanted: config.Cluster) -> None:
    """Leads to all the wanted nodes being ready: those that were stopped go on, those that were lost come back."""
    prerequisites.check_machine()
    programs = build.programs()
    with locked("cluster"):
        record = _record()
        if record is None or not record.complete or not network.exists():
            _remove()
            record = _create(wanted, programs)
        elif record.addresses != wanted.network:
            raise ClusterError("the cluster that is up has other addresses than the nodes file: take it down first")
        elif record.programs != str(programs.directory):
            programs = build.Programs(Path(record.programs))
            print("The cluster that is up was built from other sources; to use the new ones, take it down first.")
        plane = _plane(record.addresses)
        with PROGRESS.step("Start the control plane"):
            _start_control_plane(plane, record.addresses, wanted, programs)
        with PROGRESS.step(f"Start {len(wanted.nodes)} nodes"):
            known = {each.name: each for each in node.load_all()}
            nodes = []
            for spec in wanted.nodes:
                each = LocalNode(spec, known[spec.name].index if spec.name in known else _next_index())
                if not each.running:
                    each.write(plane, record.addresses, programs)
                nodes.append(each)
            _bring_up(nodes, plane, programs)
            _wait_for_services(record.addresses)
        Record(**(asdict(record) | {"complete": True})).write()


def down() -> None:
    """Leads to no process, mount, cgroup, link or file of the cluster. Build outputs stay in the cache."""
    with locked("cluster"):
        _remove()


def add_node(spec: config.Node) -> None:
    """Adds a node to the running cluster and waits until it is ready; a node that was lost comes back as it was."""
    with locked("cluster"):
        record = _require_up()
        plane = _plane(record.addresses)
        known = {each.name: each for each in node.load_all()}
        if spec.name in known and known[spec.name].running:
            raise ClusterError(f"node {spec.name} is {known[spec.name].state}")
        added = LocalNode(spec, known[spec.name].index if spec.name in known else _next_index())
        programs = build.Programs(Path(record.programs))
        added.write(plane, record.addresses, programs)
        with PROGRESS.step(f"Start node {spec.name}"):
            _bring_up([added], plane, programs)


def import_images(archives: list[Path], nodes: list[str] | None = None) -> list[images.Image]:
    """Imports OCI archives into the named nodes, by default into all that run. Returns each image's name and digest."""
    record = _require_up()
    programs = build.Programs(Path(record.programs))
    targets = [node.load(name) for name in nodes] if nodes else [each for each in node.load_all() if each.running]
    found = [image for archive in archives for image in images.read(archive)]
    with PROGRESS.step(f"Import {', '.join(image.name for image in found)} into {len(targets)} nodes"):

        def import_into(target: LocalNode) -> None:
            for archive in archives:
                target.import_archive(programs, archive)

        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(import_into, targets))
    return found


def status() -> dict[str, str]:
    """Every component and node to `running`, `stopped` or `lost`; empty where there is no cluster."""
    if _record() is None:
        return {}
    found = {name: "running" if component_group(name).populated else "lost" for name in COMPONENTS}
    return found | {f"node {each.name}": each.state for each in node.load_all()}


def _create(wanted: config.Cluster, programs: build.Programs) -> Record:
    missing = tuple(path for path in node.MOUNT_POINTS if not Path(path).exists())
    record = Record(
        boot_id=_boot_id(),
        programs=str(programs.directory),
        network=wanted.network.model_dump(mode="json"),
        complete=False,
        created_directories=missing,
    )
    record.write()
    for path in missing:
        Path(path).mkdir(parents=True)
    plane = _plane(wanted.network)
    components.write_credentials(plane)
    KUBECONFIG.unlink(missing_ok=True)
    KUBECONFIG.symlink_to(plane.kubeconfig("admin"))
    network.create(wanted.network)
    volumes.prepare()
    return record


def _start_control_plane(
    plane: components.ControlPlane, addresses: config.Network, wanted: config.Cluster, programs: build.Programs
) -> None:
    client = Client(KUBECONFIG)
    _start_component("etcd", components.etcd_flags(plane), programs)
    _start_component("apiserver", components.apiserver_flags(plane), programs)
    _wait(client.ready, "the API server", "etcd", "apiserver")
    _start_component("controller-manager", components.controller_manager_flags(plane), programs)
    _start_component("scheduler", components.scheduler_flags(plane), programs)
    base = string.Template((PACKAGE / "base.yaml").read_text()).substitute(
        DNS_SERVICE_ADDRESS=addresses.dns_service_address,
        CLUSTER_ADDRESS=addresses.cluster_address,
    )
    kubectl(KUBECONFIG, "apply", "--validate=false", "-f", "-", given=base)
    (plane.directory / "Corefile").write_text(components.corefile(plane))
    _start_component("dns", ["-conf", str(plane.directory / "Corefile")], programs)
    first = wanted.nodes[0].name if wanted.nodes else "none"
    _start_component("proxy", components.proxy_flags(plane, node=first, pods=str(addresses.pods)), programs)


def _start_component(name: str, flags: list[str], programs: build.Programs) -> None:
    group = component_group(name)
    if group.populated:
        return
    command = network.inside(programs.kube, name, *flags)
    if name == "proxy":
        # It ends itself when its node is removed or gets another address, and is meant to be started again.
        command = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "proxy", *command]
    start(command, group, STATE / f"{name}.log")


def _bring_up(nodes: list[LocalNode], plane: components.ControlPlane, programs: build.Programs) -> None:
    """Starts or resumes the nodes, gives them the sandbox image and waits until the scheduler can use them."""
    for each in nodes:
        if each.state == "stopped":
            each.group.freeze(False)
        elif not (each.running and each.came_up):
            each.group.kill()
            each.start(programs, plane.address)
    for each in nodes:
        each.import_archive(programs, programs.pause_archive)
    client = Client(KUBECONFIG)
    for each in nodes:
        _wait_for_node(client, each)
        each.mark_ready()


def _wait_for_node(client: Client, each: LocalNode) -> None:
    log = each.directory / "kubelet.log"
    wait_until(
        lambda: each.running and _ready(client, each),
        NODE_SECONDS,
        f"node {each.name} to be ready",
        hint=lambda: f"({log} ends: {tail(log)})",
    )


def _ready(client: Client, each: LocalNode) -> bool:
    found = client.get(f"/api/v1/nodes/{each.name}")
    if found is None:
        return False
    conditions = {item["type"]: item["status"] for item in found["status"].get("conditions", [])}
    allocatable = found["status"].get("allocatable", {})
    offered = {resource: len(devices) for resource, devices in each.devices.items()}
    return conditions.get("Ready") == "True" and all(
        int(allocatable.get(resource, "0")) == count for resource, count in offered.items()
    )


def _wait_for_services(addresses: config.Network) -> None:
    """Until then Pods are refused, and a Service's address answers `No route to host`."""

    def reachable() -> bool:
        try:
            socket.create_connection((addresses.kubernetes_service_address, 443), timeout=1).close()
        except OSError:
            return False
        return True

    def resolving() -> bool:
        url = f"http://{addresses.cluster_address}:{components.DNS_READY_PORT}/ready"
        try:
            with urllib.request.urlopen(url, timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    account = "/api/v1/namespaces/default/serviceaccounts/default"
    _wait(lambda: Client(KUBECONFIG).exists(account), "the default ServiceAccount", "controller-manager")
    _wait(reachable, "the API server's Service", "proxy")
    _wait(resolving, "DNS", "dns")


def _wait(condition: Callable[[], bool], what: str, *needed: str) -> None:
    """Waits for a condition that the named components bring about; says the last words of one that has ended."""

    def holds() -> bool:
        for name in needed:
            if not component_group(name).populated:
                raise ClusterError(f"{name} has ended; the end of its log:\n{tail(STATE / f'{name}.log')}")
        return condition()

    wait_until(holds, READY_SECONDS, what)


def _remove() -> None:
    """Complete from any state: what is to go is found in the kernel, not in a list of what was started."""
    cgroups.CLUSTER.kill()
    cgroups.CLUSTER.remove()
    network.delete()
    mounts.unmount_below(STATE)
    content = json.loads(RECORD.read_text()) if RECORD.is_file() else {"created_directories": []}
    for path in reversed(content["created_directories"]):
        try:
            Path(path).rmdir()
        except OSError:
            continue  # used by something else since
    if STATE.is_dir():
        shutil.rmtree(STATE)


def component_group(component: str) -> cgroups.Group:
    """The group of one of `COMPONENTS`."""
    return cgroups.CONTROL_PLANE.child(component)


def _plane(addresses: config.Network) -> components.ControlPlane:
    return components.ControlPlane(
        directory=STATE,
        address=addresses.cluster_address,
        secure_port=6443,
        etcd_client_port=2379,
        etcd_peer_port=2380,
        service_cidr=str(addresses.services),
        service_address=addresses.kubernetes_service_address,
    )


def _next_index() -> int:
    return max((each.index for each in node.load_all()), default=-1) + 1


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _record() -> Record | None:
    """The record, unless it is of before the machine's last start."""
    try:
        content = json.loads(RECORD.read_text())
    except FileNotFoundError:
        return None
    record = Record(**(content | {"created_directories": tuple(content["created_directories"])}))
    return record if record.boot_id == _boot_id() else None


def _require_up() -> Record:
    record = _record()
    if record is None or not record.complete:
        raise ClusterError("the local cluster is not up: run `make cluster-up`")
    return record
