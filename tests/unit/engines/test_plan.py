"""What an LLMEngine's plan does over time, told as a user would see it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trtllm_operator.actions import Actions
from trtllm_operator.engines.plan import plan
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, POD, SERVICE, Obj
from trtllm_operator.objects import REVISION, label
from trtllm_operator.reconcile.observe import observe_engine
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from ..artifacts.world import CONFIG, RUNNER, node
from .simulation import CATALOG, GATED, REFUSED, TOKEN, World, engine, finished

FP8 = {"quantization": "fp8"}


@pytest.fixture
def world() -> World:
    return World()


def state(world: World, name: str = "smol") -> Obj:
    found = world.get(LLM_ENGINE, name)
    assert found is not None
    return found


def condition(world: World, type_: str, name: str = "smol") -> dict[str, Any]:
    found = (c for c in state(world, name)["status"]["conditions"] if c["type"] == type_)
    return next(found, {"status": "absent", "reason": "", "message": ""})


def serving(world: World) -> World:
    world.put(engine())
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    return world


def test_two_generations_share_one_model_and_one_checkpoint_and_get_an_engine_each(world: World) -> None:
    serving(world)
    types = sorted(a["spec"]["type"] for a in world.find(ENGINE_ARTIFACT))
    assert types == ["Checkpoint", "Engine", "Engine", "Model"]
    assert all(count == 1 for count in world.builds.values())
    assert dict(world.served()).keys() == {"smol--a100", "smol--h100"}


def test_nothing_is_written_at_rest(world: World) -> None:
    serving(world)
    world.settle()
    world.pass_time(86_400)
    assert world.reconcile() == 0


def test_the_verdict_comes_before_any_weight_is_fetched(world: World) -> None:
    world.put(engine(parallelism={"tensor": 2}))
    world.run_everything()
    message = condition(world, "Validated")["message"]
    assert condition(world, "Validated")["status"] == "False"
    assert "9" in message
    assert "2" in message
    assert condition(world, "Stalled")["status"] == "True"
    assert world.find(ENGINE_ARTIFACT) == []
    assert [j["metadata"]["name"].split("-inspect-")[0] for j in world.find(JOB)] == ["smol"]


def test_a_precision_that_one_of_the_gpus_lacks_is_refused_by_name(world: World) -> None:
    world.put(engine(precision=FP8))
    world.run_everything()
    message = condition(world, "Validated")["message"]
    assert "a100: " in message
    assert "h100: " not in message
    assert "8.9" in message, "what FP8 needs is said"


def test_an_unknown_release_is_refused_with_those_there_are(world: World) -> None:
    world.put(engine(release="0.1.0"))
    world.run_everything()
    assert condition(world, "Stalled")["reason"] == "UnknownRelease"
    assert "1.2.1" in condition(world, "Stalled")["message"]


def test_a_release_that_builds_no_engines_is_refused_with_the_last_that_does(world: World) -> None:
    world.put(engine(release="1.3.0"))
    world.run_everything()
    assert condition(world, "Validated")["status"] == "False"
    assert "1.2.1" in condition(world, "Validated")["message"]
    assert "digest" not in condition(world, "Validated")["message"]


def test_a_change_that_the_engine_depends_on_builds_beside_what_serves_and_then_switches(world: World) -> None:
    serving(world)
    before = dict(world.served())
    world.put(engine(budgets={"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 4096, "maxNumTokens": 2048}))
    for _ in range(4):  # until the new servers exist but are not ready
        world.reconcile()
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
    world.settle()
    assert dict(world.served()) == before, "the Service moves to nothing that is not ready"
    assert condition(world, "Available")["status"] == "True"
    assert condition(world, "Ready")["status"] == "False"
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert dict(world.served()) != before
    assert len(world.find(DEPLOYMENT)) == 2, "the old servers are gone"


@pytest.mark.parametrize(
    "change",
    [
        {"serving": {"kvCacheFreeGpuMemoryPercent": 50}},
        {"build": {"maxAttempts": 7}},
        {"precision": {"quantization": "none", "dtype": "auto"}},
    ],
)
def test_a_change_that_the_engine_does_not_depend_on_never_rebuilds(world: World, change: dict[str, Any]) -> None:
    serving(world)
    built = dict(world.builds)
    world.put(engine(**change))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert dict(world.builds) == built


def test_replicas_change_in_place(world: World) -> None:
    serving(world)
    before = dict(world.served())
    spec = engine()["spec"]
    more = [{**t, "replicas": 3} for t in spec["targets"]]
    world.put(engine(targets=more))
    world.run_everything()
    assert dict(world.served()) == before
    assert [d["spec"]["replicas"] for d in world.find(DEPLOYMENT)] == [3, 3]


def test_a_change_back_serves_the_kept_engine_without_a_build(world: World) -> None:
    serving(world)
    before = dict(world.served())
    world.put(engine(budgets={"maxBatchSize": 4, "maxInputLen": 512, "maxSeqLen": 1024, "maxNumTokens": 2048}))
    world.run_everything()
    built = dict(world.builds)
    world.put(engine())
    world.run_everything()
    assert dict(world.served()) == before
    assert dict(world.builds) == built


def test_a_build_killed_for_memory_stalls_and_what_served_goes_on_serving(world: World) -> None:
    serving(world)
    before = dict(world.served())
    budgets = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 4096, "maxNumTokens": 2048}
    world.put(engine(budgets=budgets, build={"resources": {"limits": {"memory": "8Gi"}}}))
    world.reconcile()
    world.reconcile()
    world.start_jobs()
    for job in world.unfinished_jobs():
        world.fail(job, None)
    world.settle()
    assert condition(world, "Stalled")["reason"] == "HostMemoryExhausted"
    assert "8Gi" in condition(world, "Stalled")["message"], "the user's own limit is not exceeded"
    assert "spec.build.resources.limits.memory" in condition(world, "Stalled")["message"]
    assert condition(world, "Available")["status"] == "True"
    assert dict(world.served()) == before


def test_planned_memory_that_did_not_suffice_grows_by_half_and_the_status_says_so(world: World) -> None:
    world.put(engine())
    limits: list[str] = []
    for _ in range(8):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            if "checkpoint-" not in job["metadata"]["name"]:
                world.finish(job)
                continue
            convert = job["spec"]["template"]["spec"]["initContainers"][-1]
            limits.append(convert["resources"]["limits"]["memory"])
            world.fail(job, None)
            world.settle()
            if len(limits) == 1:
                assert "of memory" in condition(world, "Ready")["message"], "what the next attempt gets is said"
        world.pass_time(10)
    mebibytes = [int(limit.removesuffix("Mi")) for limit in limits]
    assert len(mebibytes) == 3, "three attempts are allowed by default"
    assert [round(m / mebibytes[0], 2) for m in mebibytes] == [1, 1.5, 2.25]
    assert condition(world, "Stalled")["reason"] == "HostMemoryExhausted"


def test_more_memory_for_the_build_tries_again_and_ends_well(world: World) -> None:
    world.put(engine(build={"resources": {"limits": {"memory": "1Mi"}}}))
    world.reconcile()
    world.start_jobs()
    for _ in range(3):
        for job in world.unfinished_jobs():
            if "checkpoint-" in job["metadata"]["name"]:
                world.fail(job, None)
            else:
                world.finish(job)
        world.settle()
        world.start_jobs()
    assert condition(world, "Stalled")["reason"] == "HostMemoryExhausted"
    world.put(engine(build={"resources": {"limits": {"memory": "8Gi"}}}))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    assert all(count == 1 for count in world.builds.values())


def test_a_spec_that_was_just_put_right_does_not_look_stalled(world: World) -> None:
    """kstatus takes Stalled of the current generation for a failure: GitOps would give up on the repair at once."""
    world.put(engine(build={"resources": {"limits": {"memory": "1Mi"}}}))
    for _ in range(3):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            if "checkpoint-" in job["metadata"]["name"]:
                world.fail(job, None)
            else:
                world.finish(job)
    world.settle()
    assert condition(world, "Stalled")["status"] == "True"
    world.put(engine(build={"resources": {"limits": {"memory": "8Gi"}}}))
    seen = []
    for _ in range(6):
        world.reconcile()
        seen.append((state(world)["status"]["observedGeneration"], condition(world, "Stalled")["status"]))
    assert (2, "True") not in seen


def test_a_wrong_token_ends_in_a_condition_and_starts_nothing(world: World) -> None:
    world.put(engine())
    world.reconcile()
    world.start_jobs()
    (job,) = world.unfinished_jobs()
    world.fail(job, {"reason": "DownloadRefused", "message": "401: check Secret hub-token", "retryable": False})
    world.settle()
    assert condition(world, "Stalled")["reason"] == "DownloadRefused"
    assert "hub-token" in condition(world, "Stalled")["message"]
    assert "kubectl annotate llmengine smol llmengine.dev/retry" in condition(world, "Stalled")["message"]
    assert world.find(ENGINE_ARTIFACT) == []
    asked = state(world)
    world.put({**asked, "metadata": {**asked["metadata"], "annotations": {"llmengine.dev/retry": "1"}}})
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", "the Secret is right now, and nothing else has changed"


def test_c94_an_inspection_waits_for_its_secret_and_begins_anew_when_it_changes(world: World) -> None:
    world.missing_secrets.add(TOKEN)
    world.put(engine(model=GATED))
    world.settle()
    assert (condition(world, "Stalled")["reason"], world.find(JOB)) == ("SecretMissing", [])
    world.change_secret()
    world.reconcile()
    world.start_jobs()
    (job,) = world.unfinished_jobs()
    world.fail(job, REFUSED)
    world.settle()
    assert condition(world, "Stalled")["reason"] == "DownloadRefused"
    assert "once Secret hub-token changes" in condition(world, "Stalled")["message"]
    world.pass_time(4000)
    assert world.reconcile() == 0, "refused once, and not asked again with the same token"
    asked = state(world)
    world.put({**asked, "metadata": {**asked["metadata"], "annotations": {"llmengine.dev/retry": "1"}}})
    world.settle()
    world.start_jobs()
    (job,) = world.unfinished_jobs()
    world.fail(job, REFUSED)
    world.settle()
    world.change_secret()
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def test_c93_an_inspection_whose_image_cannot_be_pulled_begins_anew_with_other_pull_secrets(world: World) -> None:
    world.put(engine())
    world.reconcile()
    world.start_jobs()
    (job,) = world.unfinished_jobs()
    world.refuse_image(job)
    world.settle()
    assert condition(world, "Stalled")["reason"] == "ImagePullFailed"
    world.pull_secrets = ("regcred",)
    world.change_secret("regcred")
    world.settle()
    (again,) = world.find(JOB)
    assert again["metadata"]["uid"] != job["metadata"]["uid"]
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def look(world: World, **more: Any) -> Actions:
    """What is planned once the Secret has been looked at."""
    seen = observe_engine(state(world), world.cache, catalog=CATALOG, config=CONFIG, runner=RUNNER, now=world.now)
    return plan(replace(finished(world.reconciler.secrets.look_for_inspection(seen)), **more))


def test_c94_a_plan_looks_again_at_a_secret_that_may_be_at_fault(world: World) -> None:
    world.put(engine(model=GATED))
    world.reconcile()
    world.start_jobs()
    world.fail(world.unfinished_jobs()[0], REFUSED)
    assert look(world).again_seconds == 30


def test_c94_an_inspection_whose_secret_lacks_the_key_says_so_and_begins_anew_when_it_changes(world: World) -> None:
    world.put(engine(model=GATED))
    world.reconcile()
    world.start_jobs()
    (waiting,) = world.find(POD)
    word = 'MountVolume.SetUp failed for volume "token" : references non-existent secret key: token'
    events = {waiting["metadata"]["uid"]: word}
    stuck = look(world, volume_events=events)
    assert (stuck.delete, stuck.again_seconds) == ((), 30)
    (stalled,) = (c for c in stuck.status["conditions"] if c["type"] == "Stalled")
    assert (stalled["reason"], "key: token; it mounts Secret hub-token" in stalled["message"]) == (
        "SecretMissing",
        True,
    )
    world.change_secret()
    assert [o["kind"] for o in look(world, volume_events=events).delete] == ["Job"]


def test_an_inspection_that_failed_for_a_passing_reason_is_repeated(world: World) -> None:
    world.put(engine())
    world.reconcile()
    world.start_jobs()
    (job,) = world.unfinished_jobs()
    world.fail(job, {"reason": "NetworkUnreachable", "message": "no route", "retryable": True})
    world.settle()
    assert condition(world, "Stalled")["status"] == "absent"
    world.pass_time(60)
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def test_a_gpu_that_joins_later_is_served_by_itself(world: World) -> None:
    spec = engine()["spec"]
    h200 = {"name": "h200", "gpu": {"product": "NVIDIA-H200"}, "replicas": 1}
    world.put(engine(targets=[*spec["targets"], h200]))
    world.run_everything()
    ready = condition(world, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NoMatchingNode")
    assert "NVIDIA-H200" in ready["message"]
    assert condition(world, "Stalled")["status"] == "absent"
    assert dict(world.served()).keys() >= {"smol--a100", "smol--h100"}, "the other targets do not wait for it"
    world.put({"apiVersion": "v1", "kind": "Node", **node("h200", "NVIDIA-H200", "9.0", 143771)})
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def test_a_target_taken_out_of_the_spec_is_taken_away(world: World) -> None:
    serving(world)
    world.put(engine(targets=engine()["spec"]["targets"][:1]))
    world.run_everything()
    assert dict(world.served()).keys() == {"smol--a100"}
    assert len(world.find(DEPLOYMENT)) == 1
    assert condition(world, "Ready")["status"] == "True"


def test_deleting_an_engine_removes_all_it_made_after_the_grace_time(world: World) -> None:
    serving(world)
    world.delete(state(world))
    for _ in range(12):
        world.run_everything()
        world.pass_time(3600)
    for resource in (ENGINE_ARTIFACT, DEPLOYMENT, SERVICE, CONTROLLER_REVISION, JOB, POD):
        assert world.find(resource) == [], f"{resource.kind} left behind"
    assert world.published == set(), "files left in the store"


def test_two_engines_share_what_both_need_and_one_may_go(world: World) -> None:
    serving(world)
    built = dict(world.builds)
    world.put(engine("twin"))
    world.run_everything()
    assert condition(world, "Ready", "twin")["status"] == "True"
    assert dict(world.builds) == built, "the twin needs nothing new"
    world.delete(state(world))
    for _ in range(5):
        world.run_everything()
        world.pass_time(3600)
    assert len(world.find(ENGINE_ARTIFACT)) == 4
    assert condition(world, "Ready", "twin")["status"] == "True"


def test_a_deleted_job_of_a_running_build_is_made_again(world: World) -> None:
    world.put(engine())
    world.reconcile()
    world.start_jobs()
    for job in world.unfinished_jobs():
        world.finish(job)
    world.settle()
    world.start_jobs()
    (fetch,) = [j for j in world.unfinished_jobs() if "model-" in j["metadata"]["name"]]
    world.delete(fetch)
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def test_a_server_that_dies_makes_the_target_unavailable_and_nothing_is_rebuilt(world: World) -> None:
    serving(world)
    built = dict(world.builds)
    victim = next(d for d in world.find(DEPLOYMENT) if "a100" in d["metadata"]["name"])
    world.roll_out(victim, ready=False)
    world.settle()
    assert condition(world, "Available")["status"] == "False"
    assert label(victim, REVISION) == dict(world.served())["smol--a100"], "the Service stays with the revision"
    world.roll_out(next(d for d in world.find(DEPLOYMENT) if "a100" in d["metadata"]["name"]))
    world.settle()
    assert condition(world, "Ready")["status"] == "True"
    assert dict(world.builds) == built
