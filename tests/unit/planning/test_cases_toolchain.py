"""What the release's own tools do, against records of them: never "works" for what they refuse."""

from __future__ import annotations

import pytest

from tests.unit.planning.build import engine_spec, llama
from tests.unit.planning.models import LLAMA_31_8B, RELEASE, gpu, plan, refused_for, said
from trtllm_operator.planning import build_command, checkpoint_step, expectation
from trtllm_operator.planning.precision import resolve
from trtllm_operator.planning.terms import GIB, MIB

B200, B300 = gpu("NVIDIA-B200"), gpu("NVIDIA-B300-SXM6-AC")
LLAMA_3_70B = llama(80, 64, 8, 8192, 28672, 128256)


@pytest.mark.parametrize("quantization", ["fp8", "int4_awq", "w4a8_awq", "int8_sq", "nvfp4"])
def test_p1_quantize_is_given_no_flag_that_the_release_lacks(quantization: str) -> None:
    command = checkpoint_step(engine_spec(quantization=quantization), LLAMA_31_8B, RELEASE).command
    assert "--export_format" not in command
    assert "fp8_pc_pt" in RELEASE.commands["quantize"].flags["--qformat"].choices


@pytest.mark.parametrize("target", [B200, B300])
@pytest.mark.parametrize(
    ("quantization", "kv_cache"), [("int8_wo", "auto"), ("int4_wo", "auto"), ("int8_sq", "auto"), ("none", "int8")]
)
def test_p2_integers_are_refused_on_data_center_blackwell(target, quantization: str, kv_cache: str) -> None:  # type: ignore[no-untyped-def]
    verdict = plan(LLAMA_31_8B, target, quantization=quantization, kv_cache=kv_cache)
    assert refused_for(verdict) & {"quantization", "kv-cache"}


def test_p2_nothing_refused_is_recommended() -> None:
    assert "int8_wo" not in said(plan(LLAMA_31_8B, B200, quantization="int4_awq"), "quantization")


def test_p3_auto_awq_llama_becomes_a_gptq_checkpoint() -> None:
    facts = llama(
        32, 32, 8, 4096, 14336, 128256, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128}
    )
    assert expectation(engine_spec(), facts, RELEASE).quant_algo == "W4A16_GPTQ"


@pytest.mark.parametrize(
    ("facts", "quantization", "tp", "bytes_", "tolerance"),
    [
        (LLAMA_31_8B, "int4_awq", 2, 2723 * MIB, 0.01),  # measured: triton-inference-server/tensorrtllm_backend#576
        (LLAMA_3_70B, "fp8", 8, 8.46 * GIB, 0.01),
        (LLAMA_3_70B, "int4_awq", 8, 4.60 * GIB, 0.01),
    ],
)
def test_p5_calibrated_tables_are_divided(facts, quantization: str, tp: int, bytes_: float, tolerance: float) -> None:  # type: ignore[no-untyped-def]
    weights = plan(facts, quantization=quantization, tp=tp).memory.weights
    assert weights.value == pytest.approx(bytes_, rel=tolerance), weights.formula


@pytest.mark.parametrize(
    ("release", "quantization", "paged"),
    [
        ("1.2.1", "fp8", True),
        ("1.2.1", "w4a8_awq", True),
        ("1.2.1", "nvfp4", True),
        ("1.2.1", "int4_awq", False),
        ("0.18.2", "w4a8_awq", False),
    ],
)
def test_p6_weights_that_keep_paged_context_fmha_beside_an_fp8_cache(
    release: str, quantization: str, paged: bool
) -> None:
    from tests.unit.planning.models import CATALOG

    spec = engine_spec(quantization=quantization, kv_cache="fp8", release=release)
    assert resolve(spec, LLAMA_31_8B, CATALOG.release(release)).paged_context_fmha is paged
    command = build_command(spec, LLAMA_31_8B, CATALOG.release(release))
    assert command[command.index("--use_paged_context_fmha") + 1] == ("enable" if paged else "disable")


def test_r4_w4a8_awq_has_groups_of_128_alone_and_no_hint_says_otherwise() -> None:
    wide = llama(32, 32, 8, 4096, 14336, 128256)
    verdict = plan(wide, precision={"quantization": "w4a8_awq", "groupSize": 64})
    assert refused_for(verdict) == {"quantization"}
    assert "groupSize 128" in said(verdict, "quantization")
    odd = llama(30, 9, 3, 576, 1536, 49152)
    assert "groupSize 64" not in said(plan(odd, quantization="w4a8_awq"), "tensor-parallel-mlp")
    assert "groupSize 64" in said(plan(odd, quantization="int4_awq"), "tensor-parallel-mlp")


@pytest.mark.parametrize("quantization", ["fp8", "int8_sq", "int4_awq"])
def test_r5_float32_is_refused_where_modelopt_writes_float16(quantization: str) -> None:
    assert refused_for(plan(LLAMA_31_8B, quantization=quantization, dtype="float32")) == {"quantization"}
    assert not refused_for(plan(LLAMA_31_8B, dtype="float32"))


def test_r6_awq_groups_divide_the_width_of_every_rank() -> None:
    narrow = llama(2, 4, 2, 320, 512, 49152, head_dim=64)
    verdict = plan(narrow, tp=2, precision={"quantization": "int4_awq", "groupSize": 64})
    assert refused_for(verdict) == {"tensor-parallel-mlp"}
    assert "hidden size 320 / TP 2 / group size 64 = 2.5" in said(verdict, "tensor-parallel-mlp")
    gemma = llama(
        42, 16, 8, 3584, 14336, 256000, head_dim=256, architectures=["Gemma2ForCausalLM"], model_type="gemma2"
    )
    assert "hidden size 3584 / TP 8 / group size 128 = 3.5" in said(
        plan(gemma, tp=8, quantization="int4_awq"), "tensor-parallel-mlp"
    )
