"""Conditions as the Kubernetes API conventions and kstatus define them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from .markers import ListMap, Status

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Status):
    """One thing that is true or not of the object, why, and since when."""

    type: Annotated[str, Field(max_length=316)]
    """What the condition is about, for example Ready."""
    status: ConditionStatus
    """Whether it is so."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why, in one word for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, for people: what is wrong, the numbers and what would fix it."""
    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)]
    """metadata.generation of the spec that the condition speaks of."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), ListMap("type")]


def transition(
    old: Iterable[Condition],
    type_: str,
    status: ConditionStatus,
    reason: str,
    message: str,
    *,
    generation: int,
    now: str,
) -> Condition:
    """The condition to write: `lastTransitionTime` moves only when `status` does, so a repeat writes nothing new."""
    before = next((c for c in old if c.type == type_), None)
    since = before.last_transition_time if before and before.status == status else now
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )


def truth(value: bool) -> ConditionStatus:
    return "True" if value else "False"


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"
