"""Public reports about an operator's behaviour over time, by their number."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from trtllm_operator.engines.plan import plan as engine_plan
from trtllm_operator.engines.snapshot import EngineSnapshot
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, POD, SERVICE
from trtllm_operator.objects import ATTEMPT, REVISION, TARGET, label, timestamp
from trtllm_operator.reconcile.observe import observe_engine
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE, RESOURCES, Key, keys

from ..artifacts.world import CONFIG, RUNNER
from ..reconcile.test_reader import World as Reading
from .simulation import CATALOG, NAMESPACE, World, claim, engine
from .test_plan import condition, serving, state

BUDGETS = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 4096, "maxNumTokens": 2048}
LONGER = {**BUDGETS, "maxSeqLen": 8192}
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
MINE = (JOB, POD, DEPLOYMENT, SERVICE, CONTROLLER_REVISION, ENGINE_ARTIFACT)
FOREIGN_HOST = re.compile(r"https?://(?!hub\b)[\w.-]+|huggingface\.co|nvcr\.io|ngc\.nvidia\.com")


@pytest.fixture
def world() -> World:
    return World()


def until(world: World, artifact: str) -> None:
    """Everything goes well until an attempt at such an artifact runs."""
    for _ in range(20):
        world.settle()
        world.start_jobs()
        if any(world.pods_of(j) for j in world.jobs_of(artifact)):
            return
        for job in world.unfinished_jobs():
            world.finish(job)
    raise AssertionError(f"no {artifact} was begun")


def targets_of(world: World) -> dict[str, dict[str, Any]]:
    return {t["name"]: t for t in state(world)["status"]["targets"]}


def test_c91_everything_is_made_in_the_namespace_of_the_llmengine_and_goes_with_what_owns_it(world: World) -> None:
    serving(world)
    for resource in MINE:
        for made in world.find(resource):
            assert made["metadata"]["namespace"] == NAMESPACE
            assert made["metadata"].get("ownerReferences") or resource == ENGINE_ARTIFACT
            assert '"namespace"' not in json.dumps(made.get("spec", {})), "a Pod reads nothing of another namespace"


def test_c90_a_claim_that_one_node_can_mount_is_refused_for_two_generations_until_it_is_another(world: World) -> None:
    world.put(claim("disk", "ReadWriteOnce"))
    world.put(engine(storage={"persistentVolumeClaim": {"claimName": "disk"}}))
    world.run_everything()
    refused = condition(world, "Validated")
    assert refused["status"] == "False"
    assert "claim disk is ReadWriteOnce, which one node at a time can mount" in refused["message"]
    assert world.find(ENGINE_ARTIFACT) == []
    disk = world.put(claim("disk"))
    assert Key("LLMEngine", NAMESPACE, "smol") in set(keys(PERSISTENT_VOLUME_CLAIM, disk, world.cache))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def test_c90_what_serves_is_not_judged_again(world: World) -> None:
    serving(world)
    world.put(claim("engines", "ReadWriteOnce"))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def starting(world: World, **status: Any) -> EngineSnapshot:
    """Servers that have had a node for a minute and do not answer, as they are seen."""
    serving(world)
    for deployment in world.find(DEPLOYMENT):
        world.roll_out(deployment, ready=False)
    for pod in world.find(POD):
        if label(pod, REVISION):
            world.set_status(pod, {"phase": "Pending", **status})
    world.pass_time(60)
    return observe_engine(state(world), world.cache, catalog=CATALOG, config=CONFIG, runner=RUNNER, now=world.now)


MULTI_ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) engine-1-1-abc'


@pytest.mark.parametrize(
    ("reason", "minutes", "said"),
    [("FailedAttachVolume", 0, MULTI_ATTACH), ("FailedAttachVolume", 60, ""), ("Unhealthy", 0, "")],
    ids=["now", "long ago", "of something else"],
)
def test_c90_a_server_that_cannot_have_its_claim_says_so_in_the_cluster_s_words(
    world: World, reason: str, minutes: int, said: str
) -> None:
    seen = starting(world)
    waited = {"reason": "FailedMount", "message": "timed out waiting", "lastTimestamp": timestamp(world.now)}
    then = timestamp(world.now - timedelta(minutes=minutes))
    event = {"reason": reason, "message": MULTI_ATTACH, "lastTimestamp": then}
    reading = Reading(events=[event, *([waited] if said else [])])
    heard = asyncio.run(reading.reader.read_volume_events(seen))
    asyncio.run(reading.reader.read_volume_events(seen))
    assert len(reading.api.asked) == 2, "one server of each target, and not again at once"
    made = engine_plan(heard)
    assert made.again_seconds is not None
    assert made.again_seconds <= 30
    for target in made.status["targets"]:
        assert (target["reason"] == "VolumeUnavailable") == bool(said)
        assert said in target["message"]


def test_c90_a_server_whose_volumes_are_there_is_not_asked_about(world: World) -> None:
    reading = Reading(events=[{"reason": "FailedMount", "message": "x", "lastTimestamp": "2099-01-01T00:00:00Z"}])
    pulling = starting(world, conditions=[{"type": "PodReadyToStartContainers", "status": "True"}])
    assert asyncio.run(reading.reader.read_volume_events(pulling)).volume_events == {}
    assert reading.api.asked == []


def test_c89_a_server_that_meets_the_memory_of_an_ending_one_is_no_failure_until_that_is_gone(world: World) -> None:
    report = {"reason": "GpuMemoryExhausted", "message": "CUDA out of memory", "retryable": False}
    ended = {"exitCode": 64, "message": json.dumps({"failure": report})}
    status = {"name": "triton", "image": "i", "ready": False, "lastState": {"terminated": ended}}
    seen = starting(world, containerStatuses=[status])
    (failing, *_) = (p for p in seen.pods if label(p, TARGET) == "h100")
    meta = {**failing["metadata"], "name": "old", "deletionTimestamp": timestamp(world.now)}
    old = {**failing, "metadata": meta, "status": {}}

    def reasons(snapshot: EngineSnapshot) -> tuple[Any, bool]:
        made = engine_plan(snapshot).status
        stalled = any(c["type"] == "Stalled" and c["status"] == "True" for c in made["conditions"])
        return {t["name"]: t["reason"] for t in made["targets"]}["h100"], stalled

    assert reasons(replace(seen, ending=(old,))) == ("GpuMemoryHeld", False)
    assert reasons(seen) == ("GpuMemoryExhausted", True)


@pytest.mark.parametrize(
    "model",
    [
        {"persistentVolumeClaim": {"claimName": "models", "path": "smollm2"}},
        {"s3": {"bucket": "models", "prefix": "smollm2", "endpoint": "http://hub:9000"}},
    ],
)
def test_c96_a_site_without_the_public_hosts_builds_and_serves(world: World, model: dict[str, Any]) -> None:
    world.put(engine(model=model))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    rendered = [made for resource in (JOB, DEPLOYMENT) for made in world.find(resource)]
    assert len(rendered) > 4
    assert not FOREIGN_HOST.findall(json.dumps(rendered))
    for made in rendered:
        pod = made["spec"]["template"]["spec"]
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            if "runner.pyz" in " ".join(container["command"]):
                assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]


def test_c96_a_calibration_takes_its_texts_from_a_path_and_never_from_a_hub(world: World) -> None:
    dataset = {"persistentVolumeClaim": {"claimName": "texts", "path": "cnn"}}
    for given in ({}, {"calibration": {"dataset": dataset}}):
        world.put(engine(f"fp8-{len(given)}", precision={"quantization": "fp8", **given}, targets=[H100]))
    world.run_everything()
    commands = [
        a["spec"]["inputs"]["command"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Checkpoint"
    ]
    assert len(commands) == 2
    for command in commands:
        assert str(command[list(command).index("--calib_dataset") + 1]).startswith("{calibration}")


@pytest.mark.parametrize("how", ["it is gone", "it is being deleted"])
def test_c99_an_artifact_does_not_outlive_the_claim_that_held_its_files(world: World, how: str) -> None:
    serving(world)
    store = world.get(PERSISTENT_VOLUME_CLAIM, "engines")
    assert store is not None
    if how == "it is being deleted":
        store = world.put({**store, "metadata": {**store["metadata"], "finalizers": ["kubernetes.io/pvc-protection"]}})
    world.delete(store)
    world.delete(state(world))
    assert world.find(LLM_ENGINE) == [], "nothing holds the LLMEngine itself"
    for _ in range(3):
        world.pass_time(3601)
        world.settle()
    assert world.find(ENGINE_ARTIFACT) == []
    assert not any("collect" in j["metadata"]["name"] for j in world.find(JOB))


def test_c105_a_spec_changed_during_a_build_and_back_again(world: World) -> None:
    world.put(engine(budgets=BUDGETS, targets=[H100]))
    until(world, "engine")
    (first,) = world.jobs_of("engine")
    wanted = label(first, "llmengine.dev/artifact")
    world.put(engine(budgets=LONGER, targets=[H100]))
    world.settle()
    world.pass_time(6)
    world.settle()
    world.start_jobs()
    assert state(world)["status"]["observedGeneration"] == 2
    assert world.find(DEPLOYMENT) == [], "the engine that is no longer asked for does not serve"
    attempts = {label(j, "llmengine.dev/artifact") for j in world.jobs_of("engine") if label(j, ATTEMPT)}
    assert wanted not in attempts, "what is no longer asked for is still being built"
    (other,) = attempts
    world.put(engine(budgets=BUDGETS, targets=[H100]))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert state(world)["status"]["observedGeneration"] == 3
    assert targets_of(world)["h100"]["servedArtifact"] == wanted
    assert other not in world.builds, "a spec of a few seconds was built to its end"
    assert all(count == 1 for count in world.builds.values())


def test_c107_what_happens_to_a_child_wakes_its_parent(world: World) -> None:
    serving(world)
    parent = Key("LLMEngine", NAMESPACE, "smol")
    for resource in (DEPLOYMENT, SERVICE, CONTROLLER_REVISION, ENGINE_ARTIFACT):
        for child in world.find(resource):
            assert parent in set(keys(resource, child, world.cache)), child["metadata"]["name"]
    servers = builds = 0
    for resource in (JOB, POD):
        for child in world.find(resource):
            woken = set(keys(resource, child, world.cache))
            artifact = label(child, "llmengine.dev/artifact")
            assert (Key("EngineArtifact", NAMESPACE, artifact) if artifact else parent) in woken
            builds, servers = builds + bool(artifact), servers + (not artifact)
    assert builds
    assert servers


def test_c107_what_happened_while_nobody_looked_is_found(world: World) -> None:
    seen, unseen = World(), world
    for one in (seen, unseen):
        one.put(engine(targets=[H100]))
        until(one, "engine")
    for job in seen.unfinished_jobs():
        seen.finish(job)
    seen.run_everything()
    for job in unseen.unfinished_jobs():
        unseen.finish(job)
    unseen.reconcile()
    for deployment in unseen.find(DEPLOYMENT):
        unseen.serve(deployment)
    unseen.run_everything()
    assert condition(unseen, "Ready")["status"] == condition(seen, "Ready")["status"] == "True"
    assert dict(unseen.served()) == dict(seen.served())


@pytest.mark.parametrize("jobs", [True, False], ids=["its Job is there", "its Job is gone"])
@pytest.mark.parametrize("status", [{}, {"observedGeneration": 1, "phase": "Ready", "ofAnotherVersion": True}])
def test_c108_a_status_that_was_lost_is_made_again_and_nothing_is_built(
    world: World, status: dict[str, Any], jobs: bool
) -> None:
    serving(world)
    world.settle()
    built, served, there = dict(world.builds), dict(world.served()), len(world.find(JOB))
    if not jobs:
        for job in world.find(JOB):
            world.delete(job)
        there = 0
    for resource in (LLM_ENGINE, ENGINE_ARTIFACT):
        for found in world.find(resource):
            world.set_status(found, {k: v for k, v in status.items() if resource == ENGINE_ARTIFACT or k != "phase"})
    world.settle()
    if jobs:
        assert len(world.find(JOB)) == there, "what the Jobs that are there have reported is enough"
    assert dict(world.served()) == served, "what serves goes on"
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert dict(world.builds) == built
    assert dict(world.served()) == served
    for artifact in world.find(ENGINE_ARTIFACT):
        ready = {c["type"]: c["status"] for c in artifact["status"]["conditions"]}["Ready"]
        assert (artifact["status"]["phase"], ready) == ("Ready", "True"), "phase and conditions say the same"


def test_c109_a_deployment_without_a_server_that_answers_is_not_ready(world: World) -> None:
    world.put(engine())
    world.run_everything(servers=False)
    assert len(world.find(DEPLOYMENT)) == 2
    assert condition(world, "Ready")["status"] == "False"
    assert condition(world, "Available")["status"] == "False"
    world.serve(next(d for d in world.find(DEPLOYMENT) if "a100" in d["metadata"]["name"]))
    world.settle()
    assert condition(world, "Ready")["status"] == "False"
    assert "h100: 0 of 1 servers are ready" in condition(world, "Ready")["message"]
    assert "a100" not in condition(world, "Ready")["message"]
    assert condition(world, "Available")["message"] == "nothing proven serves on h100"
    ready = {name: (t["reason"], t["readyReplicas"]) for name, t in targets_of(world).items()}
    assert ready == {"a100": ("Serving", 1), "h100": ("StartingServers", 0)}


def test_c111_the_spec_is_left_as_it_was_applied(world: World) -> None:
    wanted = engine()
    world.put(wanted)
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert state(world)["spec"] == wanted["spec"], "what was resolved is in the status"
    assert state(world)["status"]["model"]["revision"] == "c" * 40
    before = {r: [o["metadata"]["resourceVersion"] for o in world.find(r)] for r in RESOURCES if r in MINE}
    world.put(wanted)
    world.settle()
    assert {r: [o["metadata"]["resourceVersion"] for o in world.find(r)] for r in RESOURCES if r in MINE} == before
