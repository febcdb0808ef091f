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
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import Obj, Resource, key_of

log = logging.getLogger(__name__)

#: Objects whose last write left a difference; more than that are not remembered.
_REMEMBERED = 10_000


def digest(value: Any) -> str:
    """16 hex digits that differ where two JSON values do, whatever the order of their fields."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class Applier:
    """Brings objects to what is wanted, with as few writes as that takes, and keeps the cache up to date.

    What was last applied is remembered as a digest in the annotation `hash_annotation` of the object itself, so that
    a field no longer wanted is noticed too (what remains would still contain all that is wanted). Where the server,
    or somebody else, always changes a field back, it is written once and not again until the difference changes.
    """

    def __init__(self, client: Client, cache: Cache, resources: Iterable[Resource], *, hash_annotation: str) -> None:
        self._client = client
        self._cache = cache
        self._resources = {(resource.api_version, resource.kind): resource for resource in resources}
        self._hash_annotation = hash_annotation
        self._futile: dict[tuple[str, str], str] = {}

    def resource_of(self, obj: Obj) -> Resource:
        """The resource an object belongs to; KeyError where it was not given to this Applier."""
        return self._resources[obj["apiVersion"], obj["kind"]]

    async def apply(self, desired: Obj, live: Obj | None = None) -> Obj:
        """Make the object say what `desired` says, taking fields from other managers; the object as it is then.

        `live` is looked up where it is not given: in the cache, or on the server for kinds the cache does not hold.
        """
        resource = self.resource_of(desired)
        live = live or await self._live(resource, desired)
        wanted = self._stamped(desired)
        if live is not None:
            left = list(differences(live, wanted))
            if not left or self._is_futile(live, wanted, left):
                return live
        return self._written(resource, wanted, await self._client.apply(resource, wanted))

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
        """Create an object that is never changed afterwards; the one that is there where its name is taken.

        One that the cache holds is not asked for again: a refused write is a write, and what several share is there.
        """
        resource, key = self.resource_of(obj), key_of(obj)
        if resource in self._cache.resources and (live := self._cache.get(resource, key.namespace, key.name)):
            return live
        try:
            created = await self._client.create(resource, obj)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            created = await self._client.get(resource, key.namespace, key.name)
        self._cache_put(resource, created)
        return created

    async def delete(self, obj: Obj, *, propagation: Propagation = "Background") -> bool:
        """Delete this very object, unless that is under way; False where there was nothing to delete."""
        if "deletionTimestamp" in obj["metadata"]:
            return False
        return await self._client.delete(self.resource_of(obj), obj, propagation=propagation)

    def _stamped(self, desired: Obj) -> Obj:
        """`desired` with the digest of itself as an annotation."""
        meta = desired["metadata"]
        annotations = (meta.get("annotations") or {}) | {self._hash_annotation: digest(desired)}
        return desired | {"metadata": meta | {"annotations": annotations}}

    async def _live(self, resource: Resource, desired: Obj) -> Obj | None:
        key = key_of(desired)
        if resource in self._cache.resources:
            return self._cache.get(resource, key.namespace, key.name)
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


def _slot(live: Obj, wanted: Obj) -> tuple[str, str]:
    """One for an object and one for its status."""
    return live["metadata"]["uid"], "status" if "status" in wanted else ""
