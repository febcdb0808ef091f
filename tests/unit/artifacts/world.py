"""Objects as the API server holds them, for the tests of plans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trtllm_operator.objects import ARTIFACT, ATTEMPT, POLICY_HASH, Runner
from trtllm_operator.operator_config import OperatorConfig

NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
RUNNER = Runner(b"runner")
CONFIG = OperatorConfig(
    operator_image="llmengine/operator@sha256:" + "0" * 64,
    toolchain_images={"1.2.1": "llmengine/standin@sha256:" + "1" * 64},
    hub_endpoint="http://hub",
)


def stamp(seconds: int = 0) -> str:
    """`seconds` before NOW."""
    return datetime.fromtimestamp(NOW.timestamp() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, product: str | None = None, compute: str = "9.0", memory_mib: int = 81559) -> dict[str, Any]:
    labels = {}
    if product:
        major, minor = compute.split(".")
        labels = {
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.compute.major": major,
            "nvidia.com/gpu.compute.minor": minor,
            "nvidia.com/gpu.memory": str(memory_mib),
        }
    return {"metadata": {"name": name, "labels": labels}}


def engine_artifact(**policy: Any) -> dict[str, Any]:
    spec = {
        "type": "Engine",
        "inputs": {
            "keySchema": 1,
            "parent": "checkpoint-1",
            "image": CONFIG.toolchain_images["1.2.1"],
            "command": ["trtllm-build", "--checkpoint_dir", "{parent}", "--output_dir", "{output}"],
            "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "computeCapability": "9.0"},
            "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
        },
        "expected": {"release": "1.2.1", "tensorParallel": 1, "pipelineParallel": 1},
        "policy": {
            "gpus": 1,
            "maxAttempts": 3,
            "timeoutSeconds": 3600,
            "resources": {"limits": {"memory": "8Gi"}},
            **policy,
        },
    }
    return artifact("engine-1", spec)


def artifact(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "llmengine.dev/v1alpha1",
        "kind": "EngineArtifact",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "generation": 1},
        "spec": dict(spec),
    }


def ready_artifact(name: str) -> dict[str, Any]:
    made = artifact(name, {"type": "Checkpoint"})
    made["status"] = {"conditions": [_condition("Ready", "True", "Published")]}
    return made


def _condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(),
        "observedGeneration": 1,
    }


def job(number: int, policy: str, status: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"engine-1-{number}",
            "namespace": "team",
            "uid": f"uid-job-{number}",
            "labels": {ARTIFACT: "engine-1", ATTEMPT: str(number)},
            "annotations": {POLICY_HASH: policy},
        },
        "spec": {},
        "status": dict(status or {}),
    }


def complete() -> dict[str, Any]:
    condition = {"type": "Complete", "status": "True"}
    return {"conditions": [condition], "startTime": stamp(90), "completionTime": stamp(30)}


def failed(seconds_ago: int = 0, reason: str = "BackoffLimitExceeded") -> dict[str, Any]:
    condition = {"type": "Failed", "status": "True", "reason": reason, "lastTransitionTime": stamp(seconds_ago)}
    return {"conditions": [condition], "startTime": stamp(seconds_ago + 60)}


def pod(number: int, **status: Any) -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"memory": "8Gi"}}}

    return {
        "metadata": {
            "name": f"engine-1-{number}-abc",
            "creationTimestamp": stamp(100),
            "labels": {ARTIFACT: "engine-1", ATTEMPT: str(number)},
        },
        "spec": {
            "nodeName": "h100",
            "initContainers": [container("stage"), container("build")],
            "containers": [container("publish")],
            "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "engines"}}],
        },
        "status": status,
    }


def ended(name: str, exit_code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    terminated = {"exitCode": exit_code, "message": message, "reason": reason}
    return {"name": name, "image": "llmengine/standin", "state": {"terminated": terminated}}


def running(name: str) -> dict[str, Any]:
    return {"name": name, "image": "llmengine/standin", "state": {"running": {}}}


def waiting(name: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"name": name, "image": "registry/none:1", "state": {"waiting": {"reason": reason, "message": message}}}
