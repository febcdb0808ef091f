"""Formats that calibrate, and stages of a pipeline: each really rounds or cuts the weights, and still answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from demo.kubectl import Kubectl, Obj, wait_for

from .smollm2 import READY_SECONDS, answer, delete, gpus_of, llmengine, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
QUESTION = "Name three primary colors."
FEW = {"samples": 8, "maxSeqLen": 96}
"""The stand-in calibrates on the CPU."""
ENOUGH = {"samples": 32, "maxSeqLen": 96}
"""Takes longer than the operator waits with its first look at a container's log."""


@pytest.fixture(autouse=True)
def nothing_left(namespace: Kubectl) -> Iterator[None]:
    yield
    for engine in namespace.items("llmengines"):
        delete(namespace, engine["metadata"]["name"])


def artifacts(kubectl: Kubectl, type_: str) -> list[Obj]:
    return [a for a in kubectl.items("engineartifacts") if a["spec"]["type"] == type_]


def quantized(kubectl: Kubectl, name: str, **precision: Any) -> tuple[Obj, set[str]]:
    """Serve it; the checkpoint it was made from, and the progress that was seen meanwhile."""
    before = {a["metadata"]["name"] for a in artifacts(kubectl, "Checkpoint")}
    kubectl.apply(llmengine(name, precision=precision))
    said: set[str] = set()

    def missing() -> str | None:
        new = [a for a in artifacts(kubectl, "Checkpoint") if a["metadata"]["name"] not in before]
        said.update(a.get("status", {}).get("progress", "") for a in new)
        return None if new and new[0].get("status", {}).get("phase") == "Ready" else f"{new}"

    wait_for("the checkpoint", missing, limit_seconds=READY_SECONDS)
    wait_ready(kubectl, name)
    (made,) = [a for a in artifacts(kubectl, "Checkpoint") if a["metadata"]["name"] not in before]
    assert "progress" not in made["status"], "what is done is not under way"
    return made, said


def test_two_stages_answer_as_one_does(namespace: Kubectl) -> None:
    namespace.apply(llmengine("pp1"), llmengine("pp2", parallelism={"pipeline": 2}))
    wait_ready(namespace, "pp1")
    wait_ready(namespace, "pp2")
    one, two = (answer(namespace, question=QUESTION, name=name) for name in ("pp1", "pp2"))
    assert one
    assert two == one
    (pod,) = namespace.items("pods", "-l", "llmengine.dev/engine=pp2,llmengine.dev/target=h100")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_fp8_weights_and_an_fp8_cache(namespace: Kubectl) -> None:
    checkpoint, said = quantized(namespace, "fp8", quantization="fp8", kvCache="fp8", calibration=ENOUGH)
    assert "calibrating" in said, f"kubectl get eart shows how far it is; it showed {said}"
    assert "Paris" in answer(namespace, name="fp8")
    assert gpus_of(namespace, checkpoint) == 1, "calibration needs a GPU, and one holds this model"
    assert "--calib_size 32 --calib_max_seq_length 96" in " ".join(checkpoint["spec"]["inputs"]["command"])
    assert checkpoint["status"]["gpu"] is not None
    name = checkpoint["metadata"]["name"]
    (engine,) = [a for a in artifacts(namespace, "Engine") if a["spec"]["inputs"]["parent"] == name]
    assert engine["status"]["sizeBytes"] < 200_000_000, "half of what 135 million parameters take in bfloat16"


@pytest.mark.soak
def test_four_bit_weights_in_groups_of_64(namespace: Kubectl) -> None:
    checkpoint, _ = quantized(namespace, "awq", quantization="int4_awq", groupSize=64, calibration=FEW)
    assert "--awq_block_size 64" in " ".join(checkpoint["spec"]["inputs"]["command"])
    said = answer(namespace, name="awq")
    assert "the capital of France" in said, f"so few bits cost so small a model facts, and not its language: {said}"
