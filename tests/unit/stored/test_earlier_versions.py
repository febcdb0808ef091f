"""What an operator of another version wrote goes on as it is: nothing rolls, is built again or gets lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trtllm_operator.api.engineartifact import EngineArtifactStatus
from trtllm_operator.api.stored import read_status
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, SERVICE, Obj
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from .objects import recorded, with_unknown_fields, world_of

KINDS = (DEPLOYMENT, SERVICE, CONTROLLER_REVISION, JOB)


def of_later_version(obj: Obj) -> Obj:
    """With fields that this version does not know wherever a later one may have added some."""
    out = copy.deepcopy(obj)
    if obj["kind"] == "ControllerRevision":
        data = out["data"]
        for artifact in data["artifacts"]:
            artifact["spec"] = with_unknown_fields(artifact["spec"])
            del artifact["spec"]["inputs"]["ofALaterVersion"]  # an input of another key is another artifact
        out["data"] = {**data, "ofALaterVersion": [1]}
    if obj["kind"] == "EngineArtifact":
        out["spec"] = {**with_unknown_fields(obj["spec"]), "inputs": obj["spec"]["inputs"]}
        out["status"] = with_unknown_fields(obj["status"])
    if obj["kind"] == "LLMEngine":
        out["status"] = with_unknown_fields(obj["status"])
    return out


@pytest.mark.parametrize("objects", [recorded(), [of_later_version(o) for o in recorded()]], ids=["earlier", "later"])
def test_what_another_version_wrote_goes_on_as_it_is(objects: list[Obj]) -> None:
    world = world_of(objects)
    before = {kind: copy.deepcopy(world.find(kind)) for kind in KINDS}
    world.settle()
    for kind in KINDS:
        now = _specs(world.find(kind))
        for name, recorded_as in _specs(before[kind]).items():
            assert now[name] == recorded_as, f"{kind.kind} {name} was changed by the upgrade alone"
    for name in ("smol", "any"):
        engine = world.get(LLM_ENGINE, name)
        assert engine is not None
        assert {c["type"]: c["status"] for c in engine["status"]["conditions"]}["Ready"] == "True"

    world.run_everything()
    assert {name.partition("-")[0] for name in world.builds} == {"checkpoint", "engine"}, "only what was not built yet"
    fp8 = world.get(LLM_ENGINE, "fp8")
    assert fp8 is not None
    assert {c["type"]: c["status"] for c in fp8["status"]["conditions"]}["Ready"] == "True", "what was begun ends"


def test_what_a_later_version_says_in_a_status_is_kept() -> None:
    world = world_of([of_later_version(o) for o in recorded()])
    world.run_everything()
    for kind in (LLM_ENGINE, ENGINE_ARTIFACT):
        for obj in world.find(kind):
            assert obj["status"]["ofALaterVersion"] == {"a": 1}, obj["metadata"]["name"]


def test_a_revision_that_cannot_be_understood_is_left_as_it_is() -> None:
    """A later version may hash inputs by another rule; what it made serves on until that version is back."""
    objects = copy.deepcopy([o for o in recorded() if o["metadata"]["name"] != "fp8"])
    for obj in objects:
        if obj["kind"] == "ControllerRevision" and obj["metadata"]["name"].startswith("smol-h100"):
            obj["data"]["artifacts"][2]["spec"]["inputs"]["keySchema"] = 2
        if obj["metadata"]["name"] == "engine-553525fb412778b7b769" and obj["kind"] == "EngineArtifact":
            obj["spec"]["inputs"]["keySchema"] = 2
    world = world_of(objects)
    before = {kind: _specs(world.find(kind)) for kind in KINDS}
    world.run_everything()
    for kind in KINDS:
        now = _specs(world.find(kind))
        for name, recorded_as in before[kind].items():
            assert now[name] == recorded_as, f"{kind.kind} {name} was changed"
    left = world.get(ENGINE_ARTIFACT, "engine-553525fb412778b7b769")
    assert left is not None
    assert left["status"]["phase"] == "Ready", "it is for the version that made it to judge"
    smol = world.get(LLM_ENGINE, "smol")
    assert smol is not None
    stalled = next(c for c in smol["status"]["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "LaterVersion"
    assert "Upgrade the operator" in stalled["message"]


def test_a_value_that_cannot_be_read_is_observed_anew() -> None:
    status = {"phase": "Hibernating", "attempt": 3, "conditions": [{"type": "Ready"}], "manifestDigest": "ab" * 32}
    read = read_status(EngineArtifactStatus, status)
    assert (read.phase, read.conditions) == (None, ())
    assert (read.attempt, read.manifest_digest) == (3, "ab" * 32)


def _specs(objects: list[Obj]) -> dict[str, Any]:
    return {o["metadata"]["name"]: (o["metadata"]["uid"], o.get("spec"), o.get("data")) for o in objects}
