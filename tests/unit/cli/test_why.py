"""`why` on the simulated cluster: what a person sees at each point of an LLMEngine's way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.engines.simulation import World, engine
from trtllm_operator.cli.show_why import show_why
from trtllm_operator.cli.why import OPERATOR_SILENT, Report, Seen, why_artifact, why_engine
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, POD, Obj
from trtllm_operator.objects import label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

GATED = {"reason": "DownloadRefused", "message": "403 for owner/model: its terms are not accepted", "retryable": False}


@pytest.fixture
def world() -> World:
    made = World()
    made.put(engine())
    return made


def seen(world: World) -> Seen:
    def named(objects: list[Obj]) -> dict[str, Obj]:
        return {o["metadata"]["name"]: o for o in objects}

    return Seen(
        now=world.now,
        engines=named(world.find(LLM_ENGINE)),
        artifacts=named(world.find(ENGINE_ARTIFACT)),
        revisions=named(world.find(CONTROLLER_REVISION)),
        deployments=named(world.find(DEPLOYMENT)),
        jobs=named(world.find(JOB)),
        pods=world.find(POD),
    )


def why(world: World, name: str = "smol") -> Report:
    return why_engine(seen(world), name)


def advance(world: World, rounds: int) -> None:
    """So many rounds in which all Jobs that run succeed."""
    for _ in range(rounds):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
    world.settle()
    world.start_jobs()
    world.settle()


def steps(report: Report, way: str) -> dict[str, str]:
    found = next(w for w in report.ways if w.title == way)
    return {s.what: f"{s.name} {s.state} {s.where}" for s in found.steps}


def test_before_the_operator_has_looked(world: World) -> None:
    block = why(world).block
    assert block is not None
    assert block.reason == OPERATOR_SILENT
    assert "does it watch this namespace" in block.remedy


def test_while_calibration_texts_are_inspected_and_when_they_are_refused(world: World) -> None:
    dataset = {"persistentVolumeClaim": {"claimName": "texts", "path": "chat"}}
    precision = {"quantization": "fp8", "calibration": {"dataset": dataset}}
    world.put(engine(precision=precision, targets=[{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}]))
    advance(world, 1)
    way = "the texts in chat on claim texts"
    assert "running" in steps(why(world), way)["Inspection"]
    (job,) = world.unfinished_jobs()
    said = {"reason": "CalibrationUnreadable", "message": "rows.jsonl line 3: no text", "retryable": False}
    world.fail(job, said)
    world.settle()
    report = why(world)
    assert "failed" in steps(report, way)["Inspection"]
    assert report.block is not None
    assert report.block.message.startswith("rows.jsonl line 3")
    assert report.block.remedy == "the files, or spec.precision.calibration.dataset"
    assert not report.block.goes_on


def test_while_the_model_is_inspected(world: World) -> None:
    world.settle()
    world.start_jobs()
    report = why(world)
    assert "smol-inspect-" in steps(report, "the model")["Inspection"]
    assert "Pod smol-inspect-" in steps(report, "the model")["Inspection"]
    assert report.block is not None
    assert report.block.goes_on


def test_a_refused_spec_shows_the_arithmetic_and_what_to_change(world: World) -> None:
    world.put(engine(parallelism={"tensor": 2}))
    world.run_everything()
    report = why(world)
    assert not report.ready
    assert report.block is not None
    assert report.block.what == "the spec"
    assert "9 attention heads do not divide by 2" in report.block.message
    assert not report.block.goes_on


def test_a_build_that_goes_on_names_job_pod_and_node(world: World) -> None:
    advance(world, 3)
    way = steps(why(world), "target h100")
    assert "Ready" in way["Model"]
    assert "Ready" in way["Checkpoint"]
    name = next(a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Engine")
    assert any(f"Job {name}-1" in s.where for w in why(world).ways for s in w.steps)
    assert "on h100" in way["Engine"]


def test_a_failed_download_is_the_one_thing_that_blocks_every_target(world: World) -> None:
    advance(world, 1)
    fetch = next(j for j in world.unfinished_jobs() if "model-" in j["metadata"]["name"])
    world.fail(fetch, GATED)
    world.settle()
    report = why(world)
    assert report.block is not None
    assert report.block.what.startswith("Model model-")
    assert report.block.reason == "DownloadRefused"
    assert "its terms are not accepted" in report.block.message
    assert "tokenSecretRef" in report.block.remedy
    assert not report.block.goes_on


def test_an_engine_that_waits_for_what_it_is_made_from_says_for_which_part(world: World) -> None:
    advance(world, 1)
    fetch = next(j for j in world.unfinished_jobs() if "model-" in j["metadata"]["name"])
    world.fail(fetch, GATED)
    world.settle()
    name = next(a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Engine")
    report = why_artifact(seen(world), name)
    assert not report.ready
    assert report.block is not None
    assert report.block.reason == "DownloadRefused", "not ParentNotReady"
    assert [s.what for s in report.ways[0].steps] == ["Model", "Checkpoint", "Engine"]
    assert dict(report.facts)["for"] in ("smol/a100", "smol/h100")
    assert "trtllm-build" in dict(report.facts)["command"]


def test_when_all_is_well_nothing_blocks(world: World) -> None:
    world.run_everything()
    report = why(world)
    assert report.ready
    assert report.block is None
    assert "1 of 1 ready" in steps(report, "target a100")["Servers"]
    assert "weights 256" in dict(next(w for w in report.ways if w.title == "target a100").facts)["plan"]


def test_a_gpu_that_no_node_has_is_waited_for(world: World) -> None:
    for node in [n for n in world.cache.find(world._by_kind["Node"]) if label(n, "nvidia.com/gpu.product")]:
        world.delete(node)
    world.run_everything()
    report = why(world)
    assert report.block is not None
    assert report.block.reason == "NoMatchingNode"
    assert "a node with such a GPU" in report.block.remedy


def test_no_state_on_the_way_makes_it_raise(world: World) -> None:
    for rounds in range(8):
        report = why(world)
        assert report.title == "LLMEngine smol"
        for artifact in world.find(ENGINE_ARTIFACT):
            why_artifact(seen(world), artifact["metadata"]["name"])
        advance(world, rounds % 2)


def test_the_screen(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    advance(world, 1)
    assert show_why(why(world), "table") == 1
    out = capsys.readouterr().out
    assert out.startswith("LLMEngine smol: not ready\n")
    assert "what blocks: Model model-" in out
    assert len(out.splitlines()) < 40, "one screen"
    assert show_why(why(world), "json") == 1
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert parsed["block"]["reason"] == parsed["ways"][0]["block"]["reason"]
    world.run_everything()
    assert show_why(why(world), "table") == 0
    assert "nothing blocks it" in capsys.readouterr().out
