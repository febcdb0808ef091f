"""What users met, by the number of the public report each comes from: precision."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.planning.build import engine_spec, llama
from tests.unit.planning.models import (
    A100,
    H100,
    LLAMA_2_7B,
    LLAMA_31_8B,
    LLAMA_31_405B,
    QWEN2,
    RELEASE,
    gpu,
    plan,
    refused_for,
    said,
)
from trtllm_operator.planning import build_command, checkpoint_step


def test_c24_fp8_on_a100_is_refused_and_on_h100_is_not() -> None:
    asked: dict[str, Any] = {"quantization": "fp8"}
    assert refused_for(plan(LLAMA_31_8B, A100, **asked)) == {"quantization"}
    assert "8.0" in said(plan(LLAMA_31_8B, A100, **asked), "quantization")
    assert "8.9" in said(plan(LLAMA_31_8B, A100, **asked), "quantization")
    assert plan(LLAMA_31_8B, H100, **asked).ok


def test_c25_fits_but_is_not_supported() -> None:
    verdict = plan(LLAMA_31_405B, A100, tp=8, quantization="fp8")
    assert abs(LLAMA_31_405B.parameter_count - 405.85e9) / 405.85e9 < 0.001
    assert refused_for(verdict) == {"quantization"}
    memory = next(c for c in verdict.checks if c.id == "memory-weights")
    assert memory.ok, "both results are shown"
    assert "int4_awq" in said(verdict, "quantization"), "and what would work"


@pytest.mark.parametrize("quantization", ["none", "int4_wo"])
def test_c26_an_fp8_cache_on_a100_is_not_fp8_compute(quantization: str) -> None:
    verdict = plan(LLAMA_31_8B, A100, quantization=quantization, kv_cache="fp8")
    assert verdict.ok
    assert verdict.memory.kv_bytes_per_token.value == 65536
    assert plan(LLAMA_31_8B, A100).memory.kv_bytes_per_token.value == 131072
    assert "without KV-cache reuse and chunked context" in said(verdict, "kv-cache")
    command = build_command(engine_spec(quantization=quantization, kv_cache="fp8"), LLAMA_31_8B, RELEASE)
    assert command[command.index("--use_paged_context_fmha") + 1] == "disable"


def test_c27_bfloat16_before_ampere() -> None:
    v100 = gpu("NVIDIA-V100-SXM2-32GB".removeprefix("NVIDIA-"))
    verdict = plan(LLAMA_31_8B, v100)
    assert {"dtype", "gpu"} <= refused_for(verdict)
    assert "set precision.dtype float16" in said(verdict, "dtype")
    assert "dtype" not in refused_for(plan(LLAMA_31_8B, v100, dtype="float16"))


def test_c28_a_gpu_the_release_dropped() -> None:
    verdict = plan(LLAMA_2_7B, gpu("Tesla-T4"))
    assert "gpu" in refused_for(verdict)
    assert "it supports 8.0, 8.6" in said(verdict, "gpu")


def test_c29_plugin_types_follow_the_model() -> None:
    command = build_command(engine_spec(dtype="bfloat16"), LLAMA_2_7B, RELEASE)
    assert command[command.index("--gemm_plugin") + 1] == "auto"


def test_c30_fp8_is_calibrated_not_converted() -> None:
    assert plan(LLAMA_31_8B, gpu("NVIDIA-L40S"), quantization="fp8").ok
    step = checkpoint_step(engine_spec(quantization="fp8"), LLAMA_31_8B, RELEASE)
    assert step.command[1].endswith("quantize.py")
    assert step.needs_gpu


def test_c33_four_bit_weights_with_fp8_cache_on_ada() -> None:
    verdict = plan(LLAMA_31_8B, gpu("NVIDIA-L40S"), quantization="w4a8_awq", kv_cache="fp8")
    assert "kvCache auto" in said(verdict, "known-failure")


@pytest.mark.parametrize("quantization", ["fp8-awq", "awq", "FP8"])
def test_c34_formats_are_a_closed_list(quantization: str) -> None:
    with pytest.raises(ValidationError, match="int4_awq"):
        engine_spec(quantization=quantization)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ({}, "use the unquantized model, or one quantized with awq, gptq or fbgemm_fp8"),
        (QWEN2, "use the unquantized model, or one quantized with awq or gptq"),
        ({"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}, "use the unquantized model"),
    ],
)
def test_a_source_that_is_quantized_otherwise_names_what_its_converter_takes(family: dict[str, Any], says: str) -> None:
    facts = llama(28, 28, 4, 3584, 18944, 152064, **family, quantization_config={"quant_method": "bitsandbytes"})
    assert said(plan(facts), "source-checkpoint").endswith(f"is not known to take that; {says}")


def test_what_would_work_is_said_only_where_anything_does() -> None:
    assert refused_for(plan(LLAMA_2_7B, gpu("Tesla-T4"))) == {"gpu", "memory-kv-cache"}
    turing = plan(LLAMA_2_7B, gpu("Tesla-T4"), quantization="fp8")
    assert said(turing, "quantization").endswith("it needs one of 8.9, 9.0, 10.0, 10.3, 12.0")
    awq = llama(
        32, 32, 32, 4096, 11008, 32000, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128}
    )
    blackwell = plan(awq, gpu("NVIDIA-B200"))
    assert said(blackwell, "quantization").endswith("; use the unquantized model")
