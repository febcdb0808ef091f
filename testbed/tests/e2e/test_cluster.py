"""The local cluster does what a real one does: what the other end-to-end tests take for granted."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.cluster import Cluster, ClusterError, build, config, images, node
from testbed.cluster.client import Client
from testbed.cluster.kubectl import kubectl
from testbed.cluster.waiting import wait_until

pytestmark = pytest.mark.cluster

POD_SECONDS = 60
NODE_SECONDS = 120


@dataclass(frozen=True)
class Sandbox:
    """A namespace of its own in which to run Pods."""

    cluster: Cluster
    namespace: str
    image: str
    """By digest, as the operator names images."""

    def kubectl(self, *arguments: str, given: object = None) -> str:
        text = None if given is None else json.dumps(given)
        return kubectl(self.cluster.kubeconfig, f"--namespace={self.namespace}", *arguments, given=text)

    def start(self, name: str, *arguments: str, **spec: Any) -> None:
        """Starts a Pod that runs the probe with these arguments; `container` changes its container."""
        container = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": list(arguments),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        } | spec.pop("container", {})
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"name": name}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
        }
        self.kubectl("create", "-f-", given=pod)

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "pod", name, "-o", "json"))
        return found

    def wait(self, name: str, *phases: str) -> dict[str, Any]:
        wait_until(
            lambda: self.pod(name)["status"]["phase"] in phases,
            POD_SECONDS,
            f"Pod {name} to be {' or '.join(phases)}",
            hint=lambda: self.kubectl("describe", "pod", name),
        )
        return self.pod(name)

    def run(self, name: str, *arguments: str, **spec: Any) -> str:
        """What a Pod that must succeed printed."""
        self.start(name, *arguments, **spec)
        pod = self.wait(name, "Succeeded", "Failed")
        printed = self.kubectl("logs", name)
        assert pod["status"]["phase"] == "Succeeded", f"Pod {name} failed: {printed}"
        return printed


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """The cluster that KUBECONFIG names, or the local one, which is brought up where it is not yet."""
    try:
        return Cluster.connect()
    except ClusterError:
        return Cluster.up()


@pytest.fixture(scope="module")
def probe(cluster: Cluster) -> str:
    if not cluster.local:
        pytest.skip("an existing cluster takes no local image")
    return cluster.import_images(build.programs().probe_archive)[0].by_digest


@pytest.fixture
def sandbox(cluster: Cluster, probe: str) -> Iterator[Sandbox]:
    namespace = f"cluster-test-{uuid.uuid4().hex[:8]}"
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    kubectl(cluster.kubeconfig, "create", "namespace", namespace)
    kubectl(cluster.kubeconfig, "label", "namespace", namespace, restricted)
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: Client(cluster.kubeconfig).exists(account), POD_SECONDS, "the namespace's ServiceAccount")
    yield Sandbox(cluster, namespace, probe)
    kubectl(cluster.kubeconfig, "delete", "namespace", namespace, "--wait=false")


def node_ready(cluster: Cluster, name: str) -> str:
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(cluster.kubeconfig, "get", "node", name, "-o", f"jsonpath={path}")


def test_a_service_is_reached_by_its_name(sandbox: Sandbox) -> None:
    sandbox.start("server", "serve", ":8080", nodeSelector={"kubernetes.io/hostname": "a100"})
    sandbox.kubectl("expose", "pod", "server", "--port=80", "--target-port=8080", "--selector=name=server")
    address = json.loads(sandbox.kubectl("get", "service", "server", "-o", "json"))["spec"]["clusterIP"]
    sandbox.wait("server", "Running")

    resolved = sandbox.run("resolver", "resolve", f"server.{sandbox.namespace}.svc.cluster.local")
    assert resolved.split() == [address]
    short = sandbox.run("client", "get", "http://server/hello", nodeSelector={"kubernetes.io/hostname": "h100"})
    assert short == "you asked for /hello\n"


def test_the_outside_is_out_of_reach_at_once(sandbox: Sandbox) -> None:
    sandbox.start("outsider", "resolve", "example.com")
    assert sandbox.wait("outsider", "Succeeded", "Failed")["status"]["phase"] == "Failed"


def test_a_pod_is_told_of_exactly_the_gpus_it_got(sandbox: Sandbox) -> None:
    two = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    environment = json.loads(sandbox.run("gpus", "environment", nodeSelector=selector, container=two))

    gpus = json.loads(environment["LLMENGINE_STANDIN_GPUS"])
    assert [gpu["index"] for gpu in gpus] == [0, 1]
    assert environment["NVIDIA_VISIBLE_DEVICES"].split(",") == [gpu["uuid"] for gpu in gpus]
    assert all(gpu["uuid"].startswith("GPU-") for gpu in gpus)
    assert {(gpu["name"], gpu["compute_cap"], gpu["memory_total_mib"], gpu["driver_version"]) for gpu in gpus} == {
        ("NVIDIA H100 80GB HBM3", "9.0", 81559, "580.159.04")
    }


def test_more_gpus_than_a_node_has_are_waited_for(sandbox: Sandbox) -> None:
    sandbox.start("greedy", "environment", container={"resources": {"limits": {"nvidia.com/gpu": "9"}}})

    def unschedulable() -> bool:
        conditions = sandbox.pod("greedy")["status"].get("conditions", [])
        return any("Insufficient nvidia.com/gpu" in condition.get("message", "") for condition in conditions)

    wait_until(unschedulable, POD_SECONDS, "the scheduler to say that no node has nine GPUs")


def test_a_privileged_pod_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        sandbox.start("privileged", "environment", container={"securityContext": {"privileged": True}})


def test_a_node_may_change_only_itself(sandbox: Sandbox) -> None:
    credentials = node.load("a100").directory / "kubeconfig"
    with pytest.raises(ClusterError, match="node 'a100' cannot read 'h100', only its own Node object"):
        kubectl(credentials, "annotate", "node", "h100", "llmengine.dev/test=1")
    with pytest.raises(ClusterError, match="is not allowed to modify labels"):
        kubectl(credentials, "label", "node", "a100", "node-restriction.kubernetes.io/test=1")
    with pytest.raises(ClusterError, match="forbidden"):
        kubectl(credentials, f"--namespace={sandbox.namespace}", "get", "secrets")


def test_a_kubelet_answers_nobody_it_does_not_know(sandbox: Sandbox) -> None:
    machine = node.load("a100")
    address = f"{config.Network().cluster_address}:{node.FIRST_KUBELET_PORT + machine.index}"
    # The certificate is not what this is about: `urlopen` would not get as far as the answer.
    unverified = ssl._create_unverified_context()  # noqa: S323
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"https://{address}/pods", context=unverified, timeout=10)
    # The API server may ask, as who asked it may.
    assert kubectl(sandbox.cluster.kubeconfig, "get", "--raw", "/api/v1/nodes/a100/proxy/healthz") == "ok"


def test_a_container_beyond_its_memory_is_killed(sandbox: Sandbox) -> None:
    limited = {"resources": {"limits": {"memory": "64Mi"}}}
    sandbox.start("hungry", "allocate", "256", container=limited)
    status = sandbox.wait("hungry", "Succeeded", "Failed")["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def test_an_image_that_no_node_has_cannot_be_pulled(sandbox: Sandbox) -> None:
    sandbox.start("imageless", "environment", container={"image": "registry.example.com/none:1"})

    def refused() -> bool:
        statuses = sandbox.pod("imageless")["status"].get("containerStatuses", [])
        reasons = [status["state"].get("waiting", {}).get("reason") for status in statuses]
        return reasons in (["ErrImagePull"], ["ImagePullBackOff"])

    wait_until(refused, 15, "the kubelet to say that the image cannot be pulled")


def test_a_shared_volume_is_one_directory_on_every_node(sandbox: Sandbox) -> None:
    directory = sandbox.cluster.create_volume(sandbox.namespace, "store")
    claim_store(sandbox)
    for name in ("a100", "h100"):
        on_node = {"nodeSelector": {"kubernetes.io/hostname": name}}
        sandbox.run(f"writer-{name}", "write", f"/store/{name}", "here", **mounted(), **on_node)

    assert sandbox.cluster.host_root(sandbox.namespace, "store") == directory
    assert sorted(entry.name for entry in directory.iterdir()) == ["a100", "h100"]
    drop_store(sandbox)


def test_a_small_volume_can_be_filled(sandbox: Sandbox) -> None:
    sandbox.cluster.create_volume(sandbox.namespace, "store", size_mib=8)
    claim_store(sandbox)
    sandbox.start("filler", "fill", "/store/file", **mounted())
    sandbox.wait("filler", "Failed")
    assert "no space left on device" in sandbox.kubectl("logs", "filler")
    drop_store(sandbox)


def test_a_node_is_lost_and_comes_back(sandbox: Sandbox) -> None:
    cluster, machine = sandbox.cluster, sandbox.cluster.node("cpu")
    machine.lose()
    assert machine.state == "lost"
    wait_until(lambda: node_ready(cluster, "cpu") == "Unknown", NODE_SECONDS, "the lost node to be missed")

    machine.start()
    on_node = {"nodeSelector": {"kubernetes.io/hostname": "cpu"}}
    wait_until(lambda: node_ready(cluster, "cpu") == "True", NODE_SECONDS, "the node to be back")
    sandbox.run("after", "environment", **on_node)


def test_a_node_that_hangs_is_missed_until_it_goes_on(sandbox: Sandbox) -> None:
    cluster, machine = sandbox.cluster, sandbox.cluster.node("cpu")
    machine.stop()
    assert machine.state == "stopped"
    try:
        wait_until(lambda: node_ready(cluster, "cpu") == "Unknown", NODE_SECONDS, "the hanging node to be missed")
    finally:
        machine.resume()
    wait_until(lambda: node_ready(cluster, "cpu") == "True", NODE_SECONDS, "the node to go on")


def test_the_pause_and_probe_images_carry_full_names() -> None:
    programs = build.programs()
    archives = (programs.pause_archive, programs.probe_archive)
    assert [image.name for path in archives for image in images.read(path)] == [images.PAUSE_IMAGE, images.PROBE_IMAGE]


def claim_store(sandbox: Sandbox) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "store"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    sandbox.kubectl("create", "-f-", given=claim)


def drop_store(sandbox: Sandbox) -> None:
    sandbox.kubectl("delete", "pods", "--all")
    sandbox.cluster.delete_volume(sandbox.namespace, "store")


def mounted() -> dict[str, Any]:
    """The parts of a Pod that mount the claim `store`."""
    return {
        "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}],
        "container": {"volumeMounts": [{"name": "store", "mountPath": "/store"}]},
    }
