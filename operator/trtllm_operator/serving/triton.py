"""Triton's Pod template, Deployment and Service for one target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api.llmengine import Serving
from ..artifacts.chain import OVERHEAD_BYTES
from ..artifacts.diagnosis import SERVER
from ..artifacts.job_resources import SHARED_MEMORY_BYTES, mebibytes
from ..artifacts.jobs import step_container
from ..artifacts.placement import quantity
from ..objects import (
    CONTAINER_SECURITY,
    ENGINE,
    MANAGED,
    POD_SECURITY,
    REVISION,
    SCRATCH,
    TARGET,
    Artifact,
    Obj,
    env,
    gpu_affinity,
    owner_reference,
    tolerations,
)
from ..operator_config import OperatorConfig
from ..storage import Access, step_mounts, volumes, work_mounts
from .repository import FILL_TEMPLATE, MODEL_NAME, TEMPLATES
from .revision import Revision

HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
DRAIN_SLEEP_SECONDS = 5
"""Between leaving the Service and SIGTERM: meanwhile routes to the Pod go, so no request meets a closed port."""
EXIT_TIMEOUT_SECONDS = 120
"""How long Triton lets running requests end."""
LOAD_BYTES_PER_SECOND = 100 << 20
"""Half of what a slow network volume gives: the start-up budget is twice the time that loading takes there."""
SMALLEST_STARTUP_SECONDS, BEFORE_LOADING_SECONDS = 600, 120
"""The start-up budget at least, and what is added to the time of loading: verification, the tokenizer, the runtime."""
STARTUP_PERIOD_SECONDS = 2
SMALLEST_PROGRESS_SECONDS, BEFORE_STARTUP_SECONDS = 3600, 1800
"""A rollout's deadline at least, and how far it lies beyond the start-up budget: a node, an image, a bucket's files."""
PYTHON_INSTANCE_BYTES = 64 << 20
"""Of /dev/shm for one instance of a Python model, the region it asks for (server#6195: 128 MiB were enough for two)."""
SWITCHED_AT = "llmengine.dev/switched-at"


@dataclass(frozen=True)
class Server:
    """What a server serves, and how."""

    labels: Mapping[str, str]
    """Of its Pods (`pod_labels`)."""
    artifacts: Sequence[Artifact]
    """Model, Checkpoint, Engine in this order."""
    serving: Serving
    store: Access
    values: Mapping[str, Mapping[str, str]]
    """Of the Triton templates, by template and placeholder."""
    weights_bytes: int
    """Of all ranks together."""

    @property
    def model(self) -> Artifact:
        return self.artifacts[0]

    @property
    def engine(self) -> Artifact:
        return self.artifacts[-1]

    @property
    def world_size(self) -> int:
        expected = self.engine.spec.expected
        assert expected is not None  # the schema demands it of an engine
        return expected.tensor_parallel * expected.pipeline_parallel


def pod_template(server: Server, *, runner: str, config: OperatorConfig) -> dict[str, Any]:
    """The server's Pod: the engine's own image, on the GPUs the engine is for, reading the store, never writing it.
    `runner` is the name of the runner's ConfigMap."""
    gpu, expected = server.engine.spec.inputs.gpu, server.engine.spec.expected
    assert gpu is not None
    assert expected is not None
    store, serving = server.store, server.serving
    shared_memory = shared_memory_bytes(server.values, server.world_size)
    run = {
        "engine": f"{store.directory}/{server.engine.name}",
        "tokenizer": f"{store.directory}/{server.model.name}",
        "world_size": server.world_size,
        "gpu": gpu.dump(),
        "release": expected.release,
        "templates": TEMPLATES,
        "fill_template": FILL_TEMPLATE,
        "models": server.values,
        "repository": f"{SCRATCH}/repository",
        "http_port": HTTP_PORT,
        "grpc_port": GRPC_PORT,
        "metrics_port": METRICS_PORT,
        "exit_timeout_seconds": EXIT_TIMEOUT_SECONDS,
    }
    container = {
        "name": SERVER,
        "image": server.engine.spec.inputs.image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["python3", "/opt/llmengine/runner.pyz", "serve", "--spec", json.dumps(run, sort_keys=True)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "workingDir": SCRATCH,
        "env": env({"HOME": SCRATCH, "HF_HUB_OFFLINE": "1"}),
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(serving, gpu.resource, server.world_size, shared_memory),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": work_mounts(store),
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SLEEP_SECONDS}}},
        **probes(server.weights_bytes),
    }
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": DRAIN_SLEEP_SECONDS + EXIT_TIMEOUT_SECONDS + 30,
        "securityContext": POD_SECURITY,
        "affinity": gpu_affinity(gpu),
        "tolerations": tolerations(serving, gpu=True),
        "containers": [container],
        "volumes": volumes(store, runner=runner, shared_memory=mebibytes(shared_memory)),
    }
    if store.location.s3:
        spec["initContainers"] = [_provide(server, config)]
    if serving.node_selector:
        spec["nodeSelector"] = dict(serving.node_selector)
    return {"metadata": {"labels": dict(server.labels)}, "spec": spec}


def _provide(server: Server, config: OperatorConfig) -> dict[str, Any]:
    """Brings the engine and the tokenizer from a bucket; a claim is read where it is mounted."""
    names = {"engine": server.engine.name, "model": server.model.name}
    arguments = {**names, "store": server.store.argument, "scratch": SCRATCH}
    container = step_container("provide", "provide", arguments, config, step_mounts(server.store))
    disk = mebibytes(server.weights_bytes + server.weights_bytes // 10 + OVERHEAD_BYTES)
    requests = {**container["resources"]["requests"], "ephemeral-storage": disk}
    return {**container, "resources": {**container["resources"], "requests": requests}}


def pod_labels(engine_name: str, target: str, revision: str) -> dict[str, str]:
    return {MANAGED: "true", ENGINE: engine_name, TARGET: target, REVISION: revision}


def probes(weights_bytes_total: int) -> dict[str, Any]:
    """Triton's port is closed while models load: liveness waits behind a start-up probe that grows with the engine."""
    loading_seconds = -(-weights_bytes_total // LOAD_BYTES_PER_SECOND)
    budget_seconds = max(SMALLEST_STARTUP_SECONDS, BEFORE_LOADING_SECONDS + loading_seconds)
    ready = {"httpGet": {"path": f"/v2/models/{MODEL_NAME}/ready", "port": "http"}}
    return {
        "startupProbe": {
            **ready,
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "failureThreshold": -(-budget_seconds // STARTUP_PERIOD_SECONDS),
        },
        "readinessProbe": {**ready, "periodSeconds": 5, "failureThreshold": 3, "timeoutSeconds": 5},
        "livenessProbe": {
            "httpGet": {"path": "/v2/health/live", "port": "http"},
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": 5,
        },
    }


def deployment(
    owner: Obj,
    revision: Revision,
    replicas: int,
    *,
    annotations: Mapping[str, str] | None = None,
    restarts: Mapping[str, str] | None = None,
    surge: bool = False,
) -> dict[str, Any]:
    """One per revision. `restarts` are annotations of its Pods: others than they carry have them replaced, each new one
    after an old one ended, or with `surge` before it does."""
    meta = owner["metadata"]
    labels = pod_labels(meta["name"], revision.target, revision.name)
    template = dict(revision.template)
    if restarts:
        template["metadata"] = {**template["metadata"], "annotations": dict(restarts)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": revision.name,
            "namespace": meta["namespace"],
            "labels": labels,
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": progress_deadline_seconds(revision.template),
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": int(surge), "maxUnavailable": int(not surge)},
            },
            "selector": {"matchLabels": {REVISION: revision.name}},
            "template": template,
        },
    }


def progress_deadline_seconds(template: Mapping[str, Any]) -> int:
    """Beyond the time that the start-up probe of a revision's own template allows."""
    probe = template["spec"]["containers"][0]["startupProbe"]
    budget_seconds = int(probe["periodSeconds"]) * int(probe["failureThreshold"])
    return max(SMALLEST_PROGRESS_SECONDS, budget_seconds + BEFORE_STARTUP_SECONDS)


def service(owner: Obj, name: str, target: str, revision: str, switched_at: str) -> dict[str, Any]:
    """Selects exactly one revision. `switched_at` is when it came to select this one."""
    meta = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {MANAGED: "true", ENGINE: meta["name"], TARGET: target},
            "annotations": {SWITCHED_AT: switched_at},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "selector": {REVISION: revision},
            "ports": [
                {"name": "http", "port": HTTP_PORT, "protocol": "TCP", "targetPort": "http"},
                {"name": "grpc", "port": GRPC_PORT, "protocol": "TCP", "targetPort": "grpc"},
                {"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": "metrics"},
            ],
        },
    }


def shared_memory_bytes(models: Mapping[str, Mapping[str, str]], world_size: int) -> int:
    """Of a server's /dev/shm: a share for each instance of a Python model, and room for NCCL between several ranks.
    `models` are the values of the Triton templates."""
    counts = (v for values in models.values() for name, v in values.items() if name.endswith("_instance_count"))
    return sum(map(int, counts)) * PYTHON_INSTANCE_BYTES + (SHARED_MEMORY_BYTES if world_size > 1 else 0)


def _resources(serving: Serving, gpu_resource: str, world_size: int, shared_memory: int) -> dict[str, Any]:
    """What is in /dev/shm is charged to the container, so a limit of its memory grows by it."""
    out: dict[str, Any] = serving.resources.dump() if serving.resources else {}
    limits = {**out.get("limits", {}), gpu_resource: str(world_size)}
    if "memory" in limits:
        limits["memory"] = mebibytes(int(quantity(limits["memory"])) + shared_memory)
    return {**out, "limits": limits}
