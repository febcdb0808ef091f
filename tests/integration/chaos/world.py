"""One namespace with its users, its store and the replicas of the operator that look after it; and what must hold."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.integration.chaos.kubelet import Kubelets
from tests.integration.chaos.replica import Replica
from tests.unit.engines.simulation import engine
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    Obj,
)
from trtllm_operator.objects import ATTEMPT, MANAGED, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE
from trtllm_operator.runner.report import StepError

FIRST = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048}
SECOND = {**FIRST, "maxSeqLen": 1536}
PLAYED = (JOB, POD, DEPLOYMENT, SERVICE, CONTROLLER_REVISION, CONFIG_MAP)
LIMIT_SECONDS = 120
CONFIG = {
    "operatorImage": "llmengine/operator@sha256:" + "0" * 64,
    "toolchainImages": {"1.2.1": "llmengine/standin@sha256:" + "1" * 64},
    "hubEndpoint": "http://hub",
    "artifactGraceSeconds": 1,
}


class World:
    """An async context manager; `replicas` run in it. `limit_seconds`: how long anything is waited for."""

    def __init__(self, client: Client, kubelets: Kubelets, namespace: str, directory: Path, replicas: int = 1) -> None:
        self.client = client
        self.kubelets = kubelets
        self.namespace = namespace
        self.limit_seconds = LIMIT_SECONDS
        self.workshop = kubelets.workshop(namespace)
        self.replicas = [
            Replica(
                client.config, namespace, f"operator-{number}", directory / namespace / f"operator-{number}", CONFIG
            )
            for number in range(replicas)
        ]

    @property
    def replica(self) -> Replica:
        return self.replicas[0]

    async def __aenter__(self) -> Self:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.client.apply(NAMESPACE, namespace)
        await self.eventually(self._has_account, "a ServiceAccount")
        await self.client.apply(PERSISTENT_VOLUME_CLAIM, self._claim())
        self._stack = AsyncExitStack()
        for replica in self.replicas:
            await self._stack.enter_async_context(replica)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _claim(self) -> Obj:
        meta = {"name": "engines", "namespace": self.namespace}
        asked = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked}

    async def _has_account(self) -> str | None:
        try:
            await self.client.get(SERVICE_ACCOUNT, self.namespace, "default")
        except ApiError as error:
            return str(error)
        return None

    async def eventually(
        self, missing: Callable[[], Awaitable[str | None]], what: str, *, seconds: float | None = None
    ) -> float:
        """Until nothing is missing; the seconds that took. Fails with what was missing last and what the operator said.
        A server that is away for a while is waited for."""

        async def look() -> str | None:
            try:
                return await missing()
            except ApiError as error:
                if error.is_overload:
                    return str(error)
                raise

        began = time.monotonic()
        while (left := await look()) is not None:
            self.kubelets.check()
            for replica in self.replicas:
                replica.check()
            waited = time.monotonic() - began
            if waited > (seconds or self.limit_seconds):
                said = "\n".join(f"--- {r.name}:\n{r.said()[-6000:]}" for r in self.replicas)
                raise AssertionError(f"{self.namespace}: waited {waited:.0f} s in vain for {what}: {left}\n{said}")
            await asyncio.sleep(0.1)
        return time.monotonic() - began

    # What a user does.

    async def apply(self, name: str = "smol", **spec: Any) -> None:
        wanted = copy.deepcopy(engine(name, **spec))
        wanted["metadata"]["namespace"] = self.namespace
        await self.client.apply(LLM_ENGINE, wanted)

    async def delete(self, name: str = "smol") -> None:
        await self.client.delete(LLM_ENGINE, await self.client.get(LLM_ENGINE, self.namespace, name))

    # What a user sees.

    async def ready(self, name: str = "smol", *, seconds: float | None = None) -> float:
        """Until it is Ready for its present generation and serves nothing else any more."""

        async def missing() -> str | None:
            found = await self.client.get(LLM_ENGINE, self.namespace, name)
            conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
            stalled = conditions.get("Stalled")
            assert not stalled or stalled["status"] != "True", f"{self.namespace}: it is stalled: {stalled}"
            is_ready = conditions.get("Ready", {"status": "not said"})
            if is_ready["status"] != "True" or found["status"]["observedGeneration"] != found["metadata"]["generation"]:
                return f"Ready is {is_ready}"
            serving = {t["servedRevision"] for t in found["status"]["targets"]}
            there = {d["metadata"]["name"] for d in await self.objects(DEPLOYMENT, f"llmengine.dev/engine={name}")}
            return None if there == serving else f"Deployments {there} are there, {serving} serve"

        return await self.eventually(missing, f"{name} to be Ready", seconds=seconds)

    async def gone(self, *, seconds: float | None = None) -> float:
        """Until nothing is left of what the operator made: no object, no file."""

        async def missing() -> str | None:
            kinds = (*PLAYED, ENGINE_ARTIFACT)
            left = [f"{r.kind} {o['metadata']['name']}" for r in kinds for o in await self.objects(r)]
            left += self.workshop.published() + [f".staging/{name}" for name in self.workshop.staged()]
            return ", ".join(left) or None

        return await self.eventually(missing, "nothing to be left", seconds=seconds)

    async def artifacts(self) -> dict[str, Obj]:
        return {a["metadata"]["name"]: a for a in await self.objects(ENGINE_ARTIFACT)}

    async def objects(self, resource: Any, selector: str = f"{MANAGED}=true") -> list[Obj]:
        return await self.client.list(resource, namespace=self.namespace, label_selector=selector)

    async def summary(self) -> dict[str, Any]:
        """Everything that must be the same however often the operator died on the way."""
        engines = await self.client.list(LLM_ENGINE, namespace=self.namespace)
        artifacts = await self.artifacts()
        return {
            "engines": {
                e["metadata"]["name"]: {
                    "conditions": sorted((c["type"], c["status"], c["reason"]) for c in e["status"]["conditions"]),
                    "served": {t["name"]: t.get("servedArtifact") for t in e["status"]["targets"]},
                }
                for e in engines
            },
            "artifacts": {
                name: [a["status"].get(k) for k in ("phase", "reason", "attempt", "sizeBytes", "manifestDigest")]
                for name, a in artifacts.items()
            },
            "jobs": sorted(j["metadata"]["name"] for j in await self.objects(JOB)),
            "deployments": sorted(d["metadata"]["name"] for d in await self.objects(DEPLOYMENT)),
            "revisions": sorted(r["metadata"]["name"] for r in await self.objects(CONTROLLER_REVISION)),
            "selected": {s["metadata"]["name"]: s["spec"]["selector"] for s in await self.objects(SERVICE)},
            "store": self.workshop.published(),
        }

    # What must always hold.

    async def check(self) -> None:
        """One successful build for each key, nothing visible that is not whole, all that is Ready in the store."""
        for name, count in self.workshop.builds.items():
            assert count == 1, f"{self.namespace}: {name} was built {count} times"
        for name in self.workshop.published():
            try:
                self.workshop.store.verify(name)
            except StepError as error:
                raise AssertionError(f"{self.namespace}: {name} is visible and not whole: {error.message}") from None
        for name, artifact in (await self.artifacts()).items():
            status = artifact.get("status", {})
            if status.get("phase") != "Ready" or "deletionTimestamp" in artifact["metadata"]:
                continue
            assert self.workshop.store.has(name), f"{self.namespace}: {name} is Ready and not in the store"
            digest = self.workshop.store.verify(name).digest
            assert status["manifestDigest"] == digest, f"{self.namespace}: {name} is Ready with another manifest"

    async def at_rest(self) -> None:
        """A new life of the operator looks at everything and writes nothing."""
        await self.replica.restart()
        process = self.replica.process
        assert process is not None

        async def looked() -> str | None:
            passes = await process.metric("llmengine_operator_passes_total")
            depth = await process.metric("llmengine_operator_queue_depth")
            busy = await process.metric("llmengine_operator_queue_unfinished_work_seconds")
            leads = await process.metric("llmengine_operator_leader")
            return (
                None if leads and passes and not depth and not busy else f"{passes:.0f} passes, {depth:.0f} keys wait"
            )

        before = self.replica.writes
        await self.eventually(looked, "the operator to look at everything")
        written = self.replica.proxy.numbered[before:]
        assert not written, f"{self.namespace}: nothing has changed and the operator wrote {written}"

    async def attempts(self) -> list[str]:
        """Names of the Jobs that are attempts."""
        return [j["metadata"]["name"] for j in await self.objects(JOB) if label(j, ATTEMPT)]
