"""What the containers of an attempt ask for and may use: computed, the user's own, and more after running out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..api.engineartifact import EngineArtifactSpec
from ..objects import GPU_RESOURCE
from .diagnosis import STEPS
from .failures import Growth
from .history import History

MEBIBYTE = 1 << 20
STEP_MEMORY_BYTES = 1 << 30
STEP_RESOURCES: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
SHARED_MEMORY_BYTES = 1 << 30
"""Of /dev/shm where nothing was computed: NCCL fails with less (troubleshooting.md)."""
SCRATCH_ROOM = 2
"""Times the planned size of the output that the scratch volume may hold: an estimate must not end a build."""


def work_resources(spec: EngineArtifactSpec, past: History) -> dict[str, Any]:
    """Of the container that converts or builds. What the user gives of a resource stands in place of all that was
    planned of it."""
    given = spec.policy.resources.dump() if spec.policy.resources else {}
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for resource, (request, limit) in _planned(spec, past).items():
        if not any(resource in part for part in given.values()):
            requests[resource] = request
            if limit:
                limits[resource] = limit
    requests |= given.get("requests", {})
    limits |= given.get("limits", {})
    if spec.policy.gpus:
        resource = spec.inputs.gpu.resource if spec.inputs.gpu else GPU_RESOURCE
        limits[resource] = str(spec.policy.gpus)
    return {name: part for name, part in (("requests", requests), ("limits", limits)) if part}


def _planned(spec: EngineArtifactSpec, past: History) -> Mapping[str, tuple[str, str | None]]:
    """Request and limit by resource. A build beyond its planned memory ends at once and says so."""
    planned = spec.policy.planned
    if planned is None:
        return {}
    out: dict[str, tuple[str, str | None]] = {"cpu": ("1", None)}
    if planned.host_memory_bytes:
        memory = mebibytes(past.grown("memory", planned.host_memory_bytes))
        out["memory"] = (memory, memory)
    if planned.ephemeral_storage_bytes:
        out["ephemeral-storage"] = (mebibytes(past.grown("ephemeral-storage", planned.ephemeral_storage_bytes)), None)
    return out


def give_steps_memory(pod: Mapping[str, Any], past: History) -> None:
    """More memory to the operator's own steps once they have run out."""
    limit = past.grown("memory", STEP_MEMORY_BYTES)
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        if container["name"] in STEPS:
            container["resources"] = {**STEP_RESOURCES, "limits": {"memory": mebibytes(limit)}}


def ask_for_scratch(pod: Mapping[str, Any], spec: EngineArtifactSpec, past: History) -> None:
    """Disk of the node for a model that passes through it. Elsewhere the container that does the work asks for it."""
    planned = spec.policy.planned
    if spec.type != "Model" or planned is None or not planned.ephemeral_storage_bytes:
        return
    room = mebibytes(past.grown("ephemeral-storage", planned.ephemeral_storage_bytes))
    container = pod["containers"][0]
    requests = {**container["resources"]["requests"], "ephemeral-storage": room}
    container["resources"] = {**container["resources"], "requests": requests}


def size_volumes(pod: Mapping[str, Any], spec: EngineArtifactSpec, past: History) -> None:
    """Limits of the scratch volume and of /dev/shm."""
    planned = spec.policy.planned
    for volume in pod["volumes"]:
        if volume["name"] == "shm":
            size = planned.shared_memory_bytes if planned and planned.shared_memory_bytes else SHARED_MEMORY_BYTES
            volume["emptyDir"] = {"medium": "Memory", "sizeLimit": mebibytes(size)}
        if volume["name"] == "scratch" and planned and planned.ephemeral_storage_bytes:
            room = past.grown("ephemeral-storage", planned.ephemeral_storage_bytes) * SCRATCH_ROOM
            volume["emptyDir"] = {"sizeLimit": mebibytes(room)}


def own_limit(spec: EngineArtifactSpec, reason: str) -> str | None:
    """The user's own limit that an attempt ran into, which is not exceeded."""
    resource = {"HostMemoryExhausted": "memory", "EphemeralStorageExhausted": "ephemeral-storage"}.get(reason)
    given = spec.policy.resources.dump() if spec.policy.resources else {}
    if resource is None or not any(resource in part for part in given.values()):
        return None
    return str(given.get("limits", {}).get(resource, given.get("requests", {}).get(resource)))


def describe_growth(spec: EngineArtifactSpec, past: History, what: Growth) -> str:
    """`10.5 GiB of memory`: what the next attempt gets."""
    planned = spec.policy.planned
    known = planned and (planned.host_memory_bytes if what == "memory" else planned.ephemeral_storage_bytes)
    size = past.grown(what, known or STEP_MEMORY_BYTES)
    return f"{size / 2**30:.1f} GiB of {what.replace('-', ' ')}"


def mebibytes(size: int) -> str:
    """A quantity in whole MiB, rounded up."""
    return f"{-(-size // MEBIBYTE)}Mi"
