"""What a status says while somebody else's objects have the names of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api.conditions import Condition, transition
from ..api.stored import read_stored

NAME_TAKEN = "NameTaken"
_KEPT = frozenset({"Ready", "Reconciling", "Stalled"})


def with_taken_names(
    status: Mapping[str, Any], before: Mapping[str, Any], taken: Sequence[str], *, generation: int, now: str
) -> dict[str, Any]:
    """`status` with the names that are taken, each with whose they are and what to do; `before` is the one that was
    written last. It is a person who has to act, so nothing else keeps the object from being Ready first."""
    message = "; ".join(taken)
    old = [read_stored(Condition, c) for c in before.get("conditions") or ()]

    def condition(type_: str, value: Any) -> dict[str, Any]:
        return transition(old, type_, value, NAME_TAKEN, message, generation=generation, now=now).dump()

    others = [c for c in status.get("conditions") or () if c["type"] not in _KEPT]
    said = [condition("Ready", "False"), condition("Stalled", "True"), *others]
    return {**status, "reason": NAME_TAKEN, "conditions": said}
