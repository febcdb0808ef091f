"""The end of an artifact: its Jobs first, then its files by a CPU Job, then the finalizer that held it.

That Job is created suspended, and begins by a second write that holds for the Job as it was seen and only while the
artifact is there. Whoever hangs before creating it, until the artifact is gone and another one of the name is built,
creates a Job that does nothing and goes with its owner.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ..actions import Actions, Release, earliest
from ..api import GROUP
from ..api.engineartifact import EngineArtifactSpec, EngineArtifactStatus
from ..api.stored import read_status, read_stored
from ..objects import (
    ARTIFACT,
    ATTEMPT,
    BEGUN,
    CHECK,
    MANAGED,
    SCRATCH,
    Obj,
    annotation,
    condition_true,
    label,
)
from ..operator_config import OperatorConfig
from ..planning.keys import Mismatch
from ..storage import access, step_mounts, volumes
from .builders import without_builders
from .jobs import base_pod, owned_job, step_container

FINALIZER = f"{GROUP}/files"
COLLECT_TIMEOUT_SECONDS = 3600
_SUFFIX = "-collect"
RETRY_PAUSE = timedelta(seconds=60)
"""Between a removal that failed and the next."""
GIVE_UP = timedelta(hours=6)
"""After its deletion an artifact goes though its files could not be removed: neither it nor its namespace stays for
ever. An artifact of the same name finds them again."""


def plan_collection(
    artifact: Obj,
    jobs: tuple[Obj, ...],
    pods: tuple[Obj, ...],
    *,
    referenced: bool,
    claim_gone: bool = False,
    mismatch: Mismatch | None = None,
    config: OperatorConfig,
    now: datetime,
) -> Actions:
    """The next step towards the end of an artifact that is being deleted.

    An artifact that something needs (again) leaves its files alone: the object goes, whoever needs it makes it anew,
    and the first attempt finds it published. `claim_gone`: the claim that held its files does not exist any more or is
    being deleted, and no Pod can mount it. `mismatch`: why it is not what its name says.
    """
    if FINALIZER not in artifact["metadata"].get("finalizers", ()):
        # Released already. What owned its Jobs is gone, and another artifact may have its name and its files.
        return Actions()
    if mismatch and mismatch.later:
        return Actions()
    if mismatch:
        # The files under its name are another one's.
        return Actions(release=Release())
    waiting = tuple(j for j in jobs if _has_yet_to_begin(j))
    if claim_gone:
        return Actions(delete=waiting, release=Release())
    left = (datetime.fromisoformat(artifact["metadata"]["deletionTimestamp"]) + GIVE_UP - now).total_seconds()
    removing = any((p.get("status") or {}).get("phase") == "Running" for p in pods)
    if left <= 0 and not removing:
        why = f"not removed within {GIVE_UP.total_seconds() / 3600:g} h, given up: they may still be in the store"
        return Actions(delete=waiting, release=Release(f"files of {artifact['metadata']['name']} were {why}"))
    step = _next(artifact, jobs, pods, referenced=referenced, config=config, now=now)
    if (step.release and not step.create) or left <= 0:
        return step
    return replace(step, again_seconds=earliest((left, step.again_seconds)))


def _next(
    artifact: Obj,
    jobs: tuple[Obj, ...],
    pods: tuple[Obj, ...],
    *,
    referenced: bool,
    config: OperatorConfig,
    now: datetime,
) -> Actions:
    collect_name = f"{artifact['metadata']['name']}{_SUFFIX}"
    own = (j for j in jobs if _is_owned_by(j, artifact))
    collect = next((j for j in own if j["metadata"]["name"] == collect_name), None)
    others = [j for j in jobs if j is not collect]
    if others:
        return Actions(delete=tuple(j for j in others if "deletionTimestamp" not in j["metadata"]))
    if any(label(p, ATTEMPT) or label(p, CHECK) for p in pods):
        return Actions()
    if collect is None and referenced:
        return Actions(release=Release())
    if collect is None:
        return Actions(create=(collect_job(artifact, config),), release=Release(if_terminating=True))
    if _has_yet_to_begin(collect):
        # Once its controller has seen it, which writes to it too. A queue may suspend it again, and is left to.
        return Actions(begin=collect if condition_true(collect, "Suspended") else None)
    if condition_true(collect, "Complete"):
        return Actions(release=Release())
    if failed := condition_true(collect, "Failed"):
        left = (datetime.fromisoformat(failed["lastTransitionTime"]) + RETRY_PAUSE - now).total_seconds()
        return Actions(again_seconds=left) if left > 0 else Actions(delete=(collect,))
    return Actions()


def _is_owned_by(job: Obj, artifact: Obj) -> bool:
    """Not one of an earlier artifact of the name, created late."""
    uids = [reference["uid"] for reference in job["metadata"].get("ownerReferences") or ()]
    return artifact["metadata"]["uid"] in uids


def _has_yet_to_begin(job: Obj) -> bool:
    return bool(job["metadata"]["name"].endswith(_SUFFIX) and job["spec"].get("suspend") and not annotation(job, BEGUN))


def beginning() -> dict[str, Any]:
    """What lets a Job that was created suspended begin, once."""
    return {"metadata": {"annotations": {BEGUN: "true"}}, "spec": {"suspend": False}}


def collect_job(artifact: Obj, config: OperatorConfig) -> dict[str, Any]:
    """The Job that removes the files: on a CPU, with the store writable, and suspended."""
    name = artifact["metadata"]["name"]
    stored = read_stored(EngineArtifactSpec, artifact["spec"])
    spec = without_builders(stored, read_status(EngineArtifactStatus, artifact.get("status")))
    store = access(spec)
    labels = {MANAGED: "true", ARTIFACT: name}
    pod = base_pod(spec.policy, volumes(store))
    where = {"artifact": name, "store": store.argument, "scratch": SCRATCH}
    pod["containers"] = [step_container("collect", "collect", where, config, step_mounts(store, writable=True))]
    job = owned_job(artifact, f"{name}{_SUFFIX}", labels, pod, COLLECT_TIMEOUT_SECONDS)
    job["spec"]["suspend"] = True
    return job
