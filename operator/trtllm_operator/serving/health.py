"""What keeps the Pods of a revision from being ready, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..artifacts.diagnosis import diagnose_container
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
            return _ended(pod, status, ended)
    return None


def _ended(pod: Obj, status: Obj, ended: Obj) -> Problem:
    """By the table that tells the failures of builds apart; what it does not know is a restart with its numbers."""
    failure = diagnose_container(pod, str(status["name"]), ended)
    report = (termination_report(ended) or {}).get("failure")
    if isinstance(report, dict):
        stalled = not report.get("retryable", False)
        return Problem(failure.reason, f"a server does not start: {failure.message}", stalled)
    if failure.reason in ("StepFailed", "Crashed"):
        restarts = status.get("restartCount", 0)
        said = f" ({failure.message})" if failure.log else ""
        return Problem(
            "ServerRestarts",
            f"a server exited {ended.get('exitCode')} and was restarted {restarts} times{said}; see kubectl logs",
            stalled=False,
        )
    retry = failure.kind.retry
    passes = retry is not None and retry.grows is None  # of a server nothing grows by itself
    return Problem(failure.reason, f"a server ended: {failure.message}", stalled=not passes)
