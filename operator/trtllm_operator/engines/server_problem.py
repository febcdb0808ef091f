"""Why the servers of a revision are not ready, and which servers hold the GPUs that they wait for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ..api.llmengine import Rollout
from ..artifacts.attempt import volume_problem
from ..artifacts.placement import ending_on, obstacles, requests
from ..objects import REVISION, Obj, label
from ..pods import is_over, waits_for_volumes
from ..serving.health import Problem, problem
from ..serving.revision import Revision, read_revision
from .snapshot import EngineSnapshot

WAITING_FOR_GPU = "WaitingForGpu"
GPU_MEMORY = "GpuMemoryExhausted"


def server_problem(seen: EngineSnapshot, revision: Revision, rollout: Rollout, selected: str | None) -> Problem | None:
    """The first thing wrong with the Pods of a revision; `selected` is the one that serves."""
    pods = [p for p in seen.pods if label(p, REVISION) == revision.name]
    # What has become of one that is over matters less than what its replacement waits for.
    for pod in sorted(pods, key=lambda p: (is_over(p), str(p["metadata"]["name"]))):
        if found := problem([pod]):
            return _explained(seen, revision, pod, found, rollout, selected)
        if waits_for_volumes(pod) and (said := seen.volume_events.get(pod["metadata"]["uid"])):
            return Problem("VolumeUnavailable", volume_problem(pod["spec"]["nodeName"], said), stalled=False)
    return None


def waits_for_gpu_since(seen: EngineSnapshot, revision: str) -> list[datetime]:
    """When the scheduler began to find no free GPU, for each Pod of a revision that waits for one."""
    out: list[datetime] = []
    for pod in seen.pods:
        conditions: list[Obj] = (pod.get("status") or {}).get("conditions") or []
        found: Obj = next((c for c in conditions if c["type"] == "PodScheduled"), {})
        if label(pod, REVISION) != revision or found.get("status") != "False" or "deletionTimestamp" in pod["metadata"]:
            continue
        if obstacles(pod, seen.nodes, str(found.get("message", ""))).reason == WAITING_FOR_GPU:
            since = found.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
            out += [datetime.fromisoformat(since)] if since else []
    return out


def _explained(
    seen: EngineSnapshot, revision: Revision, pod: Obj, found: Problem, rollout: Rollout, selected: str | None
) -> Problem:
    node = pod["spec"].get("nodeName")
    if found.reason == GPU_MEMORY and (leaving := ending_on(seen.ending, node)):
        why = f"Pod {leaving['metadata']['name']} is ending on node {node} and may still hold it; tried again"
        return Problem("GpuMemoryHeld", f"a server found no free GPU memory: {why}", stalled=False)
    if found.reason == "Unschedulable":
        said = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled").get("message", "")
        why_not = obstacles(pod, seen.nodes, str(said))
        made = Problem(why_not.reason, f"a server Pod {why_not.message}", stalled=False)
        return replace(made, message=made.message + gpu_holders(seen, revision, rollout, selected, made.reason))
    return found


def share_gpus(old: Revision, new: Revision) -> bool:
    """Whether GPUs that `old` gives up are such as `new` asks for: a target may have moved to another product."""
    gpus = [revision.engine.spec.inputs.gpu for revision in (old, new)]
    return len({(gpu.product, gpu.resource) for gpu in gpus if gpu}) == 1


def gpu_holders(seen: EngineSnapshot, revision: Revision, rollout: Rollout, selected: str | None, reason: str) -> str:
    """Who of ours holds the GPUs that something of a new revision waits for, and what would free them."""
    old = seen.revisions.get(selected or "")
    if reason != WAITING_FOR_GPU or old is None or not share_gpus(read_revision(old), revision):
        return ""
    holders = [p for p in seen.pods if label(p, REVISION) == selected and "nodeName" in p["spec"] and not is_over(p)]
    if not holders:
        return ""
    gpus = sum(int(amount) for p in holders for name, amount in requests(p).items() if name.startswith("nvidia.com/"))
    servers = (
        f"{len(holders)} servers that serve now hold {gpus}"
        if len(holders) > 1
        else f"1 server that serves now holds {gpus}"
    )
    if rollout.strategy == "Recreate":
        return f"; the {servers}: as spec.rollout says, old servers are stopped for it, one at a time"
    return (
        f"; the {servers}: add GPUs, lower replicas, or set spec.rollout.strategy to Recreate, which stops old servers "
        "for new ones and interrupts serving where there is only one"
    )
