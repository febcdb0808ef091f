"""A user's own calibration texts: inspected once before anything is built, and again when a build finds others."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.engines import wanted
from trtllm_operator.kube.resource import JOB, Obj
from trtllm_operator.objects import RETRY, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT

from .simulation import World, engine
from .test_plan import condition, state

A100 = {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}}
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
LONGER = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 4096, "maxNumTokens": 2048}


def precision(path: str = "chat", quantization: str = "fp8") -> dict[str, Any]:
    dataset = {"persistentVolumeClaim": {"claimName": "texts", "path": path}}
    return {"quantization": quantization, "calibration": {"dataset": dataset}}


def calibrated(path: str = "chat", **changes: Any) -> dict[str, Any]:
    return engine(**{"precision": precision(path), "targets": [H100], **changes})


@pytest.fixture
def world() -> World:
    return World()


def inspections(world: World) -> list[Obj]:
    """Of texts, whether they have ended or not."""
    return [j for j in world.find(JOB) if j["spec"]["template"]["spec"]["containers"][0]["name"] == "digest"]


def artifacts(world: World, type_: str) -> list[Obj]:
    return [a for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == type_]


def digests(world: World) -> set[str]:
    return {a["spec"]["inputs"]["calibration"]["digest"] for a in artifacts(world, "Checkpoint")}


def step(world: World) -> None:
    """Everything that can happen without time passing, but for the end of an inspection of texts."""
    for _ in range(5):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            if job not in inspections(world):
                world.finish(job)
    world.settle()


def test_they_are_known_before_any_artifact_is_and_are_part_of_the_checkpoint_s_inputs(world: World) -> None:
    world.put(calibrated())
    step(world)
    assert world.find(ENGINE_ARTIFACT) == [], "neither a download nor a GPU before it is known that they can be used"
    assert len(inspections(world)) == 1
    assert condition(world, "Ready")["message"].startswith("inspection: ")
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    assert digests(world) == {world.texts}
    (remembered,) = state(world)["status"]["calibration"]
    assert (remembered["claimName"], remembered["path"], remembered["digest"]) == ("texts", "chat", world.texts)


def test_at_rest_they_are_not_looked_at_again(world: World) -> None:
    world.put(calibrated())
    world.run_everything()
    for job in world.find(JOB):
        world.delete(job)  # a day later
    world.texts = "f" * 64
    world.pass_time(86_400)
    world.settle()
    assert world.find(JOB) == []
    assert digests(world) == {"e" * 64}


def test_what_cannot_be_used_is_refused_until_a_person_says_that_it_is_put_right(world: World) -> None:
    message = "rows.jsonl line 3: no text under `text`"
    world.put(calibrated())
    step(world)
    (job,) = inspections(world)
    world.fail(job, {"reason": "CalibrationUnreadable", "message": message, "retryable": False})
    world.settle()
    assert condition(world, "Validated")["status"] == "False"
    assert condition(world, "Stalled")["reason"] == "CalibrationUnreadable"
    said = condition(world, "Stalled")["message"]
    assert said.startswith(message)
    assert f"kubectl annotate llmengine smol {RETRY}=" in said
    world.run_everything()
    assert world.find(ENGINE_ARTIFACT) == []
    live = state(world)
    world.put({**live, "metadata": {**live["metadata"], "annotations": {RETRY: "1"}}})
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")


def test_a_build_that_finds_others_has_them_inspected_again_and_is_made_from_those(world: World) -> None:
    world.put(calibrated())
    step(world)
    world.finish(inspections(world)[0])
    world.texts = "f" * 64
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    assert [t["digest"] for t in state(world)["status"]["calibration"]] == ["f" * 64]
    (ready,) = [a for a in artifacts(world, "Checkpoint") if a["status"]["phase"] == "Ready"]
    assert ready["spec"]["inputs"]["calibration"]["digest"] == "f" * 64
    assert artifacts(world, "Checkpoint") == [ready], "what cannot be made any more is removed"
    attempts = [j["metadata"]["name"] for j in world.jobs_of("Checkpoint")]
    assert not [name for name in attempts if name.endswith("-2")], "no further GPU is asked for it"


def test_when_the_earlier_ones_are_back_there_is_one_inspection_and_a_person_is_told_what_to_do(world: World) -> None:
    world.put(calibrated())
    step(world)
    world.finish(inspections(world)[0])
    first = world.texts
    world.texts = "f" * 64
    while not (failed := [j for j in world.jobs_of("checkpoint") if "conditions" in j.get("status", {})]):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
    assert label(failed[0], "llmengine.dev/attempt") == "1"
    world.texts = first
    world.pass_time(5)
    world.run_everything()
    (checkpoint,) = artifacts(world, "Checkpoint")
    assert condition(world, "Stalled")["reason"] == "CalibrationChanged"
    assert f"kubectl annotate eart {checkpoint['metadata']['name']} {RETRY}=" in condition(world, "Stalled")["message"]
    assert world.reconcile() == 0, "no inspection follows another"
    world.put({**checkpoint, "metadata": {**checkpoint["metadata"], "annotations": {RETRY: "1"}}})
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")


def test_a_checkpoint_that_is_there_serves_further_engines_whatever_lies_on_the_claim_now(world: World) -> None:
    world.put(calibrated())
    world.run_everything()
    world.texts = "f" * 64
    world.put(calibrated(budgets=LONGER))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert digests(world) == {"e" * 64}
    assert len(artifacts(world, "Engine")) == 2


def test_another_directory_is_inspected_and_the_model_s_branch_is_not_resolved_anew(world: World) -> None:
    world.put(calibrated())
    world.run_everything()
    for job in world.find(JOB):
        world.delete(job)
    world.texts = "f" * 64
    world.put(calibrated("news"))
    step(world)
    assert [j["metadata"]["name"] for j in world.find(JOB)] == [j["metadata"]["name"] for j in inspections(world)]
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert [t["path"] for t in state(world)["status"]["calibration"]] == ["news"]
    assert digests(world) == {"e" * 64, "f" * 64}


def test_a_spec_that_does_not_calibrate_has_nothing_to_do_with_them(world: World) -> None:
    world.put(calibrated(precision=precision(quantization="int8_wo")))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert inspections(world) == []
    assert "calibration" not in state(world)["status"]


def test_what_is_made_already_stays_when_a_build_for_something_else_finds_others(world: World) -> None:
    """Of the same LLMEngine and of another one that names the same texts."""
    plain = {**A100, "precision": {"quantization": "none"}}
    world.put(calibrated(targets=[plain, H100]))
    world.put({**calibrated(), "metadata": {**calibrated()["metadata"], "name": "other"}})
    world.run_everything()
    before = dict(world.served())
    world.texts = "f" * 64
    more = {**H100, "name": "more", "parallelism": {"tensor": 3}}
    world.put(calibrated(targets=[plain, H100, more]))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    assert condition(world, "Ready", "other")["status"] == "True"
    after = dict(world.served())
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    world.put(calibrated(targets=[plain, H100]))
    world.run_everything()
    assert dict(world.served()) == before


def test_a_checkpoint_that_is_lost_is_made_from_what_is_there_now(world: World) -> None:
    world.put(calibrated())
    world.run_everything()
    (checkpoint,) = artifacts(world, "Checkpoint")
    (engine_artifact,) = artifacts(world, "Engine")
    for lost in (checkpoint, engine_artifact):
        world.published.discard(lost["metadata"]["name"])
        world.set_status(lost, {})
    for job in (*world.jobs_of("checkpoint"), *world.jobs_of("engine")):
        world.delete(job)
    world.texts = "f" * 64
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True", condition(world, "Ready")
    assert [t["digest"] for t in state(world)["status"]["calibration"]] == ["f" * 64]


def test_what_an_operator_that_inspected_none_has_made_stays_until_the_spec_asks_for_something_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(wanted, "calibration_texts", lambda *_: None)
        world.put(calibrated())
        world.run_everything()
    (made,) = artifacts(world, "Checkpoint")
    assert made["spec"]["inputs"]["calibration"] == {"claimName": "texts", "path": "chat"}
    before = dict(world.served())
    world.pass_time(86_400)
    assert world.reconcile() == 0
    assert dict(world.served()) == before
    world.put(calibrated(budgets=LONGER))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert {a["spec"]["inputs"]["calibration"].get("digest") for a in artifacts(world, "Checkpoint")} == {
        None,
        "e" * 64,
    }
    world.put(calibrated())
    world.run_everything()
    assert dict(world.served()) == before, "the way back leads to what was there"
