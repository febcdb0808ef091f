"""Targets that the spec does not name any more: they serve on until the target that takes their place does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..actions import Actions
from ..objects import TARGET, Obj, label, timestamp
from ..planning.expansion import ConcreteTarget
from ..serving import restart, rollout
from ..serving.revision import Revision
from ..serving.triton import SWITCHED_AT, deployment, service
from .server_problem import WAITING_FOR_GPU
from .snapshot import EngineSnapshot
from .status import TargetOutcome
from .target import observe_target


@dataclass(frozen=True)
class Predecessor:
    """What serves under a name that the spec does not have any more."""

    target: str
    revision: Revision
    observed: rollout.Observed


def predecessors(
    seen: EngineSnapshot, targets: Sequence[ConcreteTarget], last_served: Mapping[str, str | None]
) -> dict[str, Predecessor]:
    """By the target that takes the place: the first one for the same class of GPUs, while nothing serves there yet.

    A target that was taken out of the spec, rather than renamed, has no such successor, and goes at once.
    """
    named = {one.name for one in targets}
    found: dict[str, Predecessor] = {}
    for old in sorted({label(s, TARGET) or "" for s in seen.services.values()} - named):
        observed = observe_target(seen, old, last_served.get(old))
        revision = seen.revision(observed.serving)
        if revision is None:
            continue
        gpu = revision.engine.spec.inputs.gpu
        for one in targets:
            serves = observe_target(seen, one.name, last_served.get(one.name)).serving is not None
            if one.name not in found and one.gpu_class == gpu and not serves:
                found[one.name] = Predecessor(old, revision, observed)
                break
    return found


def gives_way(outcome: TargetOutcome, *, recreates: bool) -> bool:
    """Whether the servers under the old name are stopped for those under the new one."""
    return recreates and outcome.reason == WAITING_FOR_GPU


def keep(seen: EngineSnapshot, old: Predecessor, replicas: int) -> Actions:
    """What serves under the old name, healed, with as many servers as the spec asks of the new one."""
    restarts = restart.restart_annotations(seen.engine, old.target, old.observed.live(old.revision.name))
    since = old.observed.service and (old.observed.service["metadata"].get("annotations") or {}).get(SWITCHED_AT)
    name = seen.service_name(old.target)
    return Actions(
        apply=(
            deployment(seen.engine, old.revision, replicas, restarts=restarts),
            service(seen.engine, name, old.target, old.revision.name, since or timestamp(seen.now)),
        )
    )


def note(old: Predecessor, service_name: str) -> str:
    """What to say of the successor that is not ready."""
    return f"until then target {old.target} serves on, at Service {service_name}"


def leftovers(seen: EngineSnapshot, named: set[str], kept: Sequence[Predecessor]) -> tuple[Obj, ...]:
    """Objects of targets that the spec does not name and that nothing is to take the place of."""
    needed = {one.revision.name for one in kept}
    stay = {one.target for one in kept}
    return tuple(
        live
        for live in (
            *seen.deployments.values(),
            *seen.services.values(),
            *seen.budgets.values(),
            *seen.revisions.values(),
        )
        if (target := label(live, TARGET)) not in named
        and "deletionTimestamp" not in live["metadata"]
        and not (target in stay and (live["kind"] in _ROUTES or live["metadata"]["name"] in needed))
    )


_ROUTES = ("Service", "PodDisruptionBudget")
