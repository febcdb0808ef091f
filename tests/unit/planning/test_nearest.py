"""The values that would pass are named, and they do pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.planning.build import engine_spec, llama
from tests.unit.planning.models import (
    A100,
    CATALOG,
    H100,
    LLAMA_2_7B,
    LLAMA_2_70B,
    LLAMA_31_8B,
    LLAMA_31_405B,
    QWEN2_7B,
    RELEASE,
    gpu,
)
from tests.unit.planning.test_properties import GPUS, SPECS, models
from trtllm_operator.planning import ModelFacts, TargetGpu, judge
from trtllm_operator.planning.nearest import changed, nearest, suggestions_text


def text(facts: ModelFacts, target: TargetGpu, **asked: Any) -> str:
    return suggestions_text(nearest(engine_spec(**asked), facts, RELEASE, target))


@pytest.mark.parametrize(
    ("facts", "target", "asked", "says"),
    [
        (QWEN2_7B, H100, {"tp": 8}, "passes with parallelism.tensor 4"),
        (LLAMA_2_7B, H100, {"tp": 8, "quantization": "int4_awq"}, "passes with parallelism.tensor 2, "),
        (LLAMA_2_70B, H100, {}, "passes with parallelism.tensor 2, or with parallelism.pipeline 2, or with precision"),
        (LLAMA_2_70B, H100, {}, "precision.quantization int8_wo, or with"),
        (LLAMA_31_405B, A100, {"tp": 8, "quantization": "fp8"}, "int4_wo"),
        (LLAMA_31_405B, H100, {}, "precision.quantization int8_wo and parallelism.tensor 8"),
        (LLAMA_31_8B, gpu("NVIDIA-L4"), {"seq_len": 131072}, "budgets.maxSeqLen 4"),
        (LLAMA_2_7B, H100, {"input_len": 4096, "seq_len": 2048}, "budgets.maxSeqLen 4,097"),
        (LLAMA_31_8B, H100, {"kv_cache": "fp8", "input_len": 30000, "seq_len": 32768}, "budgets.maxNumTokens 30,000"),
        (llama(61, 32, 8, 4096, 14336, 32000), H100, {"pp": 2}, "parallelism.pipeline 1"),
    ],
)
def test_the_nearest_change_is_named(facts: ModelFacts, target: TargetGpu, asked: dict[str, Any], says: str) -> None:
    assert says in text(facts, target, **asked)


def test_nothing_is_promised_where_nothing_helps() -> None:
    assert text(LLAMA_31_8B, gpu("Tesla-T4")) == ""
    assert text(LLAMA_31_8B, H100) == "", "nor where nothing is wrong"


@settings(max_examples=150)
@given(models(), SPECS, GPUS)
def test_what_is_promised_passes(facts: ModelFacts, spec: dict[str, Any], target: TargetGpu) -> None:
    asked, release = engine_spec(**spec), CATALOG.release(spec["release"])
    for suggestion in nearest(asked, facts, release, target):
        assert judge(changed(asked, suggestion), facts, release, target).ok, suggestion


@pytest.mark.parametrize("field", ["seq_len", "num_tokens", "batch"])
def test_one_more_than_the_largest_that_passes_does_not(field: str) -> None:
    asked: dict[str, Any] = {"seq_len": 4096, "num_tokens": 4096, "batch": 8} | {
        field: 2**20 if field != "batch" else 65536
    }
    spec, target = engine_spec(**asked), gpu("NVIDIA-L4")
    api = {"seq_len": "budgets.maxSeqLen", "num_tokens": "budgets.maxNumTokens", "batch": "budgets.maxBatchSize"}[field]
    found = [s[0] for s in nearest(spec, LLAMA_31_8B, RELEASE, target) if s[0].field == api]
    assert len(found) == 1
    assert isinstance(found[0].value, int)
    above = type(found[0])(api, found[0].value + 1)
    assert not judge(changed(spec, [above]), LLAMA_31_8B, RELEASE, target).ok
