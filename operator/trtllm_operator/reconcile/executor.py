"""Carries out what a plan wants done, in the order that `actions.Actions` gives."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ..actions import Actions, Release
from ..artifacts.collection import FINALIZER, beginning
from ..artifacts.taken import with_taken_names
from ..kube.apply import Applier
from ..kube.cache import Cache
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.ownership import NameTakenError
from ..kube.resource import JOB, Obj
from ..objects import owner_reference, timestamp
from .metrics import DomainMetrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Executor:
    client: Client
    cache: Cache
    applier: Applier
    metrics: DomainMetrics | None = None

    async def carry_out(self, owner: Obj | None, actions: Actions, *, may_plan_again: bool = False) -> bool:
        """Write what the plan for `owner` asks for. False where it stopped to be planned again, which takes what was
        created into account: the status is then written once and not for each step.

        Names that are taken keep nothing else from being written. The status says them; then the first is raised, so
        that the key is looked at again: what has them is not watched.

        A plan without an owner has neither status nor end.
        """
        if owner is not None:
            for obj in actions.adopt:
                await self.applier.adopt(dict(obj), owner_reference(owner))
        for obj in actions.disown:
            await self.applier.disown(dict(obj))
        release = actions.release
        taken: list[NameTakenError] = []
        try:
            for obj in actions.create:
                if not _mounts(obj, taken):
                    await _unless_taken(self._create(dict(obj)), taken)
        except ApiError as error:
            if release is None or not error.is_namespace_terminating:
                raise
            # No Job can run here any more; the volume goes with the namespace or is somebody else's.
            release = Release(release.left_behind)
        for obj in actions.apply:
            if not _mounts(obj, taken):
                await _unless_taken(self.applier.apply(dict(obj)), taken)
        if actions.create and may_plan_again and not taken:
            return False
        if taken:
            actions = replace(actions, status=_saying(owner, actions.status, taken))
        if owner is not None and actions.status and owner.get("status") != actions.status:
            status = dict(actions.status)
            await self.applier.apply_status(owner, status)
            if self.metrics:
                self.metrics.status_written(owner, status)
        for obj in actions.delete:
            await self.applier.delete(dict(obj))
        if owner is not None and actions.begin:
            await self._begin(owner, dict(actions.begin))
        if owner is not None and release and not release.if_terminating:
            await self._release(owner, release)
        if taken:
            raise taken[0]
        return True

    async def _create(self, obj: Obj) -> None:
        meta = obj["metadata"]
        known = self.cache.get(self.applier.resource_of(obj), meta["namespace"], meta["name"])
        await self.applier.create(obj)
        if known is None and self.metrics:
            self.metrics.created(obj)

    async def _begin(self, owner: Obj, job: Obj) -> None:
        """Let a Job that removes files begin. Whoever hangs in here finds the owner or the Job changed: a removal that
        is over has had this Job begin, or took it away."""
        meta = owner["metadata"]
        live = await self.client.get(self.applier.resource_of(owner), meta["namespace"], meta["name"])
        if live["metadata"]["uid"] == meta["uid"] and FINALIZER in live["metadata"].get("finalizers", ()):
            self.cache.put(JOB, await self.client.merge(JOB, job, beginning()))

    async def _release(self, owner: Obj, release: Release) -> None:
        meta, resource = owner["metadata"], self.applier.resource_of(owner)
        if release.left_behind:
            log.warning("namespace %s: %s", meta["namespace"], release.left_behind)
        rest = [f for f in meta.get("finalizers", ()) if f != FINALIZER]
        try:
            released = await self.client.replace(resource, {**owner, "metadata": {**meta, "finalizers": rest}})
        except ApiError as error:
            if not error.is_not_found:
                raise
        else:
            # Its Jobs may be seen to go before it is.
            self.cache.put(resource, released)


def _mounts(obj: Mapping[str, Any], taken: list[NameTakenError]) -> bool:
    """Whether the Pods of a Job or Deployment would mount what somebody else has put under a name of ours."""
    names = {error.name for error in taken if error.kind == "ConfigMap"}
    volumes = ((obj.get("spec") or {}).get("template") or {}).get("spec", {}).get("volumes", ())
    return any(volume.get("configMap", {}).get("name") in names for volume in volumes)


async def _unless_taken(write: Awaitable[object], taken: list[NameTakenError]) -> None:
    try:
        await write
    except NameTakenError as error:
        taken.append(error)


def _saying(owner: Obj | None, status: Mapping[str, Any], taken: list[NameTakenError]) -> Mapping[str, Any]:
    if owner is None or not status:
        return status
    said = [error.message for error in taken]
    generation, now = owner["metadata"]["generation"], timestamp(datetime.now(UTC))
    return with_taken_names(status, owner.get("status") or {}, said, generation=generation, now=now)
