"""Writes what differs and nothing else."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from typing import Any

from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client, Propagation
from trtllm_operator.kube.diff import Difference, differences
from trtllm_operator.kube.encoding import ascii_json
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.ownership import NameTakenError, is_ours
from trtllm_operator.kube.resource import CONTROLLER_REVISION, Obj, ObjectKey, Resource, controller_of, key_of

log = logging.getLogger(__name__)

#: Objects whose last write left a difference, and names that were taken; more than that are not remembered.
_REMEMBERED = 10_000
#: A resourceVersion that no object has, being that of an empty etcd: an apply with it creates or ends in a conflict.
_ABSENT = "1"


def digest(value: Any) -> str:
    """16 hex digits that differ where two JSON values do, whatever the order of their fields."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class Applier:
    """Brings objects to what is wanted, with as few writes as that takes, and keeps the cache up to date.

    What was last applied is remembered as a digest in the annotation `hash_annotation` of the object itself, so that
    a field no longer wanted is noticed too (what remains would still contain all that is wanted). Where the server,
    or somebody else, always changes a field back, it is written once and not again until the difference changes.

    An object of the wanted name that is somebody else's is never written (`ownership.is_ours`): that is a
    NameTakenError. `identity` are the labels that tell whose an object without a controller is.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        resources: Iterable[Resource],
        *,
        hash_annotation: str,
        identity: Iterable[str] = (),
    ) -> None:
        self._client = client
        self._cache = cache
        self._resources = {(resource.api_version, resource.kind): resource for resource in resources}
        self._hash_annotation = hash_annotation
        self._identity = tuple(identity)
        self._futile: dict[tuple[str, str], str] = {}
        self._taken: dict[tuple[Resource, ObjectKey], None] = {}

    def resource_of(self, obj: Obj) -> Resource:
        """The resource an object belongs to; KeyError where it was not given to this Applier."""
        return self._resources[obj["apiVersion"], obj["kind"]]

    async def apply(self, desired: Obj, live: Obj | None = None) -> Obj:
        """Make the object say what `desired` says, taking fields from other managers; the object as it is then.

        `live` is looked up where it is not given: in the cache, or on the server for kinds the cache does not hold.
        Raises NameTakenError, also for an object that comes to be meanwhile: what is not known is only created.
        """
        resource = self.resource_of(desired)
        live = live or await self._live(resource, desired)
        wanted = self._stamped(desired)
        if live is None:
            try:
                return self._written(resource, wanted, await self._client.apply(resource, _with(wanted, _ABSENT)))
            except ApiError as error:
                if not error.is_conflict:
                    raise
            key = key_of(desired)
            live = await self._client.get(resource, key.namespace, key.name)
        self._require_ours(resource, live, desired)
        left = list(differences(live, wanted))
        if not left or self._is_futile(live, wanted, left):
            self._cache_put(resource, live)
            return live
        exactly = wanted | {"metadata": wanted["metadata"] | {"uid": live["metadata"]["uid"]}}
        try:
            return self._written(resource, wanted, await self._client.apply(resource, exactly))
        except ApiError as error:
            if error.status == 422 and "metadata.uid" in error.message:
                raise ApiError(409, "Conflict", f"{resource.kind} {key_of(live)} is another one by now") from error
            raise

    async def apply_status(self, live: Obj, status: Obj) -> Obj:
        """Make the status exactly `status`; the object as it is then. A not-found `ApiError` where it is gone.

        The API server does not check the uid here: a successor of the same name keeps this status until its own pass.
        """
        resource = self.resource_of(live)
        if live.get("status") == status:
            return live
        meta = live["metadata"]
        wanted = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {field: meta[field] for field in ("namespace", "name") if field in meta},
            "status": status,
        }
        left = [Difference("status", live.get("status"), status)]
        if self._is_futile(live, wanted, left):
            return live
        written = await self._client.apply(resource, wanted, subresource="status")
        if written.get("status") != status:
            self._remember(written, wanted, [Difference("status", written.get("status"), status)])
        self._cache_put(resource, written)
        return written

    async def create(self, obj: Obj) -> Obj:
        """Create an object that is never changed afterwards; the one that is there already where it is ours.

        One that the cache holds is not asked for again: a refused write is a write, and what several share is there.
        Raises NameTakenError.
        """
        resource, key = self.resource_of(obj), key_of(obj)
        live = await self._live(resource, obj)
        if live is None:
            try:
                live = await self._client.create(resource, obj)
            except ApiError as error:
                if not error.is_already_exists:
                    raise
                live = await self._client.get(resource, key.namespace, key.name)
        self._require_ours(resource, live, obj)
        self._cache_put(resource, live)
        return live

    async def adopt(self, orphan: Obj, owner: Obj) -> Obj:
        """Give an object without a controller, as it is on the server now, an owner reference; it is not changed
        otherwise. Raises NameTakenError where another one has its name, or somebody controls it meanwhile."""
        resource, key = self.resource_of(orphan), key_of(orphan)
        live = await self._client.get(resource, key.namespace, key.name)
        if controller_of(live) or live["metadata"]["uid"] != orphan["metadata"]["uid"]:
            raise NameTakenError(live)
        return await self._reown(resource, live, [*(live["metadata"].get("ownerReferences") or ()), owner])

    async def disown(self, obj: Obj) -> Obj:
        """Take the reference to its controller from an object; it is not changed otherwise."""
        resource, key = self.resource_of(obj), key_of(obj)
        live = await self._client.get(resource, key.namespace, key.name)
        if live["metadata"]["uid"] != obj["metadata"]["uid"]:
            return live
        return await self._reown(
            resource, live, [r for r in live["metadata"]["ownerReferences"] if not r["controller"]]
        )

    async def _reown(self, resource: Resource, live: Obj, references: list[Obj]) -> Obj:
        if resource == CONTROLLER_REVISION:
            written = await self._replace_revision(
                live | {"metadata": live["metadata"] | {"ownerReferences": references}}
            )
        else:
            written = await self._client.merge(resource, live, {"metadata": {"ownerReferences": references}})
        self._cache_put(resource, written)
        return written

    async def delete(self, obj: Obj, *, propagation: Propagation = "Background") -> bool:
        """Delete this very object, unless that is under way; False where there was nothing to delete."""
        if "deletionTimestamp" in obj["metadata"]:
            return False
        return await self._client.delete(self.resource_of(obj), obj, propagation=propagation)

    async def _replace_revision(self, wanted: Obj) -> Obj:
        """A patch would encode its data again, which have to be the same bytes."""
        try:
            return await self._client.replace(CONTROLLER_REVISION, wanted)
        except ApiError as error:
            if error.status != 422:
                raise
            # An earlier version wrote them.
            return await self._client.replace(CONTROLLER_REVISION, wanted, encode=ascii_json)

    def _stamped(self, desired: Obj) -> Obj:
        """`desired` with the digest of itself as an annotation."""
        meta = desired["metadata"]
        annotations = (meta.get("annotations") or {}) | {self._hash_annotation: digest(desired)}
        return desired | {"metadata": meta | {"annotations": annotations}}

    def _require_ours(self, resource: Resource, live: Obj, desired: Obj) -> None:
        slot = resource, key_of(desired)
        if is_ours(live, desired, self._identity):
            self._taken.pop(slot, None)
            return
        self._taken[slot] = None
        if len(self._taken) > _REMEMBERED:
            del self._taken[next(iter(self._taken))]
        raise NameTakenError({"kind": resource.kind} | live)

    async def _live(self, resource: Resource, desired: Obj) -> Obj | None:
        """From the cache, which does not hold what lacks our labels: a name known to be taken is looked at first."""
        key = key_of(desired)
        if resource in self._cache.resources:
            cached = self._cache.get(resource, key.namespace, key.name)
            if cached or (resource, key) not in self._taken:
                return cached
        try:
            return await self._client.get(resource, key.namespace, key.name)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def _written(self, resource: Resource, wanted: Obj, written: Obj) -> Obj:
        if left := list(differences(written, wanted)):
            first = left[0]
            log.warning(
                "%s %s: %s is %r although %r was applied; left as it is until that changes",
                resource.kind,
                key_of(written),
                first.path,
                first.live,
                first.desired,
            )
            self._remember(written, wanted, left)
        self._cache_put(resource, written)
        return written

    def _is_futile(self, live: Obj, wanted: Obj, left: list[Difference]) -> bool:
        """Whether the last write of `wanted` left exactly these differences."""
        return self._futile.get(_slot(live, wanted)) == digest(left)

    def _remember(self, written: Obj, wanted: Obj, left: list[Difference]) -> None:
        self._futile[_slot(written, wanted)] = digest(left)
        if len(self._futile) > _REMEMBERED:
            del self._futile[next(iter(self._futile))]

    def _cache_put(self, resource: Resource, obj: Obj) -> None:
        if resource in self._cache.resources:
            self._cache.put(resource, obj)


def _with(wanted: Obj, resource_version: str) -> Obj:
    return wanted | {"metadata": wanted["metadata"] | {"resourceVersion": resource_version}}


def _slot(live: Obj, wanted: Obj) -> tuple[str, str]:
    """One for an object and one for its status."""
    return live["metadata"]["uid"], "status" if "status" in wanted else ""
