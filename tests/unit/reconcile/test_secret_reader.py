"""What is looked at of Secrets, how often, and what follows where that is not allowed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.artifacts.plan import Snapshot
from trtllm_operator.artifacts.secrets import Secrets
from trtllm_operator.engines.snapshot import EngineSnapshot
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import SERVICE_ACCOUNT, Resource
from trtllm_operator.reconcile.observe import observe_engine
from trtllm_operator.reconcile.secret_reader import SecretReader
from trtllm_operator.reconcile.watches import LLM_ENGINE

from ..artifacts.test_plan import POLICY, snapshot
from ..artifacts.world import CONFIG, RUNNER, ended, engine_artifact, failed, job, pod, running, waiting
from ..engines.simulation import CATALOG, GATED, TOKEN, engine
from ..engines.simulation import World as Cluster


@dataclass
class Api:
    """What the reader asks, and what it is answered."""

    versions: dict[str, str] = field(default_factory=dict)
    """Of the Secrets that there are."""
    pull: list[str] = field(default_factory=list)
    """Pull secrets of the ServiceAccount."""
    refused: tuple[str, ...] = ()
    """What may not be looked at: `secrets`, `serviceaccounts`."""
    looked: list[str] = field(default_factory=list)
    """Secrets whose version was asked for."""

    async def version(self, resource: Resource, _namespace: str, name: str) -> str | None:
        self.looked.append(name)
        self._allow(resource)
        return self.versions.get(name)

    async def get(self, resource: Resource, _namespace: str, name: str) -> dict[str, Any]:
        assert (resource, name) == (SERVICE_ACCOUNT, "default")
        self._allow(resource)
        return {"imagePullSecrets": [{"name": p} for p in self.pull]}

    def _allow(self, resource: Resource) -> None:
        if resource.plural in self.refused:
            raise ApiError(403, "Forbidden", "the operator may not", call="get")


class World:
    def __init__(self, **answers: Any) -> None:
        self.api, self.seconds = Api(**answers), 0.0
        self.reader = SecretReader(cast("Client", self.api), clock=lambda: self.seconds)

    def look(self, seen: Snapshot) -> Secrets:
        return asyncio.run(self.reader.look(seen)).secrets

    def look_for_inspection(self, seen: EngineSnapshot) -> Secrets:
        return asyncio.run(self.reader.look_for_inspection(seen)).secrets


def of_a_bucket(**seen: Any) -> Snapshot:
    return snapshot(artifact=engine_artifact(storeSecretRef={"name": "bucket"}), **seen)


def test_c94_secrets_are_looked_at_while_an_attempt_does_not_run_and_not_more_often_than_every_ten_seconds() -> None:
    world = World(versions={"bucket": "uid/1", "regcred": "uid/2"}, pull=["regcred"])
    first = world.look(of_a_bucket())
    assert world.api.looked == ["bucket", "regcred"]
    world.api.versions["bucket"], world.seconds = "uid/3", 9
    assert world.look(of_a_bucket()) == first
    world.seconds = 10
    second = world.look(of_a_bucket())
    assert (second.named != first.named, second.pull == first.pull, second.missing) == (True, True, ())
    world.api.versions.pop("bucket")
    world.seconds = 30
    assert world.look(of_a_bucket()).missing == ("bucket",)
    world.api.looked.clear()
    world.seconds = 60
    busy = pod(1, initContainerStatuses=[ended("stage", 0), running("build")])
    world.look(of_a_bucket(jobs=(job(1, POLICY),), pods=(busy,)))
    assert world.api.looked == [], "not while it runs"
    taken = pod(1, conditions=[{"type": "PodScheduled", "status": "False", "message": "1 Insufficient nvidia.com/gpu"}])
    world.look(of_a_bucket(jobs=(job(1, POLICY),), pods=(taken,)))
    assert world.api.looked == [], "not while it waits for what no Secret gives"
    stuck = pod(1, initContainerStatuses=[waiting("stage", "ImagePullBackOff")])
    world.look(of_a_bucket(jobs=(job(1, POLICY),), pods=(stuck,)))
    assert world.api.looked == ["bucket", "regcred"]


def test_c94_a_published_artifact_costs_no_look() -> None:
    world, made = World(), engine_artifact(storeSecretRef={"name": "bucket"})
    made["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.look(snapshot(artifact=made))
    assert world.api.looked == []


def test_c94_without_the_right_to_look_nothing_is_known_and_nothing_fails() -> None:
    world = World(versions={"bucket": "uid/1"}, refused=("secrets", "serviceaccounts"))
    assert world.look(of_a_bucket(jobs=(job(1, POLICY, failed()),))) == Secrets()


def test_c93_a_pull_secret_that_the_service_account_gets_or_that_appears_is_a_change() -> None:
    world = World()
    seen = [world.look(snapshot()).pull]
    for pull, versions in ((["regcred"], {}), (["regcred"], {"regcred": "uid/1"}), (["regcred"], {"regcred": "uid/2"})):
        world.api.pull, world.api.versions, world.seconds = pull, versions, world.seconds + 30
        seen.append(world.look(snapshot()).pull)
    assert len(set(seen)) == 4


def test_c94_the_secret_of_a_model_is_looked_at_until_that_has_been_inspected() -> None:
    cluster, world = Cluster(), World(versions={TOKEN: "uid/1"})
    made = cluster.put(engine(model=GATED))

    def seen() -> EngineSnapshot:
        return observe_engine(made, cluster.cache, catalog=CATALOG, config=CONFIG, runner=RUNNER, now=cluster.now)

    assert world.look_for_inspection(seen()).named is not None
    assert world.api.looked == [TOKEN]
    cluster.run_everything()
    found = cluster.get(LLM_ENGINE, "smol")
    assert found is not None
    assert isinstance(seen().spec, LLMEngineSpec)
    world.seconds = 60
    world.look_for_inspection(replace(seen(), engine=found))
    assert world.api.looked == [TOKEN]
