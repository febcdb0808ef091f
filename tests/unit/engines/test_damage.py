"""An artifact that is damaged or missing in the store: found before a server starts, named, and made again, once."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.kube.resource import DEPLOYMENT, JOB, POD
from trtllm_operator.objects import CHECK, RETRY, REVISION, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE, Key, keys

from .simulation import World, engine

HOUR, DAY = 3600, 86_400


@pytest.fixture
def world() -> World:
    """An LLMEngine that serves on two generations of GPUs."""
    made = World()
    made.put(engine())
    made.run_everything()
    assert ready(made)
    return made


def ready(world: World) -> bool:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"]["conditions"])


def engine_of(world: World, target: str) -> str:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    artifact: str = next(t["artifact"] for t in found["status"]["targets"] if t["name"] == target)
    return artifact


def status(world: World, artifact: str) -> dict[str, Any]:
    found = world.get(ENGINE_ARTIFACT, artifact)
    assert found is not None
    return dict(found["status"])


def condition(world: World, artifact: str, type_: str) -> dict[str, Any]:
    return next((dict(c) for c in status(world, artifact)["conditions"] if c["type"] == type_), {})


def artifact_of(world: World, type_: str) -> str:
    name: str = next(a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == type_)
    return name


def servers(world: World) -> None:
    """All servers start again, some time later."""
    world.pass_time(60)
    for deployment in world.find(DEPLOYMENT):
        world.serve(deployment)


def checks(world: World) -> list[str]:
    return sorted(j["metadata"]["name"] for j in world.find(JOB) if label(j, CHECK))


class TestFoundByAServer:
    def test_it_is_checked_taken_away_and_made_again(self, world: World) -> None:
        damaged, other = engine_of(world, "h100"), engine_of(world, "a100")
        served = dict(world.served())
        world.damaged.add(damaged)
        servers(world)
        world.reconcile()
        assert condition(world, damaged, "Ready")["reason"] == "CheckingFiles"
        assert f"{damaged} is damaged" in condition(world, damaged, "Ready")["message"]
        world.run_jobs()
        assert damaged in world.published - world.damaged
        assert status(world, damaged)["phase"] == "Ready"
        record = status(world, damaged)["damage"]
        assert record["whole"] is False
        assert "is not what was published" in record["message"]
        assert status(world, damaged)["attempt"] == 2, "one more attempt"
        assert status(world, other)["attempt"] == 1
        assert dict(world.served()) == served, "what served goes on"
        servers(world)
        world.settle()
        assert ready(world)
        assert checks(world) == [f"{damaged}-check-1"]

    def test_the_llmengine_says_so_and_is_not_stalled(self, world: World) -> None:
        world.damaged.add(engine_of(world, "h100"))
        servers(world)
        world.reconcile()
        world.reconcile()
        found = world.get(LLM_ENGINE, "smol")
        assert found is not None
        conditions = {c["type"]: c for c in found["status"]["conditions"]}
        assert conditions["Ready"]["reason"] == "CheckingFiles"
        assert "said to be damaged" in conditions["Ready"]["message"]
        assert "Stalled" not in conditions

    def test_the_model_of_a_server_is_made_again_and_nothing_that_was_made_from_it(self, world: World) -> None:
        model = artifact_of(world, "Model")
        world.damaged.add(model)
        servers(world)
        world.run_jobs()
        attempts = {a["metadata"]["name"]: a["status"]["attempt"] for a in world.find(ENGINE_ARTIFACT)}
        assert attempts.pop(model) == 2
        assert set(attempts.values()) == {1}

    def test_the_pod_wakes_the_artifact_that_it_names(self, world: World) -> None:
        damaged = engine_of(world, "h100")
        world.damaged.add(damaged)
        servers(world)
        served_by = [pod for pod in world.find(POD) if label(pod, REVISION)]
        woken = {key for pod in served_by for key in keys(POD, pod, world.cache)}
        assert Key("EngineArtifact", "team", damaged) in woken
        assert Key("EngineArtifact", "team", engine_of(world, "a100")) not in woken

    def test_a_server_that_still_complains_of_the_copy_before_starts_nothing(self, world: World) -> None:
        damaged = engine_of(world, "h100")
        world.damaged.add(damaged)
        servers(world)
        world.run_jobs()
        world.pass_time(10 * 60)
        world.run_jobs()
        assert checks(world) == [f"{damaged}-check-1"]
        assert world.builds[damaged] == 1


class TestWhole:
    @pytest.fixture
    def name(self, world: World) -> str:
        """An engine of which a server says wrongly that it is damaged: its own copy, or the way to it, is."""
        name = engine_of(world, "h100")
        self.complain(world, name)
        world.run_jobs()
        return name

    def complain(self, world: World, name: str) -> None:
        world.damaged.add(name)
        servers(world)
        world.damaged.discard(name)

    def test_it_stays_as_it_is(self, world: World, name: str) -> None:
        assert status(world, name)["phase"] == "Ready"
        assert status(world, name)["attempt"] == 1
        assert status(world, name)["damage"]["whole"] is True
        assert "found whole in the store" in condition(world, name, "Ready")["message"]
        servers(world)
        world.settle()
        assert ready(world)

    def test_it_is_not_read_again_for_an_hour_whatever_is_said(self, world: World, name: str) -> None:
        for _ in range(5):
            self.complain(world, name)
            world.run_jobs()
        assert checks(world) == [f"{name}-check-1"]
        world.pass_time(HOUR)
        self.complain(world, name)
        world.run_jobs()
        assert checks(world) == [f"{name}-check-1", f"{name}-check-2"]
        assert world.builds[name] == 1


class TestTwice:
    @pytest.fixture
    def name(self, world: World) -> str:
        name = engine_of(world, "h100")
        world.damaged.add(name)
        servers(world)
        world.run_jobs()
        return name

    def again(self, world: World, name: str) -> None:
        world.damaged.add(name)
        servers(world)
        world.run_jobs()

    def test_within_a_day_a_person_has_to_see_to_the_store(self, world: World, name: str) -> None:
        self.again(world, name)
        stalled = condition(world, name, "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "ArtifactCorrupted")
        assert "twice within a day" in stalled["message"]
        assert RETRY in stalled["message"], "the message says how to go on"
        assert status(world, name)["attempt"] == 2, "it is not built for ever"
        world.pass_time(2 * DAY)
        world.run_jobs()
        assert status(world, name)["attempt"] == 2

    def test_the_retry_annotation_builds_it_again(self, world: World, name: str) -> None:
        self.again(world, name)
        found = world.get(ENGINE_ARTIFACT, name)
        assert found is not None
        world.put({**found, "metadata": {**found["metadata"], "annotations": {RETRY: "1"}}})
        world.run_jobs()
        assert status(world, name)["phase"] == "Ready"
        assert status(world, name)["attempt"] == 3

    def test_after_a_day_it_is_chance_again(self, world: World, name: str) -> None:
        world.pass_time(DAY)
        self.again(world, name)
        assert status(world, name)["phase"] == "Ready"
        assert status(world, name)["attempt"] == 3


class TestFoundByAnAttempt:
    def test_its_parent_is_made_again_and_then_it_goes_on(self, world: World) -> None:
        checkpoint = artifact_of(world, "Checkpoint")
        world.damaged.add(checkpoint)
        world.pass_time(60)
        longer = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 4096, "maxNumTokens": 2048}
        world.put(engine(budgets=longer))
        world.run_jobs(20)
        assert status(world, checkpoint)["attempt"] == 2
        for name in (engine_of(world, "h100"), engine_of(world, "a100")):
            assert status(world, name)["phase"] == "Ready"
            assert status(world, name)["attempt"] <= 3
        servers(world)
        world.settle()
        assert ready(world)

    def test_a_damaged_copy_that_nobody_knew_of_is_replaced(self) -> None:
        """As after a restored backup: the store holds what no status speaks of."""
        world = World()
        world.put(engine())
        for _ in range(6):
            world.reconcile()
            world.start_jobs()
            for job in world.unfinished_jobs():
                if not (label(job, "llmengine.dev/artifact") or "").startswith("engine-"):
                    world.finish(job)
        name = next(a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Engine")
        world.published.add(name)
        world.damaged.add(name)
        world.run_jobs(20)
        assert status(world, name)["phase"] == "Ready"
        assert status(world, name)["attempt"] == 2
        assert world.builds[name] == 1


class TestCheck:
    @pytest.fixture
    def name(self, world: World) -> str:
        name = engine_of(world, "h100")
        world.damaged.add(name)
        servers(world)
        world.reconcile()
        world.start_jobs()
        return name

    def test_one_that_fails_is_said_and_tried_again(self, world: World, name: str) -> None:
        (job,) = world.unfinished_jobs()
        world.fail(job, {"reason": "StorageUnreachable", "message": "no route to the bucket", "retryable": True})
        world.reconcile()
        message = condition(world, name, "Ready")["message"]
        assert "its check failed (StorageUnreachable: no route to the bucket)" in message
        assert checks(world) == [f"{name}-check-1"]
        world.pass_time(60)
        world.run_jobs()
        assert status(world, name)["phase"] == "Ready"
        assert checks(world) == [f"{name}-check-1", f"{name}-check-2"]

    def test_one_that_cannot_pass_stalls(self, world: World, name: str) -> None:
        (job,) = world.unfinished_jobs()
        world.fail(job, {"reason": "StorageRefused", "message": "wrong key", "retryable": False})
        world.reconcile()
        assert condition(world, name, "Stalled")["status"] == "True"

    def test_one_whose_report_was_lost_is_made_again(self, world: World, name: str) -> None:
        (job,) = world.unfinished_jobs()
        world.finish(job)
        world.lose_pod(job)
        world.run_jobs()
        assert status(world, name)["phase"] == "Ready"
        assert world.builds[name] == 1

    def test_its_job_goes_with_the_artifact(self, world: World, name: str) -> None:
        found = world.get(LLM_ENGINE, "smol")
        assert found is not None
        world.delete(found)
        world.pass_time(2 * HOUR)
        world.run_jobs(12)
        world.pass_time(2 * HOUR)
        world.run_jobs(12)
        assert world.find(ENGINE_ARTIFACT) == []
        assert world.find(JOB) == []
        assert world.published == set()
