"""The objects of an LLMEngine's endpoint: ServiceAccount, RoleBinding, Deployment, Service and PodDisruptionBudget."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from ..api.front import Front
from ..artifacts.jobs import step_container
from ..objects import (
    AWAY_FROM_GPUS,
    CONTAINER_SECURITY,
    ENGINE,
    FRONT,
    MANAGED,
    POD_SECURITY,
    SCRATCH,
    Obj,
    env,
    owner_reference,
    tolerations,
)
from ..operator_config import OperatorConfig
from ..storage import Access, step_mounts, volumes
from .names import front_name, front_service_name

PORT = 8080
SERVICE_PORT = 80
KEYS = "/var/run/secrets/llmengine/api-keys"
DRAIN_SLEEP_SECONDS = 5
"""Between leaving the Service and SIGTERM: meanwhile routes to the Pod go, so no request meets a closed port."""
GRACE_SECONDS = 900
"""How long streams may go on in a Pod that is told to end."""
DEFAULT_RESOURCES = {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}


def endpoint_url(owner: Obj) -> str:
    """Where clients in the cluster find it: the base URL of an OpenAI client."""
    meta = owner["metadata"]
    return f"http://{front_service_name(meta['name'])}.{meta['namespace']}.svc/v1"


def front_objects(
    owner: Obj, front: Front, models: Collection[str], store: Access, config: OperatorConfig
) -> tuple[dict[str, Any], ...]:
    """All of them, in the order in which they are applied. `models` are the Model artifacts that are served or about to
    be, at least one; none is made where `front.replicas` is 0."""
    if front.replicas == 0 or not models:
        return ()
    budget = (_disruption_budget(owner),) if front.replicas > 1 else ()
    return (
        _service_account(owner),
        _role_binding(owner, config),
        _deployment(owner, front, sorted(models), store, config),
        _service(owner),
        *budget,
    )


def _labels(owner: Obj) -> dict[str, str]:
    return {MANAGED: "true", ENGINE: owner["metadata"]["name"], FRONT: "true"}


def _selector(owner: Obj) -> dict[str, str]:
    return {ENGINE: owner["metadata"]["name"], FRONT: "true"}


def _meta(owner: Obj, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": _labels(owner),
        "ownerReferences": [owner_reference(owner)],
    }


def _service_account(owner: Obj) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _meta(owner, front_name(owner["metadata"]["name"])),
        "automountServiceAccountToken": False,
    }


def _role_binding(owner: Obj, config: OperatorConfig) -> dict[str, Any]:
    """Within its namespace an endpoint may read LLMEngines and EndpointSlices, and nothing else."""
    name = front_name(owner["metadata"]["name"])
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _meta(owner, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": config.front_cluster_role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": owner["metadata"]["namespace"]}],
    }


def _service(owner: Obj) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(owner, front_service_name(owner["metadata"]["name"])),
        "spec": {
            "selector": _selector(owner),
            "ports": [{"name": "http", "port": SERVICE_PORT, "protocol": "TCP", "targetPort": "http"}],
        },
    }


def _disruption_budget(owner: Obj) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(owner, front_name(owner["metadata"]["name"])),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _selector(owner)}},
    }


def _deployment(owner: Obj, front: Front, models: list[str], store: Access, config: OperatorConfig) -> dict[str, Any]:
    name = front_name(owner["metadata"]["name"])
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(owner, name),
        "spec": {
            "replicas": front.replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": _selector(owner)},
            "template": {
                "metadata": {"labels": _labels(owner)},
                "spec": _pod(owner, front, models, store, config),
            },
        },
    }


def _pod(owner: Obj, front: Front, models: list[str], store: Access, config: OperatorConfig) -> dict[str, Any]:
    mounts = [m for m in step_mounts(store) if m["name"] != "store-credentials"]
    keys = front.api_keys_secret_ref
    container = {
        "name": "front",
        "image": config.operator_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["python3", "-m", "trtllm_operator.front"],
        "env": env({"LLMENGINE_FRONT": json.dumps(_settings(owner, front, store), sort_keys=True)}),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": front.resources.dump() if front.resources else DEFAULT_RESOURCES,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *mounts,
            *([{"name": "api-keys", "mountPath": KEYS, "readOnly": True}] if keys else ()),
        ],
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SLEEP_SECONDS}}},
        "startupProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 120},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": 5,
        },
    }
    pod: dict[str, Any] = {
        "serviceAccountName": front_name(owner["metadata"]["name"]),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": DRAIN_SLEEP_SECONDS + GRACE_SECONDS,
        "securityContext": POD_SECURITY,
        "affinity": AWAY_FROM_GPUS,
        "containers": [container],
        "volumes": [
            *volumes(store),
            *([{"name": "api-keys", "secret": {"secretName": keys.name, "defaultMode": 0o440}}] if keys else ()),
        ],
    }
    if store.location.s3:
        arguments = {"models": models, "store": store.argument, "scratch": SCRATCH}
        pod["initContainers"] = [step_container("provide", "provide", arguments, config, step_mounts(store))]
    if front.node_selector:
        pod["nodeSelector"] = dict(front.node_selector)
    if tolerated := tolerations(front, gpu=False):
        pod["tolerations"] = tolerated
    return pod


def _settings(owner: Obj, front: Front, store: Access) -> dict[str, Any]:
    """As `front.settings.Settings` reads them."""
    meta, caller = owner["metadata"], front.per_caller
    limits = {
        "max_concurrent_requests": front.max_concurrent_requests,
        "max_queued_tokens": front.max_queued_tokens,
        "queue_timeout_seconds": front.queue_timeout_seconds,
        "requests_per_minute": caller.requests_per_minute if caller else None,
        "tokens_per_minute": caller.tokens_per_minute if caller else None,
    }
    out: dict[str, Any] = {
        "namespace": meta["namespace"],
        "name": meta["name"],
        "model_names": list(front.model_names) or [meta["name"]],
        "models_directory": store.directory,
        "api_keys_directory": KEYS if front.api_keys_secret_ref else None,
        "caller_header": caller.header if caller else None,
        "strict_max_tokens": front.strict_max_tokens,
        "limits": {name: value for name, value in limits.items() if value is not None},
        "request_log": front.request_log,
    }
    if front.guard:
        out["guard"] = {
            "url": front.guard.url,
            "timeout_seconds": front.guard.timeout_seconds,
            "fail_open": front.guard.failure_policy == "Ignore",
        }
    return {name: value for name, value in out.items() if value is not None}
