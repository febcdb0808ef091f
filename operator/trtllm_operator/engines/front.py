"""The endpoint of an LLMEngine: what it takes for what is served and about to be, and how it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..actions import Actions
from ..api.llmengine import LLMEngineSpec
from ..artifacts.plan import is_ready
from ..objects import Obj
from ..serving.front_objects import endpoint_url, front_objects
from ..serving.revision import read_revision
from ..serving.rollout import available
from ..storage import Access
from .snapshot import EngineSnapshot
from .status import FrontState, TargetOutcome


@dataclass(frozen=True)
class FrontPlan:
    """What to do for the endpoint, and what status says of it."""

    actions: Actions
    state: FrontState | None


def plan_front(seen: EngineSnapshot, spec: LLMEngineSpec, outcomes: Iterable[TargetOutcome]) -> FrontPlan:
    """The endpoint's objects are made as soon as a model is in the store, so that it is there when the servers are."""
    models = _models(seen, outcomes)
    s3 = spec.storage.s3
    store = Access(spec.storage.location, s3.credentials_secret_ref.name if s3 else None)
    wanted = front_objects(seen.engine, spec.front, models, store, seen.config)
    kept = {(o["kind"], o["metadata"]["name"]) for o in wanted}
    # Where no model is known any more, the endpoint that there is stays as it is.
    unwanted = tuple(
        live
        for live in seen.front
        if (wanted or spec.front.replicas == 0)
        and (live["kind"], live["metadata"]["name"]) not in kept
        and "deletionTimestamp" not in live["metadata"]
    )
    return FrontPlan(Actions(apply=wanted, delete=unwanted), _state(seen, spec, bool(wanted)))


def _models(seen: EngineSnapshot, outcomes: Iterable[TargetOutcome]) -> frozenset[str]:
    """Model artifacts that are in the store and whose text is, or will be, asked for."""
    names: set[str] = set()
    for outcome in outcomes:
        if stored := seen.revisions.get(outcome.served or ""):
            names.add(read_revision(stored).artifacts[0].name)
        if outcome.revision:
            names.add(outcome.revision.artifacts[0].name)
    return frozenset(name for name in names if (live := seen.artifacts.get(name)) is not None and is_ready(live))


def _state(seen: EngineSnapshot, spec: LLMEngineSpec, wanted: bool) -> FrontState | None:
    if spec.front.replicas == 0:
        return None
    live = _deployment(seen)
    if live is None and not wanted:
        return FrontState(None, False, "WaitingForModel", "the endpoint starts once the model is in the store")
    if live is not None and available(live, spec.front.replicas):
        return FrontState(endpoint_url(seen.engine), True, "Available", "")
    ready = (live or {}).get("status", {}).get("availableReplicas", 0)
    message = f"{ready} of {spec.front.replicas} Pods of the endpoint are ready"
    return FrontState(endpoint_url(seen.engine), bool(ready), "Available" if ready else "StartingFront", message)


def _deployment(seen: EngineSnapshot) -> Obj | None:
    return next((o for o in seen.front if o["kind"] == "Deployment"), None)
