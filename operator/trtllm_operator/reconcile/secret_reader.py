"""Whether the Secrets that an attempt or an inspection depends on are those it was made with: asked while it does not
run, never needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ..api.engineartifact import EngineArtifactSpec
from ..api.llmengine import LLMEngineSpec
from ..api.stored import read_stored
from ..artifacts import attempt
from ..artifacts.failures import KINDS
from ..artifacts.inspection import inspection_name, inspection_policy, source_hash
from ..artifacts.plan import LOOK_AGAIN_SECONDS, Snapshot, current_attempt, is_ready
from ..artifacts.secrets import Secrets, digest, named_secrets
from ..engines.snapshot import EngineSnapshot
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.resource import SECRET, SERVICE_ACCOUNT
from ..objects import ATTEMPT, JOBS_ACCOUNT, Obj, label
from ..pods import container_statuses, pods_of
from ..serving.given_up import read_given_up

STAND_SECONDS = 10
"""How long what was seen stands. Shorter than LOOK_AGAIN_SECONDS, so that each of those looks is a look."""
_FORGET_SECONDS = 10 * LOOK_AGAIN_SECONDS


@dataclass
class SecretReader:
    """Asks for the versions of Secrets by name, and remembers them for a moment. What is in them never comes here."""

    client: Client
    clock: Callable[[], float] = time.monotonic
    _seen: dict[tuple[str, tuple[str, ...]], tuple[float, Secrets]] = field(default_factory=dict)
    """By the uid of who depends on them, and which they are: when, and how they were."""

    async def look(self, seen: Snapshot) -> Snapshot:
        """The snapshot with the Secrets of an artifact that is not ready, and whose attempt is over or stuck on one:
        one that waits for a GPU may do so for days."""
        job = current_attempt(seen)
        if is_ready(seen.artifact) or (job and not _is_stuck_on_secret(seen, job)):
            return seen
        if seen.builders is not None:
            looked = [await self._look(seen.artifact, named_secrets(builder.policy)) for builder in seen.builders]
            builders = (replace(b, secrets=s) for b, s in zip(seen.builders, looked, strict=True))
            return replace(seen, builders=tuple(builders))
        policy = read_stored(EngineArtifactSpec, seen.artifact["spec"]).policy
        return replace(seen, secrets=await self._look(seen.artifact, named_secrets(policy)))

    async def look_for_inspection(self, seen: EngineSnapshot) -> EngineSnapshot:
        """The snapshot with the Secret of a model that has yet to be inspected."""
        known = (seen.engine.get("status") or {}).get("model") or {}
        if not isinstance(seen.spec, LLMEngineSpec) or known.get("sourceHash") == source_hash(seen.spec):
            return seen
        job = seen.inspections.get(inspection_name(seen.engine["metadata"]["name"], seen.spec))
        if job and _runs(pods_of(job, seen.inspection_pods)):
            return seen
        return replace(seen, secrets=await self._look(seen.engine, named_secrets(inspection_policy(seen.spec))))

    async def look_for_servers(self, seen: EngineSnapshot) -> EngineSnapshot:
        """The snapshot with the Secrets of servers, where some have failed or were given up."""
        failing = any(read_given_up(d) for d in seen.deployments.values()) or any(map(_fails, seen.pods))
        if not isinstance(seen.spec, LLMEngineSpec) or not failing:
            return seen
        s3 = seen.spec.storage.s3
        names = (s3.credentials_secret_ref.name,) if s3 and s3.credentials_secret_ref else ()
        return replace(seen, server_secrets=await self._look(seen.engine, names))

    async def _look(self, owner: Obj, names: tuple[str, ...]) -> Secrets:
        meta, now = owner["metadata"], self.clock()
        key = meta["uid"], names
        when, seen = self._seen.get(key, (-float("inf"), Secrets()))
        if now - when < STAND_SECONDS:
            return seen
        named = await self._versions(meta["namespace"], names)
        pull = await self._pull_secrets(meta["namespace"])
        seen = Secrets(
            named=digest(named) if named else None,
            pull=None if pull is None else digest(pull),
            missing=tuple(name for name, version in (named or {}).items() if version is None),
        )
        self._seen[key] = (now, seen)
        for old in [old for old, (at, _) in self._seen.items() if now - at > _FORGET_SECONDS]:
            del self._seen[old]
        return seen

    async def _versions(self, namespace: str, names: Iterable[str]) -> dict[str, str | None] | None:
        """None where it may not look: the rights are the cluster's to give."""
        try:
            return {name: await self.client.version(SECRET, namespace, name) for name in names}
        except ApiError as error:
            if error.is_forbidden:
                return None
            raise

    async def _pull_secrets(self, namespace: str) -> dict[str, str | None] | None:
        try:
            account = await self.client.get(SERVICE_ACCOUNT, namespace, JOBS_ACCOUNT)
        except ApiError as error:
            if error.is_not_found:
                return {}
            if error.is_forbidden:
                return None
            raise
        return await self._versions(namespace, [s["name"] for s in account.get("imagePullSecrets") or ()])


def _is_stuck_on_secret(seen: Snapshot, job: Obj) -> bool:
    pods = [p for p in seen.pods if label(p, ATTEMPT) == label(job, ATTEMPT)]
    around = attempt.Surroundings(seen.nodes, seen.now, seen.observations.job_events, seen.observations.volume_events)
    state = attempt.read(job, pods, around)
    return isinstance(state, attempt.Waiting) and KINDS[state.reason].secrets is not None


def _fails(pod: Obj) -> bool:
    return any(s.get("restartCount") or s.get("state", {}).get("waiting") for s in container_statuses(pod))


def _runs(pods: Iterable[Obj]) -> bool:
    pod = attempt.current_pod(pods)
    return pod is not None and attempt.running_container(pod) is not None
