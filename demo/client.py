"""The client that asks all the time: a Pod in the cluster, so that it goes through the Service as a real one does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtllm_operator.objects import CONTAINER_SECURITY

from .kubectl import Kubectl, wait_for
from .stack import POD_SECURITY

NAME = "asker"
SCRIPT = Path(__file__).parent / "asker.py"
Counts = dict[str, dict[str, Any]]


def start(kubectl: Kubectl, image: str, services: Sequence[str]) -> None:
    """Starts the Pod and waits for its first answers."""
    kubectl("delete", "pod", NAME, "--ignore-not-found", "--grace-period=1", "--timeout=60s", timeout_seconds=70)
    container = {
        "name": NAME,
        "image": image,
        "command": ["python3", "-u", "/opt/asker/asker.py", *services],
        "resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "script", "mountPath": "/opt/asker", "readOnly": True}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": NAME}}],
    }
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME},
            "data": {SCRIPT.name: SCRIPT.read_text()},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": pod},
    )

    def answered() -> str | None:
        counted = counts(kubectl) if running(kubectl) else {}
        silent = [service for service in services if not counted.get(service, {}).get("answered")]
        return f"no answer yet from {', '.join(silent)}" if silent else None

    wait_for("the client's first answers", answered, limit_seconds=60)


def running(kubectl: Kubectl) -> bool:
    return bool(kubectl.get("pod", NAME)["status"].get("phase") == "Running")


def counts(kubectl: Kubectl) -> Counts:
    """By Service: answered, failed, lastFailure; as of the last second."""
    lines = kubectl("logs", NAME, "--tail=1").strip().splitlines()
    counted: Counts = json.loads(lines[-1]) if lines else {}
    return counted


def stop(kubectl: Kubectl) -> None:
    kubectl("delete", "pod", NAME, "--ignore-not-found", "--grace-period=1", "--timeout=60s", timeout_seconds=70)
