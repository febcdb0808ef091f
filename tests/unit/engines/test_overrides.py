"""What one target says otherwise holds for that target alone, and saying nothing changes no name."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.llmengine import LLMEngineSpec, ResolvedModel
from trtllm_operator.api.overrides import BudgetsOverride, ParallelismOverride, PrecisionOverride, ServingOverride
from trtllm_operator.planning.overrides import effective_spec
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE
from trtllm_operator.serving.revision import revision_name

from .simulation import World, engine

MODEL = ResolvedModel(source_hash="0123abcd", revision="c" * 40, architecture="LlamaForCausalLM")


def spec(**second: Any) -> LLMEngineSpec:
    """The simulation's engine, whose second target (h100) says something otherwise."""
    made = engine()
    made["spec"]["targets"][1] |= second
    return LLMEngineSpec.model_validate(made["spec"])


def names(given: LLMEngineSpec) -> list[str]:
    return [revision_name("smol", given, target, MODEL) for target in given.targets]


def test_golden_revision_names() -> None:
    """A change here rolls every server of every cluster."""
    assert names(spec()) == ["smol-a100-1cff84c8", "smol-h100-858e8a6c"]


@pytest.mark.parametrize(
    "override",
    [
        {"precision": {}},
        {"budgets": {}},
        {"precision": {"quantization": "none"}},
        {"parallelism": {"tensor": 1}},
        {"budgets": {"maxSeqLen": 2048}},
        {"serving": {"kvCacheFreeGpuMemoryPercent": 90}},
    ],
)
def test_an_override_that_says_what_the_spec_says_changes_no_name(override: dict[str, Any]) -> None:
    assert names(spec(**override)) == names(spec())


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ({"precision": {"kvCache": "fp8"}}, "precision.kv_cache", "fp8"),
        ({"parallelism": {"tensor": 3}}, "parallelism.tensor", 3),
        ({"budgets": {"maxBatchSize": 16}}, "budgets.max_batch_size", 16),
        ({"serving": {"maxQueueSize": 5}}, "serving.max_queue_size", 5),
        ({"serving": {"nodeSelector": {"a": "b"}}}, "serving.node_selector", {"a": "b"}),
    ],
)
def test_an_override_is_the_targets_own(override: dict[str, Any], path: str, value: Any) -> None:
    given = spec(**override)
    part, field = path.split(".")
    changed, same = effective_spec(given, given.targets[1]), effective_spec(given, given.targets[0])
    assert getattr(getattr(changed, part), field) == value
    assert same == given
    assert names(given)[0] == names(spec())[0]
    assert names(given)[1] != names(spec())[1]


@pytest.mark.parametrize(
    ("override", "part"),
    [
        (PrecisionOverride, "precision"),
        (ParallelismOverride, "parallelism"),
        (BudgetsOverride, "budgets"),
        (ServingOverride, "serving"),
    ],
)
def test_every_field_of_the_spec_can_be_overridden(override: Any, part: str) -> None:
    whole = LLMEngineSpec.model_fields[part].annotation
    assert whole is not None
    assert set(override.model_fields) == set(whole.model_fields)


def test_one_target_in_fp8_beside_one_that_is_not() -> None:
    """Two checkpoints then, from one model; the GPU that lacks FP8 is built for all the same."""
    world = World()
    made = engine()
    made["spec"]["targets"][1] |= {"precision": {"quantization": "fp8"}}
    world.put(made)
    world.run_everything()
    live = world.get(LLM_ENGINE, "smol")
    assert live is not None
    assert next(c for c in live["status"]["conditions"] if c["type"] == "Ready")["status"] == "True"
    kinds = sorted(a["spec"]["type"] for a in world.find(ENGINE_ARTIFACT))
    assert kinds == ["Checkpoint", "Checkpoint", "Engine", "Engine", "Model"]
    algorithms = {a["spec"].get("expected", {}).get("quantAlgo") for a in world.find(ENGINE_ARTIFACT)}
    assert algorithms == {None, "FP8"}


def test_status_shows_the_plan_of_each_target() -> None:
    world = World()
    made = engine(precision={"kvCache": "fp8"})
    made["spec"]["targets"][1] |= {"budgets": {"maxBatchSize": 16}}
    world.put(made)
    world.run_everything()
    live = world.get(LLM_ENGINE, "smol")
    assert live is not None
    a100, h100 = (t["plan"] for t in live["status"]["targets"])
    taken = sum(a100[k] for k in ("weightsBytes", "activationBytes", "runtimeBufferBytes", "reservedBytes"))
    assert (a100["gpuMemoryBytes"] - taken) * 90 // 100 == a100["kvCachePoolBytes"], "the terms add up to the GPU"
    assert a100["kvCacheBytesPerToken"] == 11_520
    assert a100["kvCacheTokens"] // 2048 == a100["fullLengthSequences"]
    assert a100["dtype"] == "float16"
    assert (a100["concurrentRequests"], h100["concurrentRequests"]) == (8, 16)
    assert a100["longestPromptTokens"] == 2047
    assert {"engineHostMemoryBytes", "checkpointHostMemoryBytes", "engineBytes", "modelBytes"} <= set(a100)
    assert any("without KV-cache reuse" in warning for warning in a100["warnings"])


def test_a_refusal_names_the_nearest_values_that_pass() -> None:
    world = World()
    world.put(engine(parallelism={"tensor": 2}))
    world.run_everything()
    live = world.get(LLM_ENGINE, "smol")
    assert live is not None
    message = next(c for c in live["status"]["conditions"] if c["type"] == "Validated")["message"]
    assert message.endswith("it passes with parallelism.tensor 1"), "said once for both targets"
