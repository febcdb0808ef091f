"""What a plan wants done: one value for every kind, and the order in which it is carried out.

Plans are pure functions that return `Actions`; `reconcile.executor` carries them out in the order of the fields below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .objects import Obj


@dataclass(frozen=True)
class Release:
    """Take the operator's finalizer from the object that the plan is for."""

    left_behind: str = ""
    """What may be left of it, as a warning for the log."""
    if_terminating: bool = False
    """Only where the namespace is being deleted and refuses what the plan creates."""


@dataclass(frozen=True)
class Actions:
    """Immutable. Each field is carried out for all its objects before the next one is begun.

    0. `adopt` and `disown`: whose objects are comes before what they say.
    1. `create`: what later writes depend on comes first. Where something was created, the plan is made again.
    2. `apply`: server-side apply; what does not differ is not written.
    3. `status`: recorded before anything is deleted, so that what an object showed is not lost with it.
    4. `delete`
    5. `begin`, `release`: the two steps at the end of an artifact that must not be taken twice.
    """

    adopt: tuple[Obj, ...] = ()
    """Orphans, which nobody controls: the object that the plan is for does from now on."""
    disown: tuple[Obj, ...] = ()
    """What the object that the plan is for leaves behind."""
    create: tuple[Obj, ...] = ()
    """Created once and never changed: that it exists already is success."""
    apply: tuple[Obj, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    """Of the object that the plan is for; empty leaves it alone."""
    delete: tuple[Obj, ...] = ()
    begin: Obj | None = None
    """A suspended Job of the object that may begin, while the object is still there."""
    release: Release | None = None
    again_seconds: float | None = None
    """When to plan again although nothing has changed; None waits for a change."""


NOTHING = Actions()


def combined(parts: Iterable[Actions], status: Mapping[str, Any] | None = None) -> Actions:
    """The parts of one plan as one: what several ask for is done once, and the earliest time counts."""
    every = tuple(parts)
    return Actions(
        adopt=_unique(obj for part in every for obj in part.adopt),
        disown=_unique(obj for part in every for obj in part.disown),
        create=_unique(obj for part in every for obj in part.create),
        apply=_unique(obj for part in every for obj in part.apply),
        status=status or {},
        delete=_unique(obj for part in every for obj in part.delete),
        again_seconds=earliest(part.again_seconds for part in every),
    )


def earliest(seconds: Iterable[float | None]) -> float | None:
    """The least of those that are set."""
    return min((s for s in seconds if s is not None), default=None)


def _unique(objects: Iterable[Obj]) -> tuple[Obj, ...]:
    by_name: dict[tuple[str, str], Obj] = {}
    for obj in objects:
        by_name.setdefault((obj["kind"], obj["metadata"]["name"]), obj)
    return tuple(by_name.values())
