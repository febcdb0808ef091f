"""Observe, plan, apply, for each kind of key. The thin shell: every decision is a pure function elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..artifacts.collection import FINALIZER, Collection, beginning, plan_collection
from ..artifacts.plan import plan as plan_artifact
from ..catalog import Catalog
from ..engines.plan import plan as plan_engine
from ..engines.runner_config_maps import unneeded
from ..kube.apply import Applier
from ..kube.cache import Cache
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.resource import JOB, Obj
from ..objects import Runner
from ..operator_config import OperatorConfig
from .observe import observe_artifact, observe_engine, observe_shared
from .reader import Reader
from .secret_reader import SecretReader
from .watches import ENGINE_ARTIFACT, LLM_ENGINE, Key

log = logging.getLogger(__name__)
Objects = Iterable[Mapping[str, Any]]
MAX_ROUNDS = 4
"""Plans in one visit: what was just created is seen at once, so that status is written once and not for each step."""


def utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class Reconciler:
    client: Client
    cache: Cache
    applier: Applier
    catalog: Catalog
    config: OperatorConfig
    runner: Runner
    reader: Reader
    secrets: SecretReader
    now: Callable[[], datetime] = utc_now

    async def reconcile(self, key: Key) -> float | None:
        """Bring one key's world into order; seconds after which to look again, None to wait for an event."""
        if key.kind == "LLMEngine":
            return await self._engine(key)
        if key.kind == "EngineArtifact":
            return await self._artifact(key)
        await self._delete(unneeded(observe_shared(key.namespace, self.cache)))
        return None

    async def _engine(self, key: Key) -> float | None:
        for left in reversed(range(MAX_ROUNDS)):
            engine = self.cache.get(LLM_ENGINE, key.namespace, key.name)
            if engine is None or "deletionTimestamp" in engine["metadata"]:
                return None
            seen = observe_engine(
                engine,
                self.cache,
                catalog=self.catalog,
                config=self.config,
                runner=self.runner,
                now=self.now(),
            )
            seen = await self.secrets.look_for_inspection(seen)
            plan = plan_engine(await self.reader.hear_volumes(await self.reader.hear_servers(seen)))
            await self._create(plan.create)
            for wanted in plan.apply:
                await self.applier.apply(dict(wanted))
            await self._delete(plan.delete)
            if not plan.create or left == 0:
                await self.applier.apply_status(engine, dict(plan.status))
                return plan.again_seconds
        return None

    async def _artifact(self, key: Key) -> float | None:
        for left in reversed(range(MAX_ROUNDS)):
            artifact = self.cache.get(ENGINE_ARTIFACT, key.namespace, key.name)
            if artifact is None:
                return None
            seen = observe_artifact(artifact, self.cache, config=self.config, runner=self.runner, now=self.now())
            if "deletionTimestamp" in artifact["metadata"]:
                collection = plan_collection(
                    artifact,
                    (*seen.jobs, *seen.checks),
                    seen.pods,
                    referenced=seen.referenced,
                    claim_gone=seen.claim_gone,
                    config=self.config,
                    now=seen.now,
                )
                await self._collect(artifact, collection)
                return collection.again_seconds
            plan = plan_artifact(await self.secrets.look(await self.reader.listen(seen)))
            await self._create(plan.create)
            if plan.create and left:
                continue
            await self.applier.apply_status(artifact, dict(plan.status))
            await self._delete(plan.delete)
            return plan.again_seconds
        return None

    async def _collect(self, artifact: Obj, collection: Collection) -> None:
        release = collection.release
        await self._delete(collection.delete)
        try:
            await self._create(collection.create)
        except ApiError as error:
            if not error.is_namespace_terminating:
                raise
            # No Job can run here any more; the volume goes with the namespace or is somebody else's.
            release = True
        if collection.begin:
            await self._begin(artifact, dict(collection.begin))
        if release:
            meta = artifact["metadata"]
            if collection.left_behind:
                log.warning("namespace %s: %s", meta["namespace"], collection.left_behind)
            rest = [f for f in meta.get("finalizers", ()) if f != FINALIZER]
            try:
                released = await self.client.replace(
                    ENGINE_ARTIFACT, {**artifact, "metadata": {**meta, "finalizers": rest}}
                )
                # Its Jobs may be seen to go before it is.
                self.cache.put(ENGINE_ARTIFACT, released)
            except ApiError as error:
                if not error.is_not_found:
                    raise

    async def _begin(self, artifact: Obj, job: Obj) -> None:
        """Let a Job that removes files begin. Whoever hangs in here finds the artifact or the Job changed: a removal
        that is over has had this Job begin, or took it away."""
        meta = artifact["metadata"]
        live = await self.client.get(ENGINE_ARTIFACT, meta["namespace"], meta["name"])
        if live["metadata"]["uid"] == meta["uid"] and FINALIZER in live["metadata"].get("finalizers", ()):
            self.cache.put(JOB, await self.client.merge(JOB, job, beginning()))

    async def _create(self, objects: Objects) -> None:
        for obj in objects:
            await self.applier.create(dict(obj))

    async def _delete(self, objects: Objects) -> None:
        for obj in objects:
            await self.applier.delete(dict(obj))
