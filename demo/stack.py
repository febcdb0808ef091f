"""What stands before an LLMEngine can be applied: a cluster, the images on its nodes, the operator, a hub, a store.

The demo, the end-to-end tests and the benchmarks all use it.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from images.progress import Progress

from .kubectl import Kubectl, Obj, wait_for

ROOT = Path(__file__).parent.parent
OPERATOR_NAMESPACE = "llmengine-system"
OPERATOR = "llmengine-operator"
HUB_NAMESPACE = "hub-standin"
HUB_PORT = 8080
REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
CLAIM = "engines"
TOKEN_SECRET = "hub-token"  # noqa: S105 (a name)
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


class StackError(RuntimeError):
    """A tool of the stack failed; it has already said why."""


@dataclass(frozen=True)
class Image:
    repository: str
    digest: str
    archive: Path

    @property
    def reference(self) -> str:
        """By digest: what an engine's key needs, and what a node holds under exactly this name."""
        return f"{self.repository}@{self.digest}"


@dataclass(frozen=True)
class Stack:
    kubeconfig: Path
    images: dict[str, Image]
    store_root: Path
    """Directory on this machine that stands for shared storage on every node."""
    progress: Progress

    def kubectl(self, namespace: str) -> Kubectl:
        return Kubectl(self.kubeconfig, namespace)


def run(*command: str, quiet: bool = False) -> str:
    """A command of this repository's tooling; its progress goes to the terminal, its output is returned."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None, text=True, check=False
    )
    if done.returncode:
        if quiet:
            sys.stderr.write(done.stderr)
        raise StackError(f"{' '.join(command[:4])} failed with exit code {done.returncode}")
    return done.stdout


def up(progress: Progress) -> Stack:
    """Builds what is missing, brings the cluster up and its images to the nodes, installs operator and hub.

    What is there already is left as it is, so that a second call takes seconds.
    """
    python = sys.executable
    with ThreadPoolExecutor(2) as pool:
        building = pool.submit(run, python, "-m", "images", "build")
        with progress.step("cluster"):
            run(python, "-m", "tests.cluster", "up")
        with progress.step("images"):
            building.result()
    listed: dict[str, dict[str, Any]] = json.loads(run(python, "-m", "images", "list"))
    images = {
        name: Image(found["reference"].rpartition(":")[0], found["digest"], Path(found["archive"]))
        for name, found in listed.items()
    }
    with progress.step("images onto the nodes"):
        run(python, "-m", "tests.cluster", "import", *(str(image.archive) for image in images.values()))
    where = json.loads(run(python, "-m", "tests.cluster", "status", "--json"))
    stack = Stack(Path(where["kubeconfig"]), images, Path(where["storage"]), progress)
    with progress.step("operator, installed with its Helm chart"):
        install_operator(stack, helm=where["helm"])
    with progress.step("hub stand-in with SmolLM2-135M-Instruct"):
        install_hub(stack)
    return stack


def install_operator(stack: Stack, *, helm: str) -> None:
    operator, toolchain = stack.images["operator"], stack.images["toolchain-standin"]
    values = {
        "image": {"repository": operator.repository, "digest": operator.digest},
        "toolchainImages": {"1.2.1": toolchain.reference},
        "hubEndpoint": f"http://hub.{HUB_NAMESPACE}.svc.cluster.local:{HUB_PORT}",
        "artifactGraceSeconds": int(os.environ.get("LLMENGINE_GRACE_SECONDS", "30")),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        run(
            *(helm, "upgrade", "--install", OPERATOR, str(ROOT / "charts" / OPERATOR)),
            *("--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--values", file.name),
            *("--kubeconfig", str(stack.kubeconfig), "--wait", "--timeout", "3m"),
            quiet=True,
        )


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
    kubectl.apply(*hub_objects(stack.images["hub"].reference))
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


def make_namespace(stack: Stack, name: str) -> Kubectl:
    """A namespace with a shared store (claim `engines`) and the hub's token, enforcing restricted Pods."""
    hub = stack.kubectl(HUB_NAMESPACE).get("secret", "tokens")
    volume = f"{name}-{CLAIM}"
    directory = stack.store_root / volume
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o777)  # a hostPath volume knows no fsGroup
    kubectl = stack.kubectl(name)
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(directory)},
                "claimRef": {"namespace": name, "name": CLAIM},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": name},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": {"storage": "100Gi"}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": TOKEN_SECRET, "namespace": name},
            "data": {"token": hub["data"]["token"]},
        },
    )

    def account() -> str | None:
        return None if kubectl.find("serviceaccount", "default") else "no default ServiceAccount yet"

    wait_for(f"namespace {name}", account, limit_seconds=30)
    return kubectl
