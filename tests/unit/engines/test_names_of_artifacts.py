"""An EngineArtifact that somebody else has put there is not what its name says."""

from __future__ import annotations

import json

import pytest

from trtllm_operator.artifacts.collection import FINALIZER
from trtllm_operator.kube.resource import JOB, Obj
from trtllm_operator.objects import ARTIFACT, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from .simulation import NAMESPACE, World, engine

H100 = [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}]


def genuine() -> list[Obj]:
    world = World()
    world.put(engine(targets=H100))
    world.run_everything()
    return world.find(ENGINE_ARTIFACT)


def squat(world: World, artifact: Obj, **inputs: object) -> str:
    name = str(artifact["metadata"]["name"])
    spec = {**artifact["spec"], "inputs": {**artifact["spec"]["inputs"], **inputs}}
    meta = {"name": name, "namespace": NAMESPACE, "labels": artifact["metadata"]["labels"]}
    world.put({"apiVersion": artifact["apiVersion"], "kind": artifact["kind"], "metadata": meta, "spec": spec})
    return name


def condition(obj: Obj, type_: str) -> dict[str, str]:
    found: dict[str, str] = next(c for c in obj["status"]["conditions"] if c["type"] == type_)
    return found


@pytest.mark.parametrize("kind", ["Engine", "Checkpoint", "Model"])
def test_what_is_not_what_its_name_says_runs_nowhere_and_serves_nothing(kind: str) -> None:
    world = World()
    artifact = next(a for a in genuine() if a["spec"]["type"] == kind)
    inputs = {"image": "evil@sha256:" + "0" * 64, "command": ["sh", "-c", "id"]} if kind != "Model" else {}
    storage = {"persistentVolumeClaim": {"claimName": "other"}}
    name = squat(world, artifact, storage=storage, **inputs)
    world.put(engine(targets=H100))
    world.run_everything()

    squatted, asking = world.get(ENGINE_ARTIFACT, name), world.get(LLM_ENGINE, "smol")
    assert squatted is not None
    assert asking is not None
    assert condition(squatted, "Stalled")["reason"] == "NameMismatch"
    assert "the operator did not make it" in condition(squatted, "Stalled")["message"]
    assert not [j for j in world.find(JOB) if label(j, ARTIFACT) == name]
    assert condition(asking, "Ready")["reason"] == "NameMismatch"
    assert f"EngineArtifact {name} is in the way" in condition(asking, "Stalled")["message"]
    assert not dict(world.served())

    world.delete(squatted)
    world.run_everything()
    again = world.get(LLM_ENGINE, "smol")
    assert again is not None
    assert condition(again, "Ready")["status"] == "True", "once it is deleted, the artifact is made"


def test_a_squatter_that_is_deleted_takes_no_files_with_it() -> None:
    world = World()
    artifact = next(a for a in genuine() if a["spec"]["type"] == "Engine")
    name = squat(world, artifact, parent="checkpoint-" + "0" * 20)
    live = world.get(ENGINE_ARTIFACT, name)
    assert live is not None
    held = world.put({**live, "metadata": {**live["metadata"], "finalizers": [FINALIZER]}})
    world.delete(held)
    world.settle()
    assert world.get(ENGINE_ARTIFACT, name) is None
    assert not world.find(JOB), "the files under its name are another one's"


def test_the_trial_is_the_catalog_s_whatever_the_object_says() -> None:
    world = World()
    artifact = next(a for a in genuine() if a["spec"]["type"] == "Engine")
    expected = {**artifact["spec"]["expected"], "trial": ["id"], "tensorParallel": 2, "maxBatchSize": 1}
    squat(world, {**artifact, "spec": {**artifact["spec"], "expected": expected}})
    world.put(engine(targets=H100))
    world.run_everything()
    jobs = [j for j in world.find(JOB) if (label(j, ARTIFACT) or "").startswith("engine-")]
    assert jobs
    for job in jobs:
        build = job["spec"]["template"]["spec"]["initContainers"][1]["command"][-1]
        assert "/app/examples/run.py" in build
        assert '"id"' not in build
        assert json.loads(build)["expected"] == artifact["spec"]["expected"], (
            "verification is what the revision asks for"
        )
