"""Which revision of a target serves, when another takes over from it, and which Deployments stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..objects import REVISION, Obj, annotation, label, timestamp
from .triton import SWITCHED_AT

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

    service: Obj | None
    deployments: Mapping[str, Obj]
    """By name, which is the revision's."""
    last_served: str | None = None
    """The revision that served when the status was written."""

    @property
    def selected(self) -> str | None:
        """The revision that the Service selects."""
        if self.service is None:
            return None
        selector: Mapping[str, str] = self.service["spec"].get("selector") or {}
        return selector.get(REVISION)

    @property
    def serving(self) -> str | None:
        """The revision that serves, or would if nothing of it had been deleted. A Service is made for a revision only
        once all its servers answer, so what one selects has served. Without a Service it is the one that the status
        remembers, or else one whose servers all answer."""
        if self.service is not None:
            return self.selected
        answering = (name for name, d in sorted(self.deployments.items()) if answering_servers(d) and available(d))
        return self.last_served or next(answering, None)

    def live(self, revision: str | None) -> Obj | None:
        return self.deployments.get(revision or "")


def available(live: Obj, replicas: int | None = None) -> bool:
    """Whether the Deployment runs as many ready Pods of its current template as it should (`replicas`, or its own), and
    none of an earlier template."""
    status, wanted = live.get("status", {}), live["spec"].get("replicas", 1) if replicas is None else replicas
    return bool(
        status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
        and live["spec"].get("replicas", 1) == wanted
        and status.get("updatedReplicas", 0) >= max(wanted, status.get("replicas", 0))
        and status.get("availableReplicas", 0) >= wanted
    )


def serves(live: Obj) -> bool:
    """Whether anything answers, or nothing is asked to."""
    return bool(answering_servers(live) or live["spec"].get("replicas", 1) == 0)


def answering_servers(live: Obj) -> int:
    return int(live.get("status", {}).get("availableReplicas", 0))


def takes_over(seen: Observed, revision: str, replicas: int, *, in_place: bool) -> bool:
    """Whether a revision may serve: all its Pods are available, or, where old servers are stopped for new ones
    (`in_place`), no fewer of them answer than of any other revision, whose GPUs the rest may need."""
    live = seen.live(revision)
    if live is None:
        return False
    others = max((answering_servers(d) for name, d in seen.deployments.items() if name != revision), default=0)
    outnumbers = answering_servers(live) >= max(1, others)
    return available(live, replicas) or (in_place and outnumbers)


def drain_seconds(seen: Observed, now: datetime) -> float:
    """How long routes to what served before may still exist; 0 when they are gone."""
    switched_at = annotation(seen.service, SWITCHED_AT) if seen.service else None
    if switched_at is None:
        return 0
    left = (datetime.fromisoformat(switched_at) + timedelta(seconds=DRAIN_AFTER_SWITCH_SECONDS) - now).total_seconds()
    return max(0.0, left)


def retired(seen: Observed, kept: Sequence[str | None]) -> tuple[Obj, ...]:
    """Deployments that neither serve nor are wanted any more: they hold GPUs."""
    return tuple(
        d for name, d in seen.deployments.items() if name not in kept and "deletionTimestamp" not in d["metadata"]
    )


@dataclass(frozen=True)
class Share:
    """The servers that old revision keeps while a new one waits for GPUs."""

    replicas: int
    marker: str | None = None
    """Value of the annotation `ROOM`."""
    again_seconds: float | None = None


def make_room(old: str, live: Obj, pods: Sequence[Obj], now: datetime, *, keep: int) -> Share:
    """Stop one server of revision `old`, whose Deployment is `live`, for what waits for GPUs; never below `keep`.

    `pods` are those of the target, without any that are over. Before each step everything that was stopped has to be
    gone, and the scheduler gets its time to place what waits.
    """
    count, marker = int(live["spec"].get("replicas", 1)), annotation(live, ROOM)
    running = [p for p in pods if label(p, REVISION) == old and "deletionTimestamp" not in p["metadata"]]
    if count <= keep or len(running) != count or any("deletionTimestamp" in p["metadata"] for p in pods):
        return Share(count, marker)
    counted, _, since = (marker or "").partition("@")
    if counted != str(count) or (began := _time(since)) is None:
        return Share(count, f"{count}@{timestamp(now)}", ROOM_SECONDS)
    left = (began + timedelta(seconds=ROOM_SECONDS) - now).total_seconds()
    if left > 0:
        return Share(count, marker, left)
    return Share(count - 1, marker)


def _time(text: str) -> datetime | None:
    """None for what a person has written over it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None
