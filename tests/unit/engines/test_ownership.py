"""Whose an object is: names that meet, orphans, and what others have made."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.engines.orphans import plan_end
from trtllm_operator.kube.resource import CONFIG_MAP, CONTROLLER_REVISION, DEPLOYMENT, JOB, SERVICE, Obj
from trtllm_operator.objects import ENGINE, MANAGED, TARGET, label, runner_config_map
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from ..artifacts.world import RUNNER
from ..stored.objects import recorded, world_of
from .simulation import NAMESPACE, World, engine


def target(name: str) -> dict[str, Any]:
    return {"name": name, "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}


def is_ready(world: World, name: str) -> bool:
    found = world.get(LLM_ENGINE, name)
    assert found is not None
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"]["conditions"])


def owners(world: World, *kinds: Any) -> set[str]:
    return {r["uid"] for kind in kinds for o in world.find(kind) for r in o["metadata"].get("ownerReferences", ())}


def test_two_engines_whose_names_meet_share_nothing() -> None:
    world = World()
    world.put(engine("web", targets=[target("x-h100")]))
    world.put(engine("web-x", targets=[target("h100")], budgets={**engine()["spec"]["budgets"], "maxBatchSize": 4}))
    world.run_everything()
    assert is_ready(world, "web")
    assert is_ready(world, "web-x")
    served = dict(world.served())
    assert len(set(served.values())) == 2, f"each has servers of its own behind a Service of its own: {served}"
    for name in served:
        service = world.get(SERVICE, name)
        assert service is not None
        deployment = world.get(DEPLOYMENT, served[name])
        assert deployment is not None
        assert label(deployment, ENGINE) == label(service, ENGINE)
    assert world.reconcile() == 0, "at rest nothing is written"


def test_a_service_that_clients_know_keeps_its_name_until_its_target_goes() -> None:
    world = world_of([o for o in recorded() if o["metadata"]["name"] != "fp8"])
    world.run_everything()
    assert dict(world.served()).keys() >= {"smol-a100", "smol-h100"}, "made by an earlier version"
    service = world.get(SERVICE, "smol-h100")
    assert service is not None
    world.delete(service)
    world.settle()
    assert "smol-h100" in dict(world.served()), "deleted by hand, it comes back under the name that clients know"

    changed = world.get(LLM_ENGINE, "smol")
    assert changed is not None
    world.put({**changed, "spec": {**changed["spec"], "targets": [target("h200"), target("h100")]}})
    world.run_everything()
    assert dict(world.served()).keys() >= {"smol-h100", "smol--h200"}
    assert "smol-a100" not in dict(world.served())


def test_what_another_controls_is_neither_deleted_nor_counted() -> None:
    world = World()
    world.put(engine())
    world.run_everything()
    served = dict(world.served())
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "canary",
            "namespace": NAMESPACE,
            "labels": {MANAGED: "true", ENGINE: "smol", TARGET: "gone"},
            "ownerReferences": [{"kind": "Rollout", "name": "canary", "uid": "theirs", "controller": True}],
        },
        "spec": {"replicas": 1, "template": {"metadata": {"labels": {}}, "spec": {}}},
    }
    world.put(theirs)
    assert world.reconcile() == 0
    assert world.get(DEPLOYMENT, "canary") is not None
    assert dict(world.served()) == served


def test_what_an_engine_left_behind_is_taken_back_by_the_next_of_its_name() -> None:
    world = World()
    world.put(engine())
    world.run_everything()
    served, builds = dict(world.served()), dict(world.builds)
    first = world.get(LLM_ENGINE, "smol")
    assert first is not None
    kinds = (SERVICE, DEPLOYMENT, CONTROLLER_REVISION, JOB)
    for kind in kinds:
        for obj in world.find(kind):
            meta = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences" or label(obj, ENGINE) is None}
            world.put({**obj, "metadata": meta})
    world.delete(first)
    assert dict(world.served()) == served, "servers run on"

    second = world.put(engine())
    world.run_everything()
    assert is_ready(world, "smol")
    assert dict(world.served()) == served
    assert dict(world.builds) == builds, "nothing is built again"
    assert owners(world, SERVICE, DEPLOYMENT, CONTROLLER_REVISION) == {second["metadata"]["uid"]}
    world.delete(second)
    assert not world.find(SERVICE)
    assert not world.find(CONTROLLER_REVISION), "all of it goes with its new owner"


@pytest.mark.parametrize(
    "theirs", [{}, {"ownerReferences": [{"kind": "App", "name": "x", "uid": "u", "controller": True}]}]
)
def test_a_service_of_somebody_else_is_left_alone_and_said(theirs: dict[str, Any]) -> None:
    world = World()
    meta = {"name": "smol--h100", "namespace": NAMESPACE, "uid": "theirs", "resourceVersion": "7", **theirs}
    foreign = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"app": "shop"}}}
    world.unwatched[SERVICE, "smol--h100"] = foreign
    world.put(engine())
    world.run_everything()
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    for type_, status in (("Ready", "False"), ("Stalled", "True")):
        said = next(c for c in found["status"]["conditions"] if c["type"] == type_)
        assert (said["status"], said["reason"]) == (status, "NameTaken")
        assert "Service smol--h100 exists and " in said["message"]
        assert ("belongs to App x" if theirs else "was not made by this operator") in said["message"]
    assert world.unwatched[SERVICE, "smol--h100"] == foreign
    assert dict(world.served()).keys() == {"smol--a100"}, "the other target serves"
    assert world.reconcile() == 0, "what stays taken is not written to again and again"

    del world.unwatched[SERVICE, "smol--h100"]
    world.run_everything()
    assert is_ready(world, "smol")
    assert dict(world.served()).keys() == {"smol--a100", "smol--h100"}


@pytest.mark.parametrize("immutable", [True, False])
def test_a_runner_that_somebody_else_has_put_there_runs_nowhere(immutable: bool) -> None:
    world = World()
    genuine = runner_config_map(RUNNER, NAMESPACE)
    forged = {**genuine, "immutable": immutable, "binaryData": {"runner.pyz": "ZXZpbA=="}}
    world.cache.put(CONFIG_MAP, {**forged, "metadata": {**genuine["metadata"], "uid": "u", "resourceVersion": "1"}})
    world.put(engine())
    world.run_everything()
    assert not [j for j in world.find(JOB) if RUNNER.config_map in str(j["spec"])]
    assert not world.find(DEPLOYMENT)
    found = world.find(ENGINE_ARTIFACT)
    said = [c["message"] for a in found for c in a["status"]["conditions"] if c["reason"] == "NameTaken"]
    assert any(f"ConfigMap {RUNNER.config_map} exists and was not made by this operator" in text for text in said)

    there = world.get(CONFIG_MAP, RUNNER.config_map)
    assert there is not None
    world.delete(there)
    world.run_everything()
    assert is_ready(world, "smol")


def test_a_revision_that_outlives_its_engine_keeps_no_files() -> None:
    """A pass that has not seen the end of the LLMEngine makes it anew, until the garbage collector comes."""
    world = World()
    gone = world.put(engine())
    world.run_everything()
    revisions = [dict(r) for r in world.find(CONTROLLER_REVISION)]
    world.delete(gone)
    for revision in revisions:
        world.put(revision)
    world.settle()
    world.pass_time(4000)
    for _ in range(6):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
    assert not world.find(ENGINE_ARTIFACT)
    assert not world.published


def test_revisions_are_let_go_for_the_garbage_collector() -> None:
    """It cannot do so itself where an earlier version wrote them."""
    revisions: list[Obj] = [{"metadata": {"ownerReferences": [{"uid": "u"}]}}, {"metadata": {}}]
    going = {"metadata": {"deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]}}
    assert plan_end(going, revisions).disown == ()
    orphaning = {"metadata": {"deletionTimestamp": "t", "finalizers": ["orphan"]}}
    assert plan_end(orphaning, revisions).disown == (revisions[0],)
