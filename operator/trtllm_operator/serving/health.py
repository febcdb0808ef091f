"""What keeps the Pods of a revision from being ready, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..objects import Obj
from ..pods import IMAGE_REASONS, container_statuses, termination_report


@dataclass(frozen=True)
class Problem:
    reason: str
    message: str
    stalled: bool
    """A person has to act; waiting does not help."""


def problem(pods: Iterable[Obj]) -> Problem | None:
    """The first thing wrong with a revision's Pods, None when they are merely starting or are ready."""
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        if "deletionTimestamp" in pod["metadata"]:
            continue
        if found := _of_pod(pod):
            return found
    return None


def _of_pod(pod: Obj) -> Problem | None:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Problem(
                "Unschedulable", f"a server Pod finds no node: {condition.get('message', '')}", stalled=False
            )
    for status in container_statuses(pod):
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in IMAGE_REASONS:
            message = (
                f"node {pod['spec'].get('nodeName')} cannot pull image {status['image']}: {waiting.get('message', '')}"
            )
            return Problem("ImagePullFailed", message, stalled=True)
        ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
        if ended and not status.get("ready"):
            return _ended(status, ended)
    return None


def _ended(status: Obj, ended: Obj) -> Problem | None:
    report = termination_report(ended)
    if report and isinstance(failure := report.get("failure"), dict):
        stalled = not failure.get("retryable", False)
        return Problem(str(failure["reason"]), f"a server does not start: {failure['message']}", stalled)
    if ended.get("reason") == "OOMKilled":
        message = "a server was killed for memory: raise spec.serving.resources.limits.memory"
        return Problem("HostMemoryExhausted", message, stalled=True)
    restarts = status.get("restartCount", 0)
    return Problem(
        "ServerRestarts",
        f"a server exited {ended.get('exitCode')} and was restarted {restarts} times; see kubectl logs",
        stalled=False,
    )
