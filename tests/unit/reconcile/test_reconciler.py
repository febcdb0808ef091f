"""The order in which a plan is carried out, and what is written in one visit."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from trtllm_operator.actions import Actions, Release, combined
from trtllm_operator.artifacts.collection import FINALIZER
from trtllm_operator.kube.apply import Applier
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import CONTROLLER_REVISION, Obj, Resource
from trtllm_operator.reconcile.executor import Executor
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE, RESOURCES, Key

from ..artifacts.world import engine_artifact
from ..engines.simulation import NAMESPACE, Api, World, engine, finished


class Recorded(Api):
    """Tells what was written, in its order."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.written: list[str] = []
        self.refusal: ApiError | None = None

    async def create(self, resource: Resource, obj: Obj) -> Obj:
        if self.refusal:
            raise self.refusal
        self.written.append(f"create {resource.kind}")
        return await super().create(resource, obj)

    async def apply(self, resource: Resource, obj: Obj, *, subresource: str = "") -> Obj:
        self.written.append(f"apply {resource.kind}{' ' if subresource else ''}{subresource}")
        return await super().apply(resource, obj, subresource=subresource)

    async def delete(self, resource: Resource, obj: Obj, *, propagation: str = "Background") -> bool:
        self.written.append(f"delete {resource.kind}")
        return await super().delete(resource, obj, propagation=propagation)

    async def merge(self, resource: Resource, obj: Obj, changes: Obj) -> Obj:
        self.written.append(f"begin {resource.kind}")
        return await super().merge(resource, obj, changes)

    async def replace(self, resource: Resource, obj: Obj) -> Obj:
        self.written.append(f"release {resource.kind}")
        return await super().replace(resource, obj)


def small(kind: str, name: str, **more: Any) -> dict[str, Any]:
    version = {"Service": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **more}


class Bench:
    """An executor beside its world."""

    def __init__(self) -> None:
        self.world = World()
        self.api = Recorded(self.world)
        client = cast("Client", self.api)
        self.executor = Executor(
            client, self.world.cache, Applier(client, self.world.cache, RESOURCES, hash_annotation="test/applied")
        )

    def carry_out(self, owner: Obj | None, actions: Actions, *, may_plan_again: bool = False) -> bool:
        return finished(self.executor.carry_out(owner, actions, may_plan_again=may_plan_again))

    def dying_artifact(self) -> Obj:
        made = engine_artifact()
        made["metadata"] |= {"finalizers": [FINALIZER], "deletionTimestamp": self.world.stamp()}
        return self.world.put(made)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_field_is_carried_out_before_the_next_one(bench: Bench) -> None:
    owner = bench.world.put(engine())
    old = bench.world.put(small("Deployment", "old", spec={}))
    actions = Actions(
        delete=(old,),
        status={"reason": "Testing"},
        apply=(small("Service", "s", spec={}), small("Deployment", "d", spec={})),
        create=(small("ControllerRevision", "r"),),
    )
    assert bench.carry_out(owner, actions)
    assert bench.api.written == [
        "create ControllerRevision",
        "apply Service",
        "apply Deployment",
        "apply LLMEngine status",
        "delete Deployment",
    ]


def test_what_was_created_is_planned_with_before_the_status_is_written(bench: Bench) -> None:
    owner = bench.world.put(engine())
    actions = Actions(create=(small("ControllerRevision", "r"),), status={"reason": "Testing"})
    assert not bench.carry_out(owner, actions, may_plan_again=True)
    assert bench.api.written == ["create ControllerRevision"]
    assert bench.carry_out(owner, actions), "the last plan of a visit is carried out to its end"
    assert bench.api.written == ["create ControllerRevision", "apply LLMEngine status"]


def test_a_second_pass_over_the_same_plan_writes_nothing(bench: Bench) -> None:
    owner = bench.world.put(engine())
    actions = Actions(
        create=(small("ControllerRevision", "r"),),
        apply=(small("Service", "s", spec={}),),
        status={"reason": "Testing"},
    )
    bench.carry_out(owner, actions)
    before = bench.world.writes
    bench.carry_out(bench.world.get(LLM_ENGINE, "smol"), actions)
    assert bench.world.writes == before


def test_a_namespace_that_is_going_takes_no_job_and_the_artifact_is_released(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    owner = bench.dying_artifact()
    causes = frozenset({"NamespaceTerminating"})
    bench.api.refusal = ApiError(403, "Forbidden", "the namespace is being terminated", causes=causes)
    with caplog.at_level(logging.WARNING):
        bench.carry_out(owner, Actions(create=(small("Job", "j", spec={}),), release=Release("one file", True)))
    assert bench.api.written == ["release EngineArtifact"]
    assert bench.world.get(ENGINE_ARTIFACT, "engine-1") is None
    assert "one file" in caplog.text


def test_any_other_refusal_of_that_job_keeps_the_artifact(bench: Bench) -> None:
    owner = bench.dying_artifact()
    bench.api.refusal = ApiError(403, "Forbidden", "exceeded quota")
    actions = Actions(create=(small("Job", "j", spec={}),), release=Release(if_terminating=True))
    with pytest.raises(ApiError):
        bench.carry_out(owner, actions)
    bench.api.refusal = None
    bench.carry_out(owner, actions)
    assert bench.world.get(ENGINE_ARTIFACT, "engine-1") is not None, "its Job has yet to remove the files"


@pytest.mark.parametrize(("there", "written"), [(True, ["begin Job"]), (False, [])])
def test_a_job_begins_only_while_its_artifact_is_there(bench: Bench, there: bool, written: list[str]) -> None:
    owner = bench.dying_artifact()
    job = bench.world.put(small("Job", "j", spec={"suspend": True}))
    if not there:
        bench.world.released({**owner, "metadata": {**owner["metadata"], "finalizers": []}})
        bench.world.put(engine_artifact())
    bench.carry_out(owner, Actions(begin=job))
    assert bench.api.written == written


def test_one_visit_stores_the_revision_first_and_writes_the_status_once() -> None:
    world = World()
    world.put(engine())
    world.reconcile()
    world.start_jobs()
    for job in world.unfinished_jobs():
        world.finish(job)
    api = Recorded(world)
    client = cast("Client", api)
    applier = Applier(client, world.cache, RESOURCES, hash_annotation="llmengine.dev/applied")
    reconciler = type(world.reconciler)(**{**vars(world.reconciler), "client": client, "applier": applier})
    finished(reconciler.reconcile(Key("LLMEngine", NAMESPACE, "smol")))
    assert api.written[:2] == ["create ControllerRevision"] * 2
    assert set(api.written[2:-1]) == {"apply EngineArtifact"}
    assert api.written[-1] == "apply LLMEngine status"
    assert len(world.find(CONTROLLER_REVISION)) == 2


def test_parts_of_a_plan_become_one() -> None:
    """What several targets ask for is done once, and the earliest time counts."""
    shared, other = small("ConfigMap", "runner"), small("Service", "s")
    parts = (Actions(create=(shared,), again_seconds=30), Actions(create=(dict(shared),), apply=(other,)), Actions())
    assert combined(parts) == Actions(create=(shared,), apply=(other,), again_seconds=30)
