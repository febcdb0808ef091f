"""What stands before an LLMEngine can be applied: a cluster, the images on its nodes, the operator, a hub, a store.

The demo, the end-to-end tests and the benchmarks all use it.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.cluster import Cluster
from testbed.cluster.build import programs
from testbed.cluster.processes import run
from testbed.images.build import build_all, select
from testbed.images.cache import BuiltImage, Cache, cache_directory
from testbed.progress import PROGRESS
from trtllm_operator.objects import CONTAINER_SECURITY

from .kubectl import Kubectl, Obj, wait_for

ROOT = Path(__file__).parent.parent
OPERATOR_NAMESPACE = "llmengine-system"
OPERATOR = "llmengine-operator"
HUB_NAMESPACE = "hub-standin"
HUB_PORT = 8080
REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
CLAIM = "engines"
GRACE_SECONDS = 30
"""Short here, so that the tests see artifacts go; the chart's default is an hour."""
TOKEN_SECRET = "hub-token"  # noqa: S105 (a name)
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}


@dataclass(frozen=True)
class Stack:
    cluster: Cluster
    images: dict[str, BuiltImage]

    def kubectl(self, namespace: str) -> Kubectl:
        return Kubectl(self.cluster.kubeconfig, namespace)


def reference(image: BuiltImage) -> str:
    """By digest: what an engine's key needs, and what a node holds under exactly this name."""
    return f"{repository(image)}@{image.digest}"


def repository(image: BuiltImage) -> str:
    return image.reference.rpartition(":")[0]


def up() -> Stack:
    """Builds what is missing, brings the cluster up and its images to the nodes, installs operator and hub.

    What is there already is left as it is, so that a second call takes seconds.
    """
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_all, Cache(cache_directory().resolve()), select([]), PROGRESS)
        cluster = Cluster.up()
        images = building.result()
    with PROGRESS.step("images onto the nodes"):
        cluster.import_images(*(Path(image.archive) for image in images.values()))
    stack = Stack(cluster, images)
    with PROGRESS.step("operator, installed with its Helm chart"):
        install_operator(stack)
    with PROGRESS.step("hub stand-in with SmolLM2-135M-Instruct"):
        install_hub(stack)
    return stack


def install_operator(stack: Stack, **overrides: Any) -> None:
    """`helm upgrade --install`, waiting until the operator is ready. `overrides` are values of the chart."""
    operator = stack.images["operator"]
    values = {
        "image": {"repository": repository(operator), "digest": operator.digest},
        "toolchainImages": {"1.2.1": reference(stack.images["toolchain-standin"])},
        "hubEndpoint": f"http://hub.{HUB_NAMESPACE}.svc.cluster.local:{HUB_PORT}",
        "artifactGraceSeconds": GRACE_SECONDS,
        **overrides,
    }
    where = ("--namespace", OPERATOR_NAMESPACE, "--kubeconfig", stack.cluster.kubeconfig)
    helm = programs().helm
    releases = json.loads(run(helm, "list", "--output", "json", *where))
    if any(r["name"] == OPERATOR and r["status"].startswith("pending-") for r in releases):
        # An installation was killed half-way, and helm would refuse to go on. The chart keeps its CRDs.
        run(helm, "uninstall", OPERATOR, "--wait", *where, timeout_seconds=120)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        run(
            *(helm, "upgrade", "--install", OPERATOR, ROOT / "charts" / OPERATOR, *where),
            *("--create-namespace", "--values", file.name, "--wait", "--timeout", "3m"),
            timeout_seconds=200,
        )


def operator_metrics(stack: Stack) -> dict[str, float]:
    """What the operator says at /metrics, by name with labels."""
    kubectl = stack.kubectl(OPERATOR_NAMESPACE)
    pods = kubectl.items("pods", "-l", f"app.kubernetes.io/name={OPERATOR}", "--field-selector=status.phase=Running")
    (pod,) = [p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]]
    text = kubectl("get", "--raw", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:8080/proxy/metrics")
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def install_hub(stack: Stack) -> None:
    """The hub with one repository, gated: reading its files takes the token that `make_namespace` hands out."""
    kubectl = stack.kubectl(HUB_NAMESPACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB_NAMESPACE}})
    if kubectl.find("secret", "tokens") is None:
        token = f"hf_{secrets.token_urlsafe(24)}"
        tokens = json.dumps({token: {"name": "demo", "repositories": [REPOSITORY]}})
        kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "tokens"},
                "stringData": {"tokens.json": tokens, "token": token},
            }
        )
    kubectl.apply(*hub_objects(reference(stack.images["hub"])))
    kubectl("rollout", "status", "deployment/hub", "--timeout=120s", timeout_seconds=130)


def hub_objects(image: str) -> tuple[Obj, Obj]:
    labels = {"app": "hub"}
    container = {
        "name": "hub",
        "image": image,
        "ports": [{"name": "http", "containerPort": HUB_PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "tokens", "mountPath": "/etc/hub", "readOnly": True}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "tokens", "secret": {"secretName": "tokens"}}],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "hub"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hub"},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": HUB_PORT, "targetPort": "http"}]},
    }
    return deployment, service


def make_namespace(stack: Stack, name: str, *, store_size_mib: int | None = None) -> Kubectl:
    """A namespace with an empty shared store (claim `engines`) and the hub's token, enforcing restricted Pods."""
    hub = stack.kubectl(HUB_NAMESPACE).get("secret", "tokens")
    kubectl = stack.kubectl(name)
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
    )
    if kubectl.find("persistentvolumeclaim", CLAIM) is None:
        stack.cluster.create_volume(name, CLAIM, store_size_mib)
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "resources": {"requests": {"storage": f"{store_size_mib or 10_240}Mi"}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": TOKEN_SECRET},
            "data": {"token": hub["data"]["token"]},
        },
    )

    def account() -> str | None:
        return None if kubectl.find("serviceaccount", "default") else "no default ServiceAccount yet"

    wait_for(f"namespace {name}", account, limit_seconds=30)
    return kubectl


def remove_namespace(stack: Stack, name: str) -> None:
    """The namespace with all in it, and its store.

    The servers go first: of a namespace whose Pods may take long to end, its controller looks again only after
    half of that time.
    """
    kubectl = stack.kubectl(name)
    if kubectl.find("namespace", name) is not None:
        kubectl("delete", "llmengines", "--all", "--timeout=60s", timeout_seconds=70)

        def servers() -> str | None:
            pods = kubectl.items("pods", "-l", "llmengine.dev/revision")
            return f"{len(pods)} servers left" if pods else None

        wait_for(f"the servers of namespace {name} to end", servers, limit_seconds=200)
    kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", timeout_seconds=190)
    stack.cluster.delete_volume(name, CLAIM)
