"""Reading Pods: what their containers say and how they ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .objects import Obj, condition_true, label

IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
"""Waiting reasons of a container whose image cannot be had; the kubelet goes on trying."""


def pods_of(job: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """Those that the Job controller has made for a Job: no Pod of its label that something else controls."""
    return [p for p in pods if label(p, "job-name") == job["metadata"]["name"] and _is_controlled(p, job)]


def _is_controlled(pod: Obj, job: Obj) -> bool:
    references: Iterable[Obj] = pod["metadata"].get("ownerReferences") or ()
    uid = job["metadata"].get("uid")
    return all(reference["uid"] == uid for reference in references if reference.get("controller"))


def is_over(pod: Obj) -> bool:
    """Whether none of its containers runs or will: one that was evicted or refused stays beside its replacement."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def container_statuses(pod: Obj) -> list[Obj]:
    """Init containers first, in the order they run."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def waits_for_volumes(pod: Obj) -> bool:
    """Whether a node has the Pod, none of its containers has begun, and its volumes may be what is missing."""
    if "deletionTimestamp" in pod["metadata"] or not pod["spec"].get("nodeName"):
        return False
    # True once the sandbox is there, which comes after the volumes (Kubernetes 1.29 and later).
    if condition_true(pod, "PodReadyToStartContainers"):
        return False
    return not any(
        {"running", "terminated"} & {*c.get("state", {}), *c.get("lastState", {})} for c in container_statuses(pod)
    )


def termination_report(terminated: Obj) -> Mapping[str, Any] | None:
    """The JSON object a step left in its termination message, None when it left no such thing."""
    try:
        report = json.loads(terminated.get("message") or "")
    except ValueError:
        return None
    return report if isinstance(report, dict) else None


def memory_limit(pod: Obj, container: str) -> str | None:
    """Memory limit of one container, as its spec writes it."""
    spec = pod["spec"]
    containers: list[Obj] = [*(spec.get("initContainers") or ()), *spec["containers"]]
    found = next((c for c in containers if c["name"] == container), {})
    value = found.get("resources", {}).get("limits", {}).get("memory")
    return None if value is None else str(value)
