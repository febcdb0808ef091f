"""What users met, by the number of the public report each comes from: memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning.build import engine_spec, llama
from tests.unit.planning.models import (
    A100,
    A100_40,
    CATALOG,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_2_70B,
    LLAMA_31_8B,
    RELEASE,
    gpu,
    plan,
    refused_for,
    said,
)
from trtllm_operator.planning import ModelUnreadable, TargetGpu, checkpoint_step
from trtllm_operator.planning.memory import tokens_in_pool
from trtllm_operator.planning.terms import GIB, MIB, round_up


def test_c01_pool_and_bytes_per_token_of_llama_2_7b() -> None:
    verdict = plan(LLAMA_2_7B, A100, quantization="int8_sq", batch=1, input_len=4096, seq_len=5120, num_tokens=4096)
    assert verdict.ok
    assert verdict.memory.kv_bytes_per_token.value == 69524783104 // 132608 == 524288
    assert verdict.memory.tokens_per_sequence.value * 524288 == 5 * GIB // 2
    beams = plan(LLAMA_2_7B, A100, input_len=4096, seq_len=5120, num_tokens=4096, beams=5)
    assert beams.memory.tokens_per_sequence.value * 524288 == 25 * GIB // 2


def test_c02_pool_smaller_than_one_sequence() -> None:
    assert tokens_in_pool(872415232, 524288, 128) == 1664
    assert round_up(2560, 128) * 524288 == 1342177280
    small = TargetGpu("NVIDIA-P102", "8.6", 15300, gpus_per_node=1)
    verdict = plan(LLAMA_2_7B, small, seq_len=2560, batch=1, num_tokens=2048)
    assert refused_for(verdict) == {"memory-kv-cache"}
    held = verdict.memory.kv_tokens
    assert held is not None
    assert 0 < held.value < 2560
    check = next(c for c in verdict.errors)
    assert f"{held.value:,} tokens" in check.message, "names what fits"
    assert "2,560" in check.message, "names what is needed"
    assert check.valid == (held.value,), "names the largest maxSeqLen that fits"
    retry = plan(LLAMA_2_7B, small, input_len=512, seq_len=held.value, batch=1, num_tokens=2048)
    assert retry.ok, "and that one does fit"


def test_c03_weights_alone_do_not_fit() -> None:
    chatglm3 = llama(28, 32, 2, 4096, 13696, 65024, architectures=["ChatGLMModel"], model_type="chatglm")
    weights = chatglm3.parameter_count * 2
    assert abs(weights - 12486909952) / 12486909952 < 0.001
    verdict = plan(chatglm3, TargetGpu("GPU-12GB", "8.6", 12282), batch=1, num_tokens=1024, input_len=512)
    assert "memory-weights" in refused_for(verdict)
    assert "11.63 GiB" in said(verdict, "memory-weights")
    assert verdict.memory.kv_bytes_per_token.value == 28672


def test_c04_conversion_is_planned_with_one_worker() -> None:
    verdict = plan(LLAMA_2_70B, tp=4)
    full = LLAMA_2_70B.weight_bytes
    assert abs(full - 137953296384) / 137953296384 < 0.001
    assert full < verdict.building.convert_host.value < 256 * 10**9
    command = checkpoint_step(engine_spec(tp=4), LLAMA_2_70B, RELEASE).command
    assert command[command.index("--workers") + 1] == "1"


def test_c09_a_shared_gpu_has_its_memory_once_and_not_alone() -> None:
    shared = TargetGpu.of(CATALOG.gpu("NVIDIA-A10G-SHARED"), "NVIDIA-A10G-SHARED")  # type: ignore[arg-type]
    verdict = plan(LLAMA_31_8B, shared, quantization="int8_wo")
    assert verdict.memory.total is not None
    assert verdict.memory.total.value == 23028 * MIB
    assert "all its tenants" in said(verdict, "shared-gpu")


def test_c10_seventy_billion_fp8_on_two_h100() -> None:
    asked: dict[str, Any] = {
        "tp": 2, "quantization": "fp8", "kv_cache": "fp8", "input_len": 4096, "seq_len": 4608, "num_tokens": 8192
    }  # fmt: skip
    verdict = plan(LLAMA_2_70B, batch=64, **asked)
    assert verdict.ok
    assert verdict.memory.kv_bytes_per_token.value == 81920
    assert plan(LLAMA_2_70B, **(asked | {"kv_cache": "auto"})).memory.kv_bytes_per_token.value == 163840
    # 32.12 GiB if every parameter were halved; the embedding table is whole and 16 bit on each rank.
    assert abs(verdict.memory.weights.value / GIB - 32.12) < 0.04 * 32.12
    assert "concurrency" not in {c.id for c in verdict.warnings}
    more = plan(LLAMA_2_70B, batch=128, **asked)
    assert more.ok, "a larger batch is accepted"
    assert more.memory.full_sequences is not None
    assert 100 < more.memory.full_sequences.value < 120
    assert f"{more.memory.full_sequences.value} of maxBatchSize 128" in said(more, "concurrency")
    # With the 6 GiB reserve that the report assumes, the arithmetic gives its 106.
    pool = (81559 * MIB - LLAMA_2_70B.parameter_count // 2 - 6 * GIB) * 9 // 10
    assert pool // 81920 // 4608 == 106


def test_c12_head_dim_is_not_hidden_by_heads() -> None:
    nemo = llama(40, 32, 8, 5120, 14336, 131072, architectures=["MistralForCausalLM"], head_dim=128)
    assert plan(nemo).memory.kv_bytes_per_token.value == 163840
    gemma = llama(28, 16, 16, 3072, 24576, 256000, architectures=["GemmaForCausalLM"], head_dim=256)
    assert plan(gemma).memory.kv_bytes_per_token.value == 458752
    assert llama(2, 8, 8, 512, 1024, 1000, head_dim=None).head_size == 64
    with pytest.raises(ModelUnreadable, match="num_attention_heads is 0"):
        llama(2, 0, 1, 512, 1024, 1000)


@pytest.mark.parametrize("tp", [1, 8])
def test_c13_latent_attention_is_not_divided_by_tp(tp: int) -> None:
    deepseek = llama(
        61, 128, 128, 7168, 18432, 129280, architectures=["DeepseekV3ForCausalLM"], kv_lora_rank=512, q_lora_rank=1536,
        qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=256, n_shared_experts=1,
        moe_intermediate_size=2048, first_k_dense_replace=3,
    )  # fmt: skip
    verdict = plan(deepseek, tp=tp)
    assert verdict.memory.kv_bytes_per_token.value == 70272
    assert plan(deepseek, tp=tp, quantization="fp8", kv_cache="fp8").memory.kv_bytes_per_token.value == 35136
    assert "DeepseekV3ForCausalLM" in said(verdict, "architecture")
    assert "architecture" in refused_for(verdict)


def test_c06_a_build_may_need_more_than_the_gpu_that_serves() -> None:
    """Report 346: 13 billion at 16 bits on 40 GB; 24.24 GiB of weights and one more allocation of 24,793,579,520 B."""
    verdict = plan(LLAMA_2_13B, A100_40, batch=1, seq_len=2048)
    assert verdict.ok, "serving fits"
    assert abs(verdict.memory.weights.value / GIB - 24.24) < 0.1
    worst = verdict.building.build_gpu_worst.value
    assert verdict.memory.weights.value + 24793579520 <= worst
    assert worst > 40960 * MIB
    assert "more tensor parallelism, or the GPU of this compute capability with more" in said(verdict, "memory-build")
    assert "memory-build" not in {c.id for c in plan(LLAMA_2_13B, A100, batch=1).warnings}, "80 GB are enough"
    assert "memory-build" not in {c.id for c in plan(LLAMA_2_13B, A100_40, tp=2, batch=1).warnings}, "so are two ranks"


def test_c14_a_worst_case_beyond_the_cache_was_warned_of() -> None:
    verdict = plan(LLAMA_2_7B, A100_40, batch=128, seq_len=4096, input_len=2048, num_tokens=4096)
    full, limit = verdict.memory.full_sequences, verdict.memory.requests_at_limit
    assert full is not None
    assert limit is not None
    assert full.value == limit.value < 128
    assert f"bounds full-length sequences in flight to {full.value} of maxBatchSize 128" in said(verdict, "concurrency")


@pytest.mark.parametrize(("memory_mib", "works"), [(None, False), (9728, False), (20096, True)])
def test_c84_a_slice_has_its_own_memory(memory_mib: int | None, works: bool) -> None:
    """The label nvidia.com/gpu.memory of a 1g.10gb slice says 9,728 MiB; where no node says it, its name does."""
    product = "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"
    verdict = plan(LLAMA_31_8B, gpu(product, memory_mib=memory_mib), seq_len=2048, batch=1, num_tokens=1024)
    assert ("memory-weights" not in refused_for(verdict)) is works
    two = plan(LLAMA_31_8B, gpu(product, memory_mib=20096), tp=2)
    assert "MIG slices (1g.10gb) can't reach each other" in said(two, "world-size")
    assert "world-size" in refused_for(two)


def test_c97_disk_of_a_seventy_billion_model() -> None:
    """Source, checkpoint and engine at 16 bits: about three times 131.4 GiB; the tables are whole on each rank."""
    facts = llama(80, 64, 8, 8192, 28672, 128256, torch_dtype="bfloat16")
    needs = plan(facts, tp=4).building
    assert abs(needs.model_disk.value / GIB - 131.4) < 0.1
    together = needs.model_disk.value + needs.checkpoint_disk.value + needs.engine_disk.value
    assert 394 * GIB < together < 1.05 * 394 * GIB
    quantized = plan(facts, tp=4, quantization="fp8").building
    assert quantized.engine_disk.value < 0.6 * needs.engine_disk.value
