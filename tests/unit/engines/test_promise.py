"""What served before goes on serving, whatever comes next; and nothing works for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, POD_DISRUPTION_BUDGET, SERVICE, Obj
from trtllm_operator.objects import ATTEMPT, RETRY, REVISION, TARGET, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE
from trtllm_operator.serving.given_up import RESTARTS
from trtllm_operator.serving.restart import RESTART

from .simulation import World, engine

BUDGETS = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048}
LONGER = {**BUDGETS, "maxSeqLen": 4096}
NEVER = {"reason": "ToolFailed", "message": "assertion failed", "retryable": False}
H100: dict[str, Any] = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}


def state(world: World) -> Obj:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    return found


def condition(world: World, type_: str) -> dict[str, Any]:
    found = (c for c in state(world)["status"]["conditions"] if c["type"] == type_)
    return next(found, {"status": "absent", "reason": "", "message": ""})


def change(world: World, **fields: Any) -> None:
    found = state(world)
    world.put({**found, "spec": {**found["spec"], **fields}})


def annotate(world: World, key: str, value: str) -> None:
    found = state(world)
    meta = {**found["metadata"], "annotations": {**found["metadata"].get("annotations", {}), key: value}}
    world.put({**found, "metadata": meta})


def served(**fields: Any) -> World:
    world = World()
    world.put(engine(targets=[H100], **fields))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    return world


def deployment_of(world: World, revision: str | None = None) -> Obj:
    name = revision or dict(world.served())["smol--h100"]
    found = world.get(DEPLOYMENT, name)
    assert found is not None, f"Deployment {name} is gone"
    return found


def rebuild(world: World, how: str) -> None:
    """A change whose engine is being built, waits for a GPU that no node has, or has failed for good."""
    if how == "waits":
        change(world, targets=[{**H100, "gpu": {"product": "NVIDIA-H200"}}])
        world.settle()
        return
    change(world, budgets=LONGER)
    world.settle()
    world.start_jobs()
    if how == "failed":
        for job in world.unfinished_jobs():
            world.fail(job, NEVER)
        world.settle()
        assert condition(world, "Stalled")["status"] == "True"


@pytest.mark.parametrize("how", ["builds", "waits", "failed"])
def test_a_service_or_deployment_that_is_deleted_during_a_rebuild_is_back_at_once(how: str) -> None:
    world = served()
    before = dict(world.served())
    rebuild(world, how)
    for kind in (SERVICE, DEPLOYMENT):
        for obj in world.find(kind):
            world.delete(obj)
        world.settle()
        if kind == DEPLOYMENT:
            world.serve(deployment_of(world, before["smol--h100"]))
            world.settle()
    assert dict(world.served()) == before
    assert condition(world, "Available")["status"] == "True"


@pytest.mark.parametrize("how", ["builds", "waits", "failed"])
def test_replicas_are_carried_out_during_a_rebuild_and_status_says_what_runs(how: str) -> None:
    world = served()
    rebuild(world, how)
    (target,) = state(world)["spec"]["targets"]
    change(world, targets=[{**target, "replicas": 2}])
    world.settle()
    assert deployment_of(world)["spec"]["replicas"] == 2
    (told,) = state(world)["status"]["targets"]
    assert (told["replicas"], told["readyReplicas"]) == (1, 1), "the second server does not run yet"
    world.roll_out(deployment_of(world))
    world.settle()
    (told,) = state(world)["status"]["targets"]
    assert (told["replicas"], told["readyReplicas"]) == (2, 2)


def building(world: World) -> list[Obj]:
    """Attempts at engines that go on."""
    return [j for j in world.jobs_of("Engine") if label(j, ATTEMPT) and not j.get("status", {}).get("conditions")]


def test_a_change_that_is_taken_back_stops_its_build_and_keeps_what_is_published() -> None:
    world = served()
    ready = {a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT)}
    rebuild(world, "builds")
    assert building(world), "nothing builds"
    change(world, budgets=BUDGETS)
    world.settle()
    world.pass_time(6)
    world.settle()
    assert not building(world)
    world.run_everything(8)
    assert {a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT)} == ready
    assert condition(world, "Ready")["status"] == "True"


def test_going_back_to_what_was_published_builds_nothing() -> None:
    world = served()
    first = dict(world.served())
    change(world, budgets=LONGER)
    world.run_everything()
    builds = dict(world.builds)
    change(world, budgets=BUDGETS)
    world.run_everything()
    assert dict(world.served()) == first
    assert dict(world.builds) == builds


def test_an_llmengine_that_is_deleted_during_its_fetch_starts_nothing_more() -> None:
    world = World()
    world.put(engine(targets=[H100]))
    while not world.jobs_of("Model"):
        world.reconcile()
        world.start_jobs()
        for job in world.unfinished_jobs():
            if not (label(job, "llmengine.dev/artifact") or "").startswith("model-"):
                world.finish(job)
    world.start_jobs()
    world.delete(state(world))
    world.settle()
    world.pass_time(6)
    for _ in range(6):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
        world.pass_time(6)
    assert not world.jobs_of("Checkpoint")
    assert not world.jobs_of("Engine")
    assert not [a for a in world.find(ENGINE_ARTIFACT) if "deletionTimestamp" not in a["metadata"]]


def test_a_build_that_another_llmengine_needs_goes_on() -> None:
    world = World()
    world.put(engine(targets=[H100]))
    world.put(engine("twin", targets=[H100]))
    for _ in range(3):
        world.reconcile()
        world.start_jobs()
        for job in world.unfinished_jobs():
            if not label(job, "llmengine.dev/artifact"):
                world.finish(job)
    world.delete(state(world))
    world.pass_time(6)
    world.run_everything()
    twin = world.get(LLM_ENGINE, "twin")
    assert twin is not None
    assert next(c for c in twin["status"]["conditions"] if c["type"] == "Ready")["status"] == "True"
    assert set(world.builds.values()) == {1}


def crash(world: World, revision: str, restarts: int) -> None:
    """A server of the revision runs out of memory again and again."""
    live = deployment_of(world, revision)
    template = live["spec"]["template"]
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": world.stamp()}
    status = {
        "name": "triton",
        "image": "i",
        "ready": False,
        "restartCount": restarts,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    owner = {"uid": live["metadata"]["uid"], "controller": True, "kind": "Deployment"}
    world.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{revision}-pod",
                "namespace": "team",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner],
            },
            "spec": {**template["spec"], "nodeName": "h100"},
            "status": {"startTime": world.stamp(), "containerStatuses": [status]},
        }
    )


def crashing() -> tuple[World, str]:
    """A new revision whose servers crash, beside one that serves."""
    world = served()
    change(world, serving={"resources": {"limits": {"memory": "64Mi"}}})
    world.settle()
    (new,) = {d["metadata"]["name"] for d in world.find(DEPLOYMENT)} - {dict(world.served())["smol--h100"]}
    crash(world, new, RESTARTS)
    world.settle()
    return world, new


def test_servers_that_do_not_come_up_let_their_gpus_go_and_say_what_to_change() -> None:
    world, new = crashing()
    assert deployment_of(world, new)["spec"]["replicas"] == 0
    assert deployment_of(world)["spec"]["replicas"] == 1, "what serves was touched"
    stalled = condition(world, "Stalled")
    assert stalled["status"] == "True"
    assert "memory" in stalled["message"].lower()
    assert f"{RESTARTS} restarts" in stalled["message"]
    assert RETRY in stalled["message"]
    assert condition(world, "Available")["status"] == "True"
    assert world.reconcile() == 0


@pytest.mark.parametrize("what", ["retry", "spec"])
def test_they_are_tried_again_once_something_has_changed(what: str) -> None:
    world, new = crashing()
    if what == "retry":
        annotate(world, RETRY, "1")
    else:
        change(world, serving={"resources": {"limits": {"memory": "1Gi"}}})
    for pod in [p for p in world.find(world._by_kind["Pod"]) if label(p, REVISION) == new]:
        world.delete(pod)
    world.settle()
    if what == "retry":
        assert deployment_of(world, new)["spec"]["replicas"] == 1
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert condition(world, "Stalled")["status"] == "absent"


def test_what_serves_is_never_given_up() -> None:
    world = served()
    name = dict(world.served())["smol--h100"]
    crash(world, name, 50)
    world.settle()
    assert deployment_of(world)["spec"]["replicas"] == 1


def test_a_renamed_target_serves_on_under_its_old_name_until_the_new_one_does() -> None:
    world = served()
    old = dict(world.served())
    change(world, targets=[{**H100, "name": "hopper"}])
    world.settle()
    assert old.items() <= dict(world.served()).items(), "the old Service went before the new one was there"
    assert deployment_of(world, old["smol--h100"])["spec"]["replicas"] == 1
    assert "serves on" in condition(world, "Ready")["message"]
    world.run_everything()
    assert set(dict(world.served())) == {"smol--hopper"}
    assert {label(d, TARGET) for d in world.find(DEPLOYMENT)} == {"hopper"}
    assert condition(world, "Ready")["status"] == "True"


def test_a_target_that_is_taken_out_goes_at_once() -> None:
    world = World()
    world.put(engine())
    world.run_everything()
    change(world, targets=[H100])
    world.settle()
    assert {label(d, TARGET) for d in world.find(DEPLOYMENT)} == {"h100"}
    assert {label(r, TARGET) for r in world.find(CONTROLLER_REVISION)} == {"h100"}


def test_a_restart_starts_the_new_server_first_and_changes_no_revision() -> None:
    world = served()
    before = dict(world.served())
    annotate(world, RESTART, "now")
    world.settle()
    spec = deployment_of(world)["spec"]
    assert spec["template"]["metadata"]["annotations"][RESTART] == "now"
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert dict(world.served()) == before
    world.run_everything()
    assert not world.find(JOB) or not [j for j in world.find(JOB) if not j.get("status", {}).get("conditions")]
    assert condition(world, "Ready")["status"] == "True"
    assert world.reconcile() == 0


def test_two_servers_have_a_budget_and_one_has_none() -> None:
    world = served()
    assert not world.find(POD_DISRUPTION_BUDGET)
    change(world, targets=[{**H100, "replicas": 2}])
    world.run_everything()
    (budget,) = world.find(POD_DISRUPTION_BUDGET)
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"] == {REVISION: dict(world.served())["smol--h100"]}
    change(world, targets=[H100])
    world.run_everything()
    assert not world.find(POD_DISRUPTION_BUDGET)
