"""Which revision a target's Service selects, and which Deployments stay: the switch to what is proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..actions import NOTHING, Actions
from ..objects import REVISION, Obj, annotation, label, timestamp
from .revision import Revision
from .triton import SWITCHED_AT, deployment, service

DRAIN_AFTER_SWITCH_SECONDS = 5
"""The old revision stays this long after the Service left it, so that every node has the new routes."""


ROOM_SECONDS = 30
"""How long the scheduler gets to place what waits, once the GPUs of a server that was stopped are free, before another
is stopped: it tries again within 10 s (podMaxBackoffSeconds of kube-scheduler)."""
ROOM = "llmengine.dev/making-room"
"""On a Deployment whose servers are stopped to make room: how many run, and since when nothing of it is ending."""


@dataclass(frozen=True)
class Observed:
    """What exists of one target."""

    service_name: str
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
    """The next step of one target, and what serves after it."""

    actions: Actions = NOTHING
    served: str | None = None
    """The revision that serves after this step, None when nothing proven does."""


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


def superseded(wanted: str, seen: Observed, now: datetime) -> tuple[Obj, ...]:
    """Deployments that neither serve nor are wanted any more, once routes to them have gone: they hold GPUs."""
    switched_at = annotation(seen.service, SWITCHED_AT) if seen.service else None
    if switched_at and now < datetime.fromisoformat(switched_at) + timedelta(seconds=DRAIN_AFTER_SWITCH_SECONDS):
        return ()
    if seen.selected in (None, wanted):
        return ()  # those that were left by the last switch go when it is over
    kept = {wanted, seen.selected}
    return tuple(
        d for name, d in seen.deployments.items() if name not in kept and "deletionTimestamp" not in d["metadata"]
    )


def make_room(owner: Obj, old: Revision, live: Obj, pods: Sequence[Obj], now: datetime, *, keep: int) -> Actions:
    """Stop one server of `old`, whose Deployment is `live`, for what waits for GPUs; never below `keep`.

    `pods` are those of the target, without any that are over. Before each step everything that was stopped has to be
    gone, and the scheduler gets its time to place what waits.
    """
    count = int(live["spec"].get("replicas", 1))
    running = [p for p in pods if label(p, REVISION) == old.name and "deletionTimestamp" not in p["metadata"]]
    if count <= keep or len(running) != count or any("deletionTimestamp" in p["metadata"] for p in pods):
        return Actions()
    counted, _, since = (annotation(live, ROOM) or "").partition("@")
    if counted != str(count):
        stamped = deployment(owner, old, count, {ROOM: f"{count}@{timestamp(now)}"})
        return Actions(apply=(stamped,), again_seconds=ROOM_SECONDS)
    left = (datetime.fromisoformat(since) + timedelta(seconds=ROOM_SECONDS) - now).total_seconds()
    if left > 0:
        return Actions(again_seconds=left)
    return Actions(apply=(deployment(owner, old, count - 1, {ROOM: f"{count}@{since}"}),))


def _outnumbers(live: Obj, wanted: str, seen: Observed) -> bool:
    """Whether of the new revision something answers, and no less than of all others."""
    others = max((_answering(d) for name, d in seen.deployments.items() if name != wanted), default=0)
    return _answering(live) >= max(1, others)


def _answering(live: Obj) -> int:
    return int(live.get("status", {}).get("availableReplicas", 0))


def step(
    owner: Obj,
    target: str,
    wanted: Revision | None,
    replicas: int,
    seen: Observed,
    now: datetime,
    *,
    in_place: bool = False,
) -> Step:
    """The next step of one target towards `wanted`, a revision whose engine is proven; None while there is none yet.

    The Service moves only to a revision whose Pods are all available; until then what served goes on serving, and after
    it the old Deployment is kept until the routes have followed. `in_place`: it moves as soon as no fewer Pods of the
    new revision answer than of the old one, whose GPUs the others may need.
    """
    if wanted is None:
        return Step(served=seen.selected)
    apply: list[Obj] = [deployment(owner, wanted, replicas)]
    live = seen.deployments.get(wanted.name)
    selected = seen.selected
    proven = live is not None and (available(live, replicas) or (in_place and _outnumbers(live, wanted.name, seen)))
    if selected != wanted.name and (proven or selected not in seen.deployments):
        # Nothing proven is lost by moving: either the new revision is ready, or the selected one does not exist.
        apply.append(service(owner, seen.service_name, target, wanted.name, timestamp(now)))
        drained = Actions(apply=tuple(apply), again_seconds=DRAIN_AFTER_SWITCH_SECONDS)
        return Step(drained, served=wanted.name if proven else None)
    if selected != wanted.name:
        return Step(Actions(apply=tuple(apply)), served=selected)
    assert seen.service is not None
    switched_at = annotation(seen.service, SWITCHED_AT) or timestamp(now)
    apply.append(service(owner, seen.service_name, target, wanted.name, switched_at))
    old = tuple(
        d for name, d in seen.deployments.items() if name != wanted.name and "deletionTimestamp" not in d["metadata"]
    )
    left = (datetime.fromisoformat(switched_at) + timedelta(seconds=DRAIN_AFTER_SWITCH_SECONDS) - now).total_seconds()
    served = wanted.name
    if not old or not proven:
        return Step(Actions(apply=tuple(apply)), served)
    if left > 0:
        return Step(Actions(apply=tuple(apply), again_seconds=left), served)
    return Step(Actions(apply=tuple(apply), delete=old), served)
