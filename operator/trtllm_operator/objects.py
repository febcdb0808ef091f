"""Pieces of Kubernetes objects that builds and servers share."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .api import API_VERSION, GROUP, common
from .api.engineartifact import DEFAULT_GPU_RESOURCE, EngineArtifactSpec, GpuClass

Obj = Mapping[str, Any]

MANAGED = f"{GROUP}/managed"
ENGINE = f"{GROUP}/engine"
TARGET = f"{GROUP}/target"
FRONT = f"{GROUP}/front"
"""Of all objects of an LLMEngine's endpoint."""
REVISION = f"{GROUP}/revision"
ARTIFACT = f"{GROUP}/artifact"
PARENT = f"{GROUP}/parent"
ATTEMPT = f"{GROUP}/attempt"
CHECK = f"{GROUP}/check"
POLICY_HASH = f"{GROUP}/policy-hash"
RETRY = f"{GROUP}/retry"
BEGUN = f"{GROUP}/begun"
IDENTITY = (MANAGED, ENGINE, TARGET, REVISION, FRONT, ARTIFACT, ATTEMPT, CHECK)
"""Labels that tell what an object without a controller was made for."""
JOBS_ACCOUNT = "default"
"""ServiceAccount of the Pods of Jobs: none is named, and admission gives them this one's pull secrets."""
SECRETS, PULL_SECRETS = f"{GROUP}/secrets", f"{GROUP}/pull-secrets"
"""Digests of the versions of the Secrets that a Job depends on, as they were before it was made."""

USER_ID = 65532
SCRATCH, RUNNER = "/scratch", "/opt/llmengine"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MAJOR_LABEL, MINOR_LABEL = "nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"
MEMORY_LABEL, COUNT_LABEL = "nvidia.com/gpu.memory", "nvidia.com/gpu.count"
NO_MATCHING_NODE = "NoMatchingNode"
"""Reason of what waits for a node with its GPU: what nodes that come wake."""
CPU_ARCHITECTURE_LABEL = "kubernetes.io/arch"
GPU_RESOURCE = DEFAULT_GPU_RESOURCE
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"

POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


@dataclass(frozen=True)
class Artifact:
    """An EngineArtifact as it is created: its name is a hash of the inputs in its spec."""

    name: str
    spec: EngineArtifactSpec


RUNNER_PREFIX = "llmengine-runner-"


@dataclass(frozen=True)
class Runner:
    """The runner as a namespace gets it: an immutable ConfigMap named after the content."""

    content: bytes

    @property
    def config_map(self) -> str:
        return f"{RUNNER_PREFIX}{hashlib.sha256(self.content).hexdigest()[:8]}"


def timestamp(now: datetime) -> str:
    """As Kubernetes writes times: RFC 3339 in UTC, whole seconds."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def short_hash(value: Any, digits: int = 8) -> str:
    """Hex digits of the SHA-256 of the canonical JSON of `value`."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:digits]


def sorted_fields(value: Any) -> Any:
    """`value` with the fields of all objects in it sorted, as Go sorts them."""
    if isinstance(value, dict):
        return {name: sorted_fields(value[name]) for name in sorted(value)}
    return [sorted_fields(item) for item in value] if isinstance(value, list | tuple) else value


def owner_reference(owner: Obj) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def gpu_affinity(gpu: GpuClass) -> dict[str, Any]:
    """Required affinity to nodes of exactly this GPU: an engine runs on no other."""
    major, minor = gpu.compute_capability.split(".")
    product_label = PRODUCT_LABEL if gpu.resource == GPU_RESOURCE else f"{gpu.resource}.product"
    wanted = {
        product_label: gpu.product,
        MAJOR_LABEL: major,
        MINOR_LABEL: minor,
        CPU_ARCHITECTURE_LABEL: gpu.cpu_architecture,
    }
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        }
    }


AWAY_FROM_GPUS = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchExpressions": [{"key": PRODUCT_LABEL, "operator": "DoesNotExist"}]},
            }
        ]
    }
}
"""For work that needs no GPU: the hosts of GPUs are left to what does, where there are others."""


def tolerations(placement: common.NodePlacement, *, gpu: bool) -> list[dict[str, Any]]:
    """The user's tolerations and, for a Pod that asks for GPUs, of the taint that GPU nodes usually carry."""
    own = [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}] if gpu else []
    return own + [t.dump() for t in placement.tolerations]


def env(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def runner_config_map(runner: Runner, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": runner.config_map, "namespace": namespace, "labels": {MANAGED: "true"}},
        "immutable": True,
        "binaryData": {"runner.pyz": base64.b64encode(runner.content).decode()},
    }


def label(obj: Obj, key: str) -> str | None:
    value = (obj["metadata"].get("labels") or {}).get(key)
    return None if value is None else str(value)


def annotation(obj: Obj, key: str) -> str | None:
    value = (obj["metadata"].get("annotations") or {}).get(key)
    return None if value is None else str(value)


def condition_true(obj: Obj, type_: str) -> Obj | None:
    """The condition of that type if it is True."""
    conditions: Iterable[Obj] = obj.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type_ and c["status"] == "True"), None)
