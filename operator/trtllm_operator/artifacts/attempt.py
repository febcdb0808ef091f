"""One attempt of a step in a Job, read from the Job and its Pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..objects import Obj, condition_true
from ..pods import IMAGE_REASONS, container_statuses, termination_report
from .diagnosis import diagnose, disruption, start_failure
from .failures import KINDS, Failure
from .placement import ending_on, obstacles

NO_FACTS: Mapping[str, Any] = {}
EVICTIONS_FOR_DISK = 3
"""Pods of one attempt that nodes may evict for want of disk before the attempt counts as failed: the Job controller
replaces them without end."""
FIRST_LOOK_SECONDS = 5
"""How long a container has run before its log is read for the first time."""
LOST_SECONDS = 60
"""How long after its grace period a Pod that does not go is waited for; then its node counts as lost."""
MULTI_ATTACH = "Multi-Attach error"
"""How the attach controller begins its word on a volume that another node has."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_SECRET_MISSING = re.compile(r'secret "[^"]+" not found|references non-existent secret key')
"""In what the kubelet says of a volume (pkg/volume/secret/secret.go)."""
_WRONG_PLATFORM = ("no match for platform", "no matching manifest for")


@dataclass(frozen=True)
class Waiting:
    """The Pod does not run yet."""

    __match_args__ = ("reason", "message", "stuck")
    reason: str
    message: str

    @property
    def stuck(self) -> bool:
        """A person has to act before it can."""
        return KINDS[self.reason].stalls


@dataclass(frozen=True)
class Running:
    step: str
    node: str
    note: str = ""
    """What has happened to earlier Pods of the attempt."""


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
    """When it failed."""


State = Waiting | Running | Succeeded | Failed


@dataclass(frozen=True)
class Surroundings:
    """What explains why a Pod waits."""

    nodes: tuple[Obj, ...] = ()
    now: datetime | None = None
    job_events: str | None = None
    """The Job controller's last word on why it cannot create the Pod."""
    volume_events: str | None = None
    """The last word on why a volume of the Pod cannot be attached or mounted."""
    ending: tuple[Obj, ...] = ()
    """Pods of ours that were told to end and are still there."""


def seconds_between(start: str, end: str) -> int:
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


def read(job: Obj, pods: Iterable[Obj], around: Surroundings = Surroundings()) -> State:
    """What the attempt does now. The Job's word counts above the Pod's, which may flip after it has ended."""
    ordered = sorted(pods, key=lambda p: str(p["metadata"].get("creationTimestamp", "")))
    newest = ordered[-1] if ordered else None
    node = newest["spec"].get("nodeName") if newest else None
    if condition_true(job, "Complete"):
        status = job["status"]
        start, end = status.get("startTime"), status["completionTime"]
        return Succeeded(node, seconds_between(start, end) if start else None, end, _result(newest) if newest else {})
    if failed := condition_true(job, "Failed"):
        failure = _unless_held(_job_failure(failed, newest), node, around.ending)
        return Failed(failure, node, failed["lastTransitionTime"])
    if newest is None:
        return _without_pod(job, around.job_events)
    disrupted = [found for p in ordered if _has_failed(p) and (found := disruption(p))]
    if over := _over(newest, disrupted, around.now):
        return over
    return _with_note(_pod_state(newest, around), disrupted)


def current_pod(pods: Iterable[Obj]) -> Obj | None:
    """The newest Pod of an attempt."""
    return max(pods, key=lambda p: str(p["metadata"].get("creationTimestamp", "")), default=None)


def _result(pod: Obj) -> Mapping[str, Any]:
    for status in reversed(container_statuses(pod)):
        terminated = status.get("state", {}).get("terminated")
        report = termination_report(terminated) if terminated else None
        if report and isinstance(report.get("result"), dict):
            return dict(report["result"])
    return NO_FACTS


def _job_failure(condition: Obj, pod: Obj | None) -> Failure:
    if pod is None and condition.get("reason") != "DeadlineExceeded":
        return Failure("PodLost", f"the Job failed and its Pod is gone: {condition.get('message', '')}")
    if condition.get("reason") != "DeadlineExceeded":
        assert pod is not None
        return _not_begun(pod) or diagnose(pod)
    if pod is None or not pod.get("status", {}).get("startTime"):
        return Failure("NeverStarted", "no node took the attempt's Pod within the day that it was waited for")
    return Failure(
        "DeadlineExceeded", "the attempt ran longer than allowed; raise spec.build.timeoutSeconds if it made progress"
    )


def _not_begun(pod: Obj) -> Failure | None:
    """Where the Pod's deadline has passed before any of its containers ran."""
    status = pod.get("status", {})
    states = [s.get("state", {}) for s in container_statuses(pod)]
    ran = any("running" in s or (s.get("terminated") or {}).get("startedAt") for s in states)
    if status.get("reason") != "DeadlineExceeded" or not states or ran:
        return None
    node, limit = pod["spec"].get("nodeName"), pod["spec"].get("activeDeadlineSeconds")
    return Failure("NeverStarted", f"on node {node} no container could be started within {limit} s{_mounts(pod)}")


def _unless_held(failure: Failure, node: str | None, ending: tuple[Obj, ...]) -> Failure:
    """GPU memory that somebody of ours is about to give back does not show that the plan is wrong."""
    if failure.reason != "GpuMemoryExhausted" or not (holder := ending_on(ending, node)):
        return failure
    why = f"while Pod {holder['metadata']['name']} was ending on node {node}, which may have held it: {failure.message}"
    return Failure("GpuMemoryHeld", f"no GPU memory {why}", failure.log)


def _has_failed(pod: Obj) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Failed")


def _over(newest: Obj, disrupted: Sequence[Failure], now: datetime | None) -> Failed | None:
    """An attempt that is over although the Job controller does not know it, and would replace its Pods."""
    node = newest["spec"].get("nodeName")
    changed = str(newest["metadata"].get("deletionTimestamp") or newest["metadata"].get("creationTimestamp") or "")
    if exhausted := next((f for f in disrupted if f.reason == "EphemeralStorageExhausted"), None):
        return Failed(exhausted, node, changed)
    pressed = [f for f in disrupted if f.reason == "DiskPressure"]
    if len(pressed) >= EVICTIONS_FOR_DISK:
        return Failed(pressed[-1], node, changed)
    deleted = newest["metadata"].get("deletionTimestamp")
    if deleted and now and (now - datetime.fromisoformat(deleted)).total_seconds() > LOST_SECONDS:
        why = f"node {node} has stopped answering: the Pod was told to end at {deleted} and is still there"
        return Failed(Failure("NodeLost", why), node, str(deleted))
    return None


def _without_pod(job: Obj, events: str | None) -> State:
    if job["spec"].get("suspend"):
        queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        who = f"by queue {queue}" if queue else "by a queue, or resumption by a person"
        return Waiting("Suspended", f"the Job is suspended: it waits for admission {who}")
    if events is None:
        return Waiting("PodNotCreated", "the Job controller has not created the Pod yet")
    if "exceeded quota" in events:
        return Waiting("QuotaExceeded", f"the Pod cannot be created: {events}")
    return Waiting("PodRefused", f"the Pod cannot be created: {events}")


def _pod_state(pod: Obj, around: Surroundings) -> State:
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            found = obstacles(pod, around.nodes, str(condition.get("message", "")))
            return Waiting(found.reason, found.message)
    node = pod["spec"].get("nodeName", "")
    for container in container_statuses(pod):
        waiting = container.get("state", {}).get("waiting")
        if waiting and (stuck := _container_waits(container, waiting, node)):
            return stuck
    if _has_failed(pod):
        return Waiting("AttemptEnding", f"the Pod on node {node} has failed, and its Job is about to")
    if step := _current_step(pod):
        return Running(step, node)
    if not node:
        return Waiting("PodStarting", "waits for the scheduler")
    if around.volume_events and _SECRET_MISSING.search(around.volume_events):
        return Waiting("SecretMissing", f"node {node} cannot start the Pod: {around.volume_events}{_mounts(pod)}")
    if around.volume_events:
        return Waiting("VolumeUnavailable", volume_problem(node, around.volume_events))
    return Waiting("PodStarting", f"starting on node {node}{_mounts(pod)}")


def _container_waits(container: Obj, waiting: Obj, node: str) -> Waiting | None:
    reason, said = waiting.get("reason"), str(waiting.get("message") or waiting.get("reason"))
    if reason in IMAGE_REASONS:
        advice = ""
        if any(words in said for words in _WRONG_PLATFORM):
            advice = " (the image does not exist for the node's processor: set spec.build.nodeSelector)"
        return Waiting("ImagePullFailed", f"node {node} cannot pull image {container['image']}: {said}{advice}")
    if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        known = start_failure(container["name"], said)
        return Waiting("ContainerNotCreated", known.message if known else f"container {container['name']}: {said}")
    return None


def _with_note(state: State, disrupted: Sequence[Failure]) -> State:
    """Says what became of the Pods before, which the Job controller has replaced."""
    if not disrupted:
        return state
    note = f" (its {len(disrupted)} Pods before were ended" if len(disrupted) > 1 else " (its Pod before was ended"
    note += f": {disrupted[-1].message})"
    if isinstance(state, Running):
        return Running(state.step, state.node, note)
    return Waiting(state.reason, state.message + note) if isinstance(state, Waiting) else state


def running_container(pod: Obj) -> tuple[str, datetime | None] | None:
    """The container whose log tells how far the attempt is, and since when it runs."""
    for container in container_statuses(pod):
        if (state := container.get("state", {}).get("running")) is not None:
            started = state.get("startedAt")
            return str(container["name"]), datetime.fromisoformat(started) if started else None
    return None


def has_just_begun(pod: Obj, now: datetime) -> bool:
    """Whether it is too early for the running container to have said anything."""
    running = running_container(pod)
    started = running[1] if running else None
    return started is not None and (now - started).total_seconds() < FIRST_LOOK_SECONDS


def _current_step(pod: Obj) -> str | None:
    """The container that runs, or is next while the Pod is between two; None before the first has started."""
    containers = container_statuses(pod)
    if not any({"running", "terminated"} & set(c.get("state", {})) for c in containers):
        return None
    ongoing = next((c for c in containers if "terminated" not in c.get("state", {})), containers[-1])
    return str(ongoing["name"])


def volume_problem(node: str, said: str) -> str:
    """What the kubelet or the attach controller says of a volume, and what would help."""
    advice = ""
    if MULTI_ATTACH in said:
        advice = (
            "; the claim is ReadWriteOnce and on another node: use a ReadWriteMany claim or a bucket, or name one node "
            "in spec.build.nodeSelector and spec.serving.nodeSelector"
        )
    return f"node {node} cannot have a volume of the Pod: {said}{advice}"


def _mounts(pod: Obj) -> str:
    """What has to exist before the Pod can start: the kubelet says so only in Events."""
    needs = [f"Secret {v['secret']['secretName']}" for v in pod["spec"].get("volumes", ()) if "secret" in v]
    needs += [
        f"claim {v['persistentVolumeClaim']['claimName']}"
        for v in pod["spec"].get("volumes", ())
        if "persistentVolumeClaim" in v
    ]
    return f"; it mounts {', '.join(needs)}" if needs else ""
