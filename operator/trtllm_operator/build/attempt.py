"""One attempt of a step in a Job, read from the Job and its Pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..objects import Obj, condition_true
from ..pods import IMAGE_REASONS, container_statuses, termination_report
from .failures import Failure, classify

NO_FACTS: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Waiting:
    """The Pod does not run yet. `stuck`: a person has to act before it can."""

    reason: str
    message: str
    stuck: bool = False


@dataclass(frozen=True)
class Running:
    step: str
    node: str


@dataclass(frozen=True)
class Succeeded:
    """`result` is what the last container reported; empty when the Pod was gone before it was read."""

    node: str | None
    seconds: int | None
    completion_time: str
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    failure: Failure
    node: str | None
    time: str
    """When the Job failed."""


State = Waiting | Running | Succeeded | Failed


def seconds_between(start: str, end: str) -> int:
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


def read(job: Obj, pods: Iterable[Obj]) -> State:
    """What the attempt does now. The Job's word counts above the Pod's, which may flip after it has ended."""
    newest = max(pods, key=lambda p: str(p["metadata"].get("creationTimestamp", "")), default=None)
    node = newest["spec"].get("nodeName") if newest else None
    if condition_true(job, "Complete"):
        status = job["status"]
        start, end = status.get("startTime"), status["completionTime"]
        return Succeeded(node, seconds_between(start, end) if start else None, end, _result(newest) if newest else {})
    if failed := condition_true(job, "Failed"):
        return Failed(_job_failure(failed, newest), node, failed["lastTransitionTime"])
    if newest is None:
        return _without_pod(job)
    return _pod_state(newest)


def _result(pod: Obj) -> Mapping[str, Any]:
    for status in reversed(container_statuses(pod)):
        terminated = status.get("state", {}).get("terminated")
        report = termination_report(terminated) if terminated else None
        if report and isinstance(report.get("result"), dict):
            return dict(report["result"])
    return NO_FACTS


def _job_failure(condition: Obj, pod: Obj | None) -> Failure:
    if condition.get("reason") == "DeadlineExceeded":
        return Failure(
            "DeadlineExceeded",
            "the attempt ran longer than allowed; raise spec.build.timeoutSeconds if it made progress",
            retryable=False,
        )
    if pod is None:
        return Failure("PodLost", f"the Job failed and its Pod is gone: {condition.get('message', '')}", retryable=True)
    return classify(pod)


def _without_pod(job: Obj) -> State:
    if job["spec"].get("suspend"):
        return Waiting("Suspended", "the Job is suspended: it waits for admission by a queue, or for a person")
    return Waiting(
        "PodNotCreated", "the Job controller has not created the Pod yet; if this stays, see kubectl describe job"
    )


def _pod_state(pod: Obj) -> State:
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Waiting("Unschedulable", condition.get("message", ""))
    node = pod["spec"].get("nodeName", "")
    for container in container_statuses(pod):
        state = container.get("state", {})
        if waiting := state.get("waiting"):
            if waiting.get("reason") in IMAGE_REASONS:
                return Waiting(
                    "ImagePullFailed",
                    f"node {node} cannot pull image {container['image']}: {waiting.get('message', waiting['reason'])}",
                    stuck=True,
                )
            if waiting.get("reason") in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
                return Waiting(
                    "ContainerNotCreated", f"container {container['name']}: {waiting.get('message', '')}", stuck=True
                )
    if step := _current_step(pod):
        return Running(step, node)
    if not node:
        return Waiting("PodStarting", "waits for the scheduler")
    return Waiting("PodStarting", f"starting on node {node}{_mounts(pod)}")


def _current_step(pod: Obj) -> str | None:
    """The container that runs, or is next while the Pod is between two; None before the first has started."""
    containers = container_statuses(pod)
    if not any({"running", "terminated"} & set(c.get("state", {})) for c in containers):
        return None
    ongoing = next((c for c in containers if "terminated" not in c.get("state", {})), containers[-1])
    return str(ongoing["name"])


def _mounts(pod: Obj) -> str:
    """What has to exist before the Pod can start: the kubelet says so only in Events."""
    needs = [f"Secret {v['secret']['secretName']}" for v in pod["spec"].get("volumes", ()) if "secret" in v]
    needs += [
        f"claim {v['persistentVolumeClaim']['claimName']}"
        for v in pod["spec"].get("volumes", ())
        if "persistentVolumeClaim" in v
    ]
    return f"; it mounts {', '.join(needs)}" if needs else ""
