"""Which revision a target's Service selects, and which Deployments stay: the switch to what is proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..objects import REVISION, Obj, annotation, timestamp
from .revision import Revision
from .triton import SWITCHED_AT, deployment, service

DRAIN_AFTER_SWITCH_SECONDS = 5
"""The old revision stays this long after the Service left it, so that every node has the new routes."""


@dataclass(frozen=True)
class Observed:
    """What exists of one target."""

    service: Obj | None
    deployments: Mapping[str, Obj]
    """By name, which is the revision's."""

    @property
    def selected(self) -> str | None:
        """The revision that the Service selects."""
        if self.service is None:
            return None
        selector: Mapping[str, str] = self.service["spec"].get("selector") or {}
        return selector.get(REVISION)


@dataclass(frozen=True)
class Step:
    apply: tuple[Obj, ...] = ()
    delete: tuple[Obj, ...] = ()
    served: str | None = None
    """The revision that serves after this step, None when nothing proven does."""
    again_seconds: float | None = None


def available(live: Obj, replicas: int | None = None) -> bool:
    """Whether the Deployment runs as many ready Pods of its current template as it should (`replicas`, or its own)."""
    status, wanted = live.get("status", {}), live["spec"].get("replicas", 1) if replicas is None else replicas
    return bool(
        status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
        and live["spec"].get("replicas", 1) == wanted
        and status.get("updatedReplicas", 0) >= wanted
        and status.get("availableReplicas", 0) >= wanted
    )


def serves(live: Obj) -> bool:
    """Whether anything answers, or nothing is asked to."""
    return bool(live.get("status", {}).get("availableReplicas", 0) or live["spec"].get("replicas", 1) == 0)


def step(owner: Obj, target: str, wanted: Revision | None, replicas: int, seen: Observed, now: datetime) -> Step:
    """The next step of one target towards `wanted`, a revision whose engine is proven; None while there is none yet.

    The Service moves only to a revision whose Pods are all available; until then what served goes on serving, and after
    it the old Deployment is kept until the routes have followed.
    """
    if wanted is None:
        return Step(served=seen.selected)
    apply: list[Obj] = [deployment(owner, wanted, replicas)]
    live = seen.deployments.get(wanted.name)
    selected = seen.selected
    proven = live is not None and available(live, replicas)
    if selected != wanted.name and (proven or selected not in seen.deployments):
        # Nothing proven is lost by moving: either the new revision is ready, or the selected one does not exist.
        apply.append(service(owner, target, wanted.name, timestamp(now)))
        return Step(tuple(apply), served=wanted.name if proven else None, again_seconds=DRAIN_AFTER_SWITCH_SECONDS)
    if selected != wanted.name:
        return Step(tuple(apply), served=selected)
    assert seen.service is not None
    switched_at = annotation(seen.service, SWITCHED_AT) or timestamp(now)
    apply.append(service(owner, target, wanted.name, switched_at))
    old = tuple(
        d for name, d in seen.deployments.items() if name != wanted.name and "deletionTimestamp" not in d["metadata"]
    )
    left = (datetime.fromisoformat(switched_at) + timedelta(seconds=DRAIN_AFTER_SWITCH_SECONDS) - now).total_seconds()
    served = wanted.name
    if not old or not proven:
        return Step(tuple(apply), served=served)
    if left > 0:
        return Step(tuple(apply), served=served, again_seconds=left)
    return Step(tuple(apply), delete=old, served=served)
