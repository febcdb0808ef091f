"""Observe, plan, carry out, for each kind of key. The thin shell: every decision is a pure function elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from ..actions import Actions
from ..artifacts.collection import plan_collection
from ..artifacts.plan import plan as plan_artifact
from ..catalog import Catalog
from ..engines.orphans import plan_end
from ..engines.plan import plan as plan_engine
from ..engines.runner_config_maps import unneeded
from ..kube.apply import Applier
from ..kube.cache import Cache
from ..kube.client import Client
from ..kube.resource import Obj
from ..objects import Runner
from ..operator_config import OperatorConfig
from .executor import Executor
from .metrics import DomainMetrics
from .observe import observe_artifact, observe_engine, observe_revisions, observe_shared
from .reader import Reader
from .secret_reader import SecretReader
from .watches import ENGINE_ARTIFACT, LLM_ENGINE, Key

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
    metrics: DomainMetrics | None = None

    async def reconcile(self, key: Key) -> float | None:
        """Bring one key's world into order; seconds after which to look again, None to wait for an event."""
        executor = Executor(self.client, self.cache, self.applier, self.metrics)
        if key.kind == "Shared":
            await executor.carry_out(None, Actions(delete=unneeded(observe_shared(key.namespace, self.cache))))
            return None
        resource, plan = (
            (LLM_ENGINE, self._plan_engine) if key.kind == "LLMEngine" else (ENGINE_ARTIFACT, self._plan_artifact)
        )
        for rounds_left in reversed(range(MAX_ROUNDS)):
            obj = self.cache.get(resource, key.namespace, key.name)
            if obj is None:
                break
            actions = await plan(obj)
            if await executor.carry_out(obj, actions, may_plan_again=rounds_left > 0):
                return actions.again_seconds
        return None

    async def _plan_engine(self, engine: Obj) -> Actions:
        if "deletionTimestamp" in engine["metadata"]:
            return plan_end(engine, observe_revisions(engine, self.cache))
        seen = observe_engine(
            engine,
            self.cache,
            catalog=self.catalog,
            config=self.config,
            runner=self.runner,
            now=self.now(),
        )
        seen = await self.secrets.look_for_servers(await self.secrets.look_for_inspection(seen))
        seen = await self.reader.read_kv_cache_tokens(seen)
        return plan_engine(await self.reader.read_volume_events(seen))

    async def _plan_artifact(self, artifact: Obj) -> Actions:
        seen = observe_artifact(
            artifact, self.cache, catalog=self.catalog, config=self.config, runner=self.runner, now=self.now()
        )
        if "deletionTimestamp" in artifact["metadata"]:
            return plan_collection(
                artifact,
                (*seen.jobs, *seen.checks),
                seen.pods,
                referenced=seen.referenced,
                claim_gone=seen.claim_gone,
                mismatch=seen.mismatch,
                config=self.config,
                now=seen.now,
            )
        return plan_artifact(await self.secrets.look(await self.reader.read_attempt(seen)))
