"""A revision keeps its name while the user's wish stays, whatever version of the operator reads it."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.llmengine import LLMEngineSpec, ResolvedModel
from trtllm_operator.serving.revision import revision_name

SPEC: dict[str, Any] = {
    "model": {"huggingFace": {"repo": "owner/model"}},
    "release": "1.2.1",
    "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
    "targets": [
        {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}},
        {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}},
    ],
    "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
}
MODEL = ResolvedModel(source_hash="00000000", revision="c" * 40, architecture="LlamaForCausalLM")
GOLDEN = "chat-h100-f0787896"


def name(**changes: Any) -> str:
    spec = LLMEngineSpec.model_validate({**SPEC, **changes})
    return revision_name("chat", spec, spec.targets[0], MODEL)


def test_the_name_of_a_known_wish_never_changes() -> None:
    """If this fails, every LLMEngine out there would be rebuilt by the next version of the operator."""
    assert name() == GOLDEN


def test_engines_and_targets_that_are_written_alike_have_revisions_of_their_own() -> None:
    gpu = SPEC["targets"][0]["gpu"]
    names = set()
    for engine, target in (("smol", "fp8-h100"), ("smol-fp8", "h100")):
        spec = LLMEngineSpec.model_validate({**SPEC, "targets": [{"name": target, "gpu": gpu}]})
        names.add(revision_name(engine, spec, spec.targets[0], MODEL))
    assert len(names) == 2, "Deployments and ControllerRevisions are called like them"


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": {"quantization": "none", "dtype": "auto", "kvCache": "auto"}},
        {"parallelism": {"tensor": 1, "pipeline": 1}},
        {"serving": {"kvCacheFreeGpuMemoryPercent": 90, "maxQueueSize": 0}},
        {"build": {"maxAttempts": 9, "resources": {"limits": {"memory": "64Gi"}}}},
        {"targets": [{**SPEC["targets"][0], "replicas": 7}]},
        {"budgets": {**SPEC["budgets"], "maxBeamWidth": 1}},
        {"rollout": {"strategy": "Recreate"}},
    ],
)
def test_what_does_not_matter_to_the_target_does_not_rename_it(changes: dict[str, Any]) -> None:
    assert name(**changes) == name()


@pytest.mark.parametrize(
    "changes",
    [
        {"release": "1.0.0"},
        {"precision": {"dtype": "bfloat16"}},
        {"parallelism": {"tensor": 3}},
        {"budgets": {**SPEC["budgets"], "maxSeqLen": 4096}},
        {"serving": {"kvCacheFreeGpuMemoryPercent": 50}},
        {"storage": {"persistentVolumeClaim": {"claimName": "others"}}},
        {"targets": [{"name": "h100", "gpu": {"product": "NVIDIA-H200"}}]},
    ],
)
def test_what_the_servers_depend_on_renames_it(changes: dict[str, Any]) -> None:
    assert name(**changes) != name()
