"""Servers of a new revision that do not come up: when they are stopped, and what is remembered of that.

The record is an annotation of the Deployment, which stays without Pods. Deleting the Deployment has the revision tried
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..api import GROUP
from ..artifacts.damage import DAMAGED, UNFIT
from ..artifacts.secrets import Secrets
from ..objects import RETRY, Obj, annotation, condition_true
from ..pods import container_statuses, is_over
from .health import Problem, problem
from .triton import progress_deadline_seconds

GIVEN_UP = f"{GROUP}/given-up"
RESTARTS, RESTARTS_IF_IT_MAY_PASS = 3, 10
"""Of a container, after which its revision is given up. With the kubelet's pauses that is a minute and a half, or half
an hour where waiting may help."""
REPAIRED = frozenset({DAMAGED, *UNFIT, "GpuMemoryHeld"})
"""Failures that the operator itself is about to mend."""
_MAX_MESSAGE = 4096


class GivenUp(BaseModel):
    """Why a revision's servers were stopped, and under which circumstances they are not tried again."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]+$")]
    message: Annotated[str, Field(max_length=_MAX_MESSAGE)]
    generation: int
    """Of the LLMEngine."""
    retry: Annotated[str | None, Field(max_length=1024)] = None
    """Its retry annotation."""
    secrets: Annotated[str | None, Field(max_length=64)] = None
    pull_secrets: Annotated[str | None, Field(max_length=64)] = None
    """Digests of the Secrets that its servers depend on; None: they were not known."""

    def holds(self, engine: Obj, secrets: Secrets) -> bool:
        """Whether nothing has changed since that may help."""
        pairs = ((self.secrets, secrets.named), (self.pull_secrets, secrets.pull))
        changed = any(before is not None and now is not None and before != now for before, now in pairs)
        same = self.generation == engine["metadata"]["generation"] and self.retry == _retry(engine)
        return same and not changed


def read_given_up(live: Obj | None) -> GivenUp | None:
    """None also for what a person has written over it."""
    text = annotation(live, GIVEN_UP) if live else None
    try:
        return GivenUp.model_validate_json(text) if text else None
    except ValidationError:
        return None


def give_up(engine: Obj, template: Obj, pods: Iterable[Obj], secrets: Secrets, now: datetime) -> GivenUp | None:
    """Whether the servers with these Pods are not worth their GPUs any more: none of those that serve."""
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        if "deletionTimestamp" in pod["metadata"] or is_over(pod) or condition_true(pod, "Ready"):
            continue
        found = problem([pod])
        if found and found.reason in REPAIRED:
            continue
        why = _crashes(pod, found) or _is_late(pod, found, template, now)
        if why:
            return GivenUp(
                reason=found.reason if found else "ServerNotReady",
                message=why[:_MAX_MESSAGE],
                generation=engine["metadata"]["generation"],
                retry=_retry(engine),
                secrets=secrets.named,
                pull_secrets=secrets.pull,
            )
    return None


def seconds_until_late(template: Obj, pods: Iterable[Obj], now: datetime) -> float | None:
    """Until the first of the Pods that are not ready is late; None where there is none."""
    waiting = (p for p in pods if not condition_true(p, "Ready") and "deletionTimestamp" not in p["metadata"])
    left = [(due - now).total_seconds() for p in waiting if (due := _due(p, template))]
    return min((s for s in left if s > 0), default=None)


def _crashes(pod: Obj, found: Problem | None) -> str | None:
    if found is None:
        return None
    restarts = max((int(s.get("restartCount", 0)) for s in container_statuses(pod) if not s.get("ready")), default=0)
    if restarts < (RESTARTS if found.stalled else RESTARTS_IF_IT_MAY_PASS):
        return None
    return f"{found.message}; stopped after {restarts} restarts, its GPUs are free again"


def _is_late(pod: Obj, found: Problem | None, template: Obj, now: datetime) -> str | None:
    due = _due(pod, template)
    if due is None or now < due:
        return None
    seconds = progress_deadline_seconds(template)
    last = f": {found.message}" if found else ""
    node = pod["spec"].get("nodeName")
    return f"a server on node {node} is not ready after {seconds} s{last}; stopped, its GPUs are free again"


def _due(pod: Obj, template: Obj) -> datetime | None:
    """When a Pod that a node has taken should be ready; one that waits for a node may do so for days."""
    started = pod.get("status", {}).get("startTime")
    if not started or not pod["spec"].get("nodeName"):
        return None
    return datetime.fromisoformat(started) + timedelta(seconds=progress_deadline_seconds(template))


def _retry(engine: Obj) -> str | None:
    text = annotation(engine, RETRY)
    return text[:1024] if text else None
