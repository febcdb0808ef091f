"""What `kubectl delete --cascade=orphan` leaves behind, and what takes it back."""

from __future__ import annotations

from collections.abc import Iterable

from ..actions import Actions
from ..objects import Obj
from .snapshot import EngineSnapshot

ORPHAN = "orphan"
"""The garbage collector's finalizer, while it takes owner references away."""


def plan_end(engine: Obj, revisions: Iterable[Obj]) -> Actions:
    """For an LLMEngine that is being deleted. The garbage collector does everything, but that it cannot orphan
    revisions of earlier versions, whose data are not the bytes that it would write."""
    if ORPHAN not in engine["metadata"].get("finalizers", ()):
        return Actions()
    return Actions(disown=tuple(r for r in revisions if r["metadata"].get("ownerReferences")))


def taken_back(seen: EngineSnapshot) -> Actions:
    """Orphans of an LLMEngine of this name. Deployments and Services are taken back as they are applied."""
    kept = (*seen.revisions.values(), *seen.inspections.values())
    return Actions(adopt=tuple(obj for obj in kept if not obj["metadata"].get("ownerReferences")))
