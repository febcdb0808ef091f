"""The LLMEngine of the end-to-end tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from demo.kubectl import Kubectl, Obj, condition, wait_for
from demo.questions import by_http

MANIFEST = Path(__file__).parent.parent.parent / "demo" / "llmengine.yaml"
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
A100 = {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}}
READY_SECONDS = 240
SAID_SECONDS = 90
"""For a bad input: Pods have to start before some facts exist at all."""


def llmengine(name: str = "smollm2", **spec: Any) -> dict[str, Any]:
    """The demo's LLMEngine on the H100 alone; `spec` replaces fields of its spec."""
    made: dict[str, Any] = copy.deepcopy(yaml.safe_load(MANIFEST.read_text()))
    made["metadata"]["name"] = name
    made["spec"]["targets"] = [H100]
    made["spec"].update(spec)
    return made


def get(kubectl: Kubectl, name: str = "smollm2") -> Obj:
    return kubectl.get("llmengine", name)


def wait_ready(
    kubectl: Kubectl, name: str = "smollm2", *, limit_seconds: float = READY_SECONDS, passing: str = ""
) -> float:
    """Until Ready. Stalled fails at once, but for the reason `passing`, which the test knows to pass by itself."""

    def missing() -> str | None:
        found = get(kubectl, name)
        ready, stalled = condition(found, "Ready"), condition(found, "Stalled")
        assert stalled.get("status") != "True" or stalled["reason"] == passing, stalled["message"]
        return None if ready.get("status") == "True" else f"{ready.get('reason')}: {ready.get('message')}"

    return wait_for(f"LLMEngine {name} Ready", missing, limit_seconds=limit_seconds)


def wait_condition(kubectl: Kubectl, type_: str, status: str, name: str = "smollm2", *, reason: str = "") -> Obj:
    """The condition once it has that status (and reason)."""

    def missing() -> str | None:
        found = condition(get(kubectl, name), type_)
        if found.get("status") == status and reason in ("", found.get("reason")):
            return None
        return f"the conditions are {get(kubectl, name).get('status', {}).get('conditions')}"

    wait_for(f"{type_}={status} {reason} of LLMEngine {name}", missing, limit_seconds=SAID_SECONDS)
    return condition(get(kubectl, name), type_)


def answer(
    kubectl: Kubectl, target: str = "h100", question: str = "What is the capital of France?", name: str = "smollm2"
) -> str:
    with kubectl.port_forward(f"service/{name}--{target}", 8000) as port:
        return "".join(by_http(port, question)).strip()


def gpus_of(kubectl: Kubectl, artifact: Obj) -> int:
    """Of the container that made an artifact."""
    job = kubectl.get("job", artifact["status"]["jobName"])
    made = job["spec"]["template"]["spec"]["initContainers"][-1]
    return int(made["resources"]["limits"]["nvidia.com/gpu"])


def delete(kubectl: Kubectl, name: str = "smollm2") -> None:
    kubectl("delete", "llmengine", name, "--ignore-not-found", "--timeout=60s", timeout_seconds=70)
