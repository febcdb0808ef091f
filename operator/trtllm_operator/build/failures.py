"""Why a build or an inspection failed: a closed list of reasons, and how a Pod that died without a word is read."""

from __future__ import annotations

from dataclasses import dataclass

from ..objects import Obj
from ..pods import container_statuses, memory_limit, termination_report

PERMANENT_EXIT_CODE = 64
"""A step's own word that repeating it unchanged cannot help (EX_USAGE of sysexits.h)."""


@dataclass(frozen=True)
class Failure:
    """What a person needs to act: the reason in one word, what is wrong in numbers, and whether repeating can help."""

    reason: str
    message: str
    retryable: bool


def classify(pod: Obj) -> Failure:
    """The failure of a Pod that has failed, told by the step itself where it could, else by the Pod's status."""
    for status in container_statuses(pod):
        terminated = status.get("state", {}).get("terminated")
        if terminated and terminated.get("exitCode", 0) != 0:
            return _container_failure(pod, status["name"], terminated)
    return _pod_failure(pod)


def _container_failure(pod: Obj, name: str, terminated: Obj) -> Failure:
    limit = memory_limit(pod, name)
    if terminated.get("reason") == "OOMKilled":
        return Failure(
            "HostMemoryExhausted",
            f"container {name} was killed for memory: it reached its limit of {limit}; "
            "raise spec.build.resources.limits.memory (and requests.memory with it)",
            retryable=False,
        )
    report = termination_report(terminated)
    if report and isinstance(failure := report.get("failure"), dict):
        return Failure(str(failure["reason"]), str(failure["message"]), bool(failure.get("retryable", False)))
    if pod.get("status", {}).get("reason"):
        return _pod_failure(pod)
    code = terminated.get("exitCode")
    if code == 137:
        return Failure(
            "Killed",
            f"container {name} was killed (exit 137) without a word: most likely host memory (its limit is {limit}), "
            "or the node ended the Pod; if it repeats, raise spec.build.resources.limits.memory",
            retryable=True,
        )
    return Failure("StepFailed", f"container {name} exited {code} without a report; see kubectl logs", retryable=True)


def _pod_failure(pod: Obj) -> Failure:
    status = pod.get("status", {})
    reason, message = status.get("reason") or "PodFailed", status.get("message") or "the Pod failed without a message"
    known = {
        "Evicted": ("Evicted", True),
        "DeadlineExceeded": ("DeadlineExceeded", False),
        "NodeLost": ("NodeLost", True),
        "UnexpectedAdmissionError": ("NodeNotReady", True),
        "Shutdown": ("NodeShutdown", True),
        "Terminated": ("NodeShutdown", True),
    }
    name, retryable = known.get(reason, ("PodFailed", True))
    return Failure(name, f"{reason}: {message}", retryable)
