"""The end of an artefact: its Jobs first, then its files by a CPU Job, then the finalizer that held it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..api import GROUP
from ..api.engineartifact import EngineArtifactSpec
from ..config import OperatorConfig
from ..objects import (
    ARTIFACT,
    ATTEMPT,
    CHECK,
    MANAGED,
    SCRATCH,
    Obj,
    condition_true,
    label,
)
from ..storage import access, step_mounts, volumes
from .jobs import base_pod, owned_job, step_container

FINALIZER = f"{GROUP}/files"
COLLECT_TIMEOUT_SECONDS = 3600
RETRY_PAUSE = timedelta(seconds=60)
"""Between a removal that failed and the next."""


@dataclass(frozen=True)
class Collection:
    create: tuple[Obj, ...] = ()
    delete: tuple[Obj, ...] = ()
    release: bool = False
    """Take the finalizer away: nothing of the artefact is left."""
    again_seconds: float | None = None


def plan_collection(
    artifact: Obj,
    jobs: tuple[Obj, ...],
    pods: tuple[Obj, ...],
    *,
    referenced: bool,
    config: OperatorConfig,
    now: datetime,
) -> Collection:
    """The next step towards the end of an artefact that is being deleted.

    An artefact that something needs (again) leaves its files alone: the object goes, whoever needs it makes it anew,
    and the first attempt finds it published.
    """
    if FINALIZER not in artifact["metadata"].get("finalizers", ()):
        # Released already. What owned its Jobs is gone, and another artefact may have its name and its files.
        return Collection()
    collect_name = f"{artifact['metadata']['name']}-collect"
    collect = next((j for j in jobs if j["metadata"]["name"] == collect_name), None)
    others = [j for j in jobs if j is not collect]
    if others:
        return Collection(delete=tuple(j for j in others if "deletionTimestamp" not in j["metadata"]))
    if any(label(p, ATTEMPT) or label(p, CHECK) for p in pods):
        return Collection()
    if collect is None and referenced:
        return Collection(release=True)
    if collect is None:
        return Collection(create=(collect_job(artifact, config),))
    if condition_true(collect, "Complete"):
        return Collection(release=True)
    if failed := condition_true(collect, "Failed"):
        left = (datetime.fromisoformat(failed["lastTransitionTime"]) + RETRY_PAUSE - now).total_seconds()
        return Collection(again_seconds=left) if left > 0 else Collection(delete=(collect,))
    return Collection()


def collect_job(artifact: Obj, config: OperatorConfig) -> dict[str, Any]:
    name = artifact["metadata"]["name"]
    spec = EngineArtifactSpec.model_validate(artifact["spec"])
    store = access(spec)
    labels = {MANAGED: "true", ARTIFACT: name}
    pod = base_pod(spec.policy, volumes(store))
    where = {"artifact": name, "store": store.argument, "scratch": SCRATCH}
    pod["containers"] = [step_container("collect", "collect", where, config, step_mounts(store, writable=True))]
    return owned_job(artifact, f"{name}-collect", labels, pod, COLLECT_TIMEOUT_SECONDS)
