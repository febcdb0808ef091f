"""Why a Pod failed: told by the step itself where it could, else read from the Pod's status and its last lines."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

from ..objects import Obj, condition_true
from ..pods import container_statuses, memory_limit, termination_report
from ..runner.classify import BUS_ERROR, known_failure
from .failures import KINDS, Failure

STEPS = frozenset({"inspect", "digest", "fetch", "stage", "provide", "publish", "check", "collect"})
"""Containers of the operator's own image, whose memory is the operator's to set."""
SERVER = "triton"
"""Container of a server."""
_CRASHES = {128 + s: s.name for s in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)}
_CANNOT_START = frozenset({"StartError", "ContainerCannotRun", "CreateContainerError", "RunContainerError"})
MAX_LOG_CHARACTERS = 2048

_POD_REASONS: Mapping[str, str] = {
    "DeadlineExceeded": "DeadlineExceeded",
    "NodeLost": "NodeLost",
    "NodeShutdown": "NodeShutdown",
    "Shutdown": "NodeShutdown",
    "Terminated": "NodeShutdown",
    "Preempting": "Preempted",
    "NodeAffinity": "NodeRefused",
}
"""status.reason of a Pod, as kubelet and controllers set it. Admission by the kubelet says OutOf<resource> too."""
_DISRUPTIONS: Mapping[str, str] = {
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": "NodeLost",
    "DeletionByPodGC": "NodeLost",
    "EvictionByEvictionAPI": "Evicted",
    "TerminationByKubelet": "Evicted",
}
"""reason of the condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions)."""
_START_PATTERNS: tuple[tuple[str, str], ...] = (
    ("DriverTooOld", r"unsatisfied condition: (cuda|driver)|CUDA driver version is insufficient"),
    ("GpuUnavailable", r"nvidia-container-cli|nvml error|driver not loaded|failed to inject CDI devices"),
    ("ImagePlatformMismatch", r"exec format error"),
    ("ToolMissing", r"executable file not found|no such file or directory"),
)
"""What the container runtime says when it cannot start a container's process."""


def diagnose(pod: Obj) -> Failure:
    """The failure of a Pod that has failed.

    A step's own word comes first, then what the cluster did to the Pod: a process that is told to end because its
    Pod is evicted says only that it was told to.
    """
    name, ended = _failed_container(pod)
    told = _told(ended)
    if told and told.reason != "Terminated":
        return told
    if ended.get("reason") == "OOMKilled":
        return _out_of_memory(pod, name, "was killed for memory: it reached its limit", _log(ended))
    if disrupted := disruption(pod):
        return disrupted
    return told or _silent(pod, name, ended)


def diagnose_container(pod: Obj, name: str, ended: Obj) -> Failure:
    """Why one container of a Pod ended, where the Pod itself goes on and starts it again."""
    if told := _told(ended):
        return told
    if ended.get("reason") == "OOMKilled":
        return _out_of_memory(pod, name, "was killed for memory: it reached its limit", _log(ended))
    return _silent(pod, name, ended)


def disruption(pod: Obj) -> Failure | None:
    """What the cluster did to a Pod, if it did anything."""
    status = pod.get("status", {})
    reason, said = str(status.get("reason") or ""), str(status.get("message") or "")
    where = f"on node {pod['spec'].get('nodeName', '?')}"
    if reason == "Evicted":
        return _evicted(said, where)
    if reason == "UnexpectedAdmissionError" and "maximum request size for shared resources" in said:
        return Failure("GpuRequestRefused", f"the device plugin {where} refuses the Pod: {said}")
    if reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        return Failure("NodeRefused", f"{where} the kubelet refused the Pod ({reason}): {said}")
    if reason == "DeadlineExceeded":
        limit = pod["spec"].get("activeDeadlineSeconds")
        allowed = f" of {limit} s" if limit else ""
        return Failure(
            "DeadlineExceeded",
            f"the attempt {where} ran longer than its limit{allowed}; raise spec.build.timeoutSeconds if it made "
            "progress",
        )
    if found := condition_true(pod, "DisruptionTarget"):
        kind = _DISRUPTIONS.get(str(found.get("reason")), "Evicted")
        return Failure(kind, f"the Pod {where} was ended ({found.get('reason')}): {found.get('message', '')}")
    if reason in _POD_REASONS:
        return Failure(_POD_REASONS[reason], f"{where}: {reason}: {said}")
    if "deletionTimestamp" in pod["metadata"]:
        return Failure("Terminated", f"the Pod {where} was deleted while it ran")
    return None


def _evicted(said: str, where: str) -> Failure:
    if "ephemeral local storage usage exceeds" in said or "Usage of EmptyDir volume" in said:
        return Failure(
            "EphemeralStorageExhausted",
            f"the Pod {where} wrote more to its node's disk than its limit: {said}; raise "
            "spec.build.resources.limits.ephemeral-storage",
        )
    if "ephemeral-storage" in said or "inodes" in said:
        return Failure("DiskPressure", f"the Pod {where} was evicted for want of disk: {said}")
    return Failure("Evicted", f"the Pod {where} was evicted: {said}")


def _failed_container(pod: Obj) -> tuple[str, Obj]:
    for status in container_statuses(pod):
        terminated = status.get("state", {}).get("terminated")
        if terminated and terminated.get("exitCode", 0) != 0:
            return str(status["name"]), terminated
    return "", {}


def _told(ended: Obj) -> Failure | None:
    report = termination_report(ended)
    failure: Any = report.get("failure") if report else None
    if not isinstance(failure, dict) or "reason" not in failure:
        return None
    reason, message = str(failure["reason"]), str(failure.get("message", ""))
    if reason not in KINDS:  # a runner of another version than this operator
        reason, message = "StepFailed", f"{reason}: {message}"
    pause = failure.get("retryAfterSeconds")
    log = str(failure.get("log") or "")[-MAX_LOG_CHARACTERS:]
    return Failure(reason, message, log, int(pause) if isinstance(pause, int | float) else None)


def _log(ended: Obj) -> str:
    """The last lines, which the kubelet puts in place of a termination message that a container did not leave."""
    return "" if termination_report(ended) else str(ended.get("message") or "")[-MAX_LOG_CHARACTERS:]


def _out_of_memory(pod: Obj, container: str, how: str, log: str) -> Failure:
    limit = memory_limit(pod, container) or "none"
    if container in STEPS:
        return Failure("StepMemoryExhausted", f"container {container} {how} ({limit})", log)
    part = "serving" if container == SERVER else "build"
    advice = f"raise spec.{part}.resources.limits.memory (and requests.memory with it)"
    return Failure("HostMemoryExhausted", f"container {container} {how} ({limit}); {advice}", log)


def _silent(pod: Obj, name: str, ended: Obj) -> Failure:
    """A container that died without a word, or a Pod without a container that failed."""
    if not ended:
        said = pod.get("status", {}).get("message") or "without a message"
        return Failure("PodFailed", f"the Pod failed: {said}")
    code, log = ended.get("exitCode"), _log(ended)
    if ended.get("reason") in _CANNOT_START:
        return start_failure(name, str(ended.get("message") or "")) or Failure(
            "StepFailed", f"container {name} could not be started: {ended.get('message', '')}"
        )
    last = log.rstrip().rpartition("\n")[2].strip()
    if code == 137 or last == "Killed":
        how = f"was killed (exit {code}) without a word, most likely for host memory: its limit is"
        return _out_of_memory(pod, name, how, log)
    if known := known_failure(f"container {name} exited {code}", log.splitlines(), server=name == SERVER):
        return Failure(known.reason, known.message, log)
    if name == SERVER and code == 128 + signal.SIGBUS:
        return Failure("SharedMemoryExhausted", f"container {name} exited {code}. {BUS_ERROR}", log)
    if crash := _CRASHES.get(int(code or 0)):
        return Failure("Crashed", f"container {name} crashed ({crash}, exit {code}): {last or 'it said nothing'}", log)
    if code == 127:
        return Failure("ToolMissing", f"container {name} exited 127: {last or 'a command was not found'}", log)
    return Failure("StepFailed", f"container {name} exited {code} without a report: {last or 'it said nothing'}", log)


def start_failure(container: str, said: str) -> Failure | None:
    """Why the container runtime could not start a process, where its words are known."""
    reason = next((r for r, pattern in _START_PATTERNS if re.search(pattern, said)), None)
    return Failure(reason, f"container {container} cannot be started: {said}") if reason else None
