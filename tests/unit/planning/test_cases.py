"""Verdicts on what users met, by the number of the public report each comes from (docs/arithmetic.md lists them)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.planning.build import engine_spec, llama
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import (
    ModelFacts,
    ModelUnreadable,
    TargetGpu,
    TargetPlan,
    build_command,
    checkpoint_step,
    judge,
    read_config,
)
from trtllm_operator.planning.memory import tokens_in_pool
from trtllm_operator.planning.terms import GIB, MIB, round_up

CATALOG = load_catalog()
RELEASE = CATALOG.release("1.2.1")

LLAMA_2_7B = llama(32, 32, 32, 4096, 11008, 32000)
LLAMA_2_13B = llama(40, 40, 40, 5120, 13824, 32000)
LLAMA_2_70B = llama(80, 64, 8, 8192, 28672, 32000)
LLAMA_33B = llama(60, 52, 52, 6656, 17920, 32000)
LLAMA_31_8B = llama(32, 32, 8, 4096, 14336, 128256, max_position_embeddings=131072, torch_dtype="bfloat16")
LLAMA_31_405B = llama(126, 128, 8, 16384, 53248, 128256, max_position_embeddings=131072, torch_dtype="bfloat16")
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768}
QWEN2_7B = llama(28, 28, 4, 3584, 18944, 152064, **QWEN2)
QWEN2_15B = llama(28, 12, 2, 1536, 8960, 151936, **QWEN2, tie_word_embeddings=True)
QWEN15_32B = llama(64, 40, 8, 5120, 27392, 152064, **QWEN2)


def gpu(name: str, **more: Any) -> TargetGpu:
    found = CATALOG.gpu(name)
    assert found is not None
    return TargetGpu.of(found, name, **more)


H100 = gpu("NVIDIA-H100-80GB-HBM3")
A100 = gpu("NVIDIA-A100-SXM4-80GB")
A100_40 = gpu("NVIDIA-A100-SXM4-40GB")


def plan(facts: ModelFacts, target: TargetGpu = H100, release: str = "1.2.1", **spec: Any) -> TargetPlan:
    return judge(engine_spec(release=release, **spec), facts, CATALOG.release(release), target)


def refused_for(verdict: TargetPlan) -> set[str]:
    return {check.id for check in verdict.errors}


def said(verdict: TargetPlan, check_id: str) -> str:
    return "\n".join(str(check) for check in verdict.checks if check.id == check_id)


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


def test_c35_twenty_eight_heads_on_eight_gpus() -> None:
    verdict = plan(QWEN2_7B, tp=8)
    check = next(c for c in verdict.errors if c.id == "tensor-parallel-heads")
    assert "28 attention heads do not divide by 8 (rest 4)" in check.message
    assert check.valid == (1, 2, 4)
    assert next(c for c in verdict.checks if c.id == "tensor-parallel-kv-heads").ok, "KV heads alone would pass"


def test_c36_a_valid_spec_is_not_called_invalid() -> None:
    verdict = plan(QWEN2_15B, tp=4)
    assert verdict.ok
    assert verdict.memory.kv_bytes_per_token.value == 14336
    assert plan(QWEN2_15B, tp=2).memory.kv_bytes_per_token.value == 14336


@pytest.mark.parametrize(("tp", "expected"), [(1, 98304), (2, 49152), (4, 24576), (8, 24576)])
def test_c37_copies_of_kv_heads_are_planned(tp: int, expected: int) -> None:
    qwen3_moe = llama(
        48, 32, 4, 2048, 6144, 151936, architectures=["Qwen3MoeForCausalLM"], head_dim=128, num_experts=128,
        moe_intermediate_size=768,
    )  # fmt: skip
    assert plan(qwen3_moe, tp=tp).memory.kv_bytes_per_token.value == expected


@pytest.mark.parametrize(("tp", "rest"), [(3, 1), (8, 4), (2, 0), (4, 0)])
def test_c39_fifty_two_heads(tp: int, rest: int) -> None:
    verdict = plan(LLAMA_33B, tp=tp)
    if rest:
        check = next(c for c in verdict.errors if c.id == "tensor-parallel-heads")
        assert f"(rest {rest})" in check.message
        assert check.valid == (1, 2, 4)
    else:
        assert verdict.ok


def test_c40_six_small_gpus() -> None:
    assert "40 attention heads do not divide by 6 (rest 4)" in said(plan(QWEN15_32B, tp=6), "tensor-parallel-heads")
    two = plan(QWEN15_32B, tp=2, quantization="int4_awq")
    assert "107 groups of 128" in said(two, "tensor-parallel-mlp")
    assert two.ok
    four = plan(QWEN15_32B, tp=4, quantization="int4_awq")
    assert "27392 / TP 4 / group size 128 = 53.5" in said(four, "tensor-parallel-mlp")
    assert refused_for(four) == {"tensor-parallel-mlp"}


def test_c41_a_release_without_copies_of_kv_heads() -> None:
    old = load_catalog({"old.yaml": 'facts: [{name: kv_head_duplication, values: {"0.12": false}}]'})
    verdict = judge(engine_spec(tp=4), QWEN2_15B, old.release("1.2.1"), H100)
    assert "tensor-parallel-kv-heads" in refused_for(verdict)
    assert "does not copy KV heads" in said(verdict, "tensor-parallel-kv-heads")


@pytest.mark.parametrize(("vocab", "padded"), [(32001, 32002), (151851, 151852)])
def test_c42_an_odd_vocabulary_is_padded(vocab: int, padded: int) -> None:
    odd = plan(llama(32, 32, 32, 4096, 11008, vocab), tp=2)
    assert odd.ok
    assert f"padded to {padded}" in said(odd, "vocabulary")
    even = plan(llama(32, 32, 32, 4096, 11008, padded), tp=2)
    # The output layer of both has the padded size; the embedding table keeps its own.
    assert even.memory.weights.value - odd.memory.weights.value == 4096 * 2


def test_c44_the_right_obstacle_is_named() -> None:
    glm = llama(92, 96, 8, 5120, 12288, 151552, head_dim=128)
    verdict = plan(glm, tp=6)
    assert refused_for(verdict) >= {"tensor-parallel-kv-heads"}
    assert "tensor-parallel-heads" not in refused_for(verdict)
    assert "8 KV heads neither divide by 6 (rest 2) nor" in said(verdict, "tensor-parallel-kv-heads")
    assert "padded to 151554" in said(verdict, "vocabulary")


@pytest.mark.parametrize(
    ("facts", "tp", "says"),
    [
        (LLAMA_2_7B, 2, None),
        (LLAMA_2_7B, 4, "= 21.5 "),
        (LLAMA_2_7B, 8, "= 10.75 "),
        (LLAMA_2_13B, 4, None),
        (LLAMA_2_13B, 8, "= 13.5 "),
    ],
)
def test_c45_awq_groups_are_whole(facts: ModelFacts, tp: int, says: str | None) -> None:
    verdict = plan(facts, tp=tp, quantization="int4_awq")
    if says is None:
        assert verdict.ok
    else:
        check = next(c for c in verdict.errors if c.id == "tensor-parallel-mlp")
        assert says in check.message
        assert max(check.valid) == (2 if facts is LLAMA_2_7B else 4)


def test_c47_a_head_size_without_kernels() -> None:
    verdict = plan(llama(26, 32, 32, 3200, 8640, 32000))
    assert refused_for(verdict) == {"head-size"}
    assert "head size 100" in said(verdict, "head-size")
    assert "64, 80, 96" in said(verdict, "head-size")


def test_c48_gpus_without_peer_access_are_warned_of() -> None:
    verdict = plan(LLAMA_31_8B, gpu("NVIDIA-A10"), tp=2)
    assert verdict.ok
    assert "peer-access" in {c.id for c in verdict.warnings}
    assert "peer-access" not in {c.id for c in plan(LLAMA_31_8B, H100, tp=2).warnings}


def test_c49_sixteen_ranks_on_nodes_of_eight() -> None:
    verdict = plan(LLAMA_31_405B, tp=8, pp=2, quantization="fp8")
    assert "= 16 GPUs, and one node offers 8" in said(verdict, "world-size")
    assert "world-size" in refused_for(verdict)


def test_c50_two_ranks_on_nodes_of_one() -> None:
    assert "world-size" in refused_for(plan(LLAMA_31_8B, gpu("NVIDIA-L4", gpus_per_node=1), tp=2))


def test_c51_sizes_in_a_nested_config_are_read() -> None:
    inner = {
        "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584, "num_hidden_layers": 28,
        "intermediate_size": 18944, "vocab_size": 152064,
    }  # fmt: skip
    for config in ({"thinker_config": {"text_config": inner}}, {"text_config": inner}):
        facts = read_config({"architectures": ["Qwen2_5OmniModel"], **config}, None)
        assert facts.num_attention_heads == 28
    with pytest.raises(ModelUnreadable, match="model config not understood: no hidden_size"):
        read_config({"architectures": ["Qwen2_5OmniModel"], "vision_config": inner}, None)


@pytest.mark.parametrize(("layers", "pp", "largest"), [(61, 2, 31), (80, 3, 27), (28, 8, 4)])
def test_c52_layers_that_do_not_divide(layers: int, pp: int, largest: int) -> None:
    facts = llama(layers, 32, 8, 4096, 14336, 32000)
    verdict = plan(facts, pp=pp)
    assert refused_for(verdict) == {"pipeline-stages"}
    uneven = load_catalog({"new.yaml": 'facts: [{name: uneven_pipeline_stages, values: {"0.12": true}}]'})
    accepted = judge(engine_spec(pp=pp), facts, uneven.release("1.2.1"), H100)
    assert accepted.ok
    assert accepted.memory.kv_bytes_per_token.value == 2 * largest * 8 * 128 * 2


def test_c53_lengths_are_always_passed() -> None:
    command = build_command(engine_spec(), LLAMA_2_7B, RELEASE)
    assert {"--max_seq_len", "--max_input_len", "--max_num_tokens", "--max_batch_size"} <= set(command)


def test_c54_max_num_tokens_caps_the_prompt() -> None:
    """Without chunked context, which an 8-bit cache under weights that are not FP8 excludes."""
    off: dict[str, Any] = {"kv_cache": "fp8", "seq_len": 32768, "num_tokens": 8192}
    verdict = plan(LLAMA_31_8B, input_len=30000, **off)
    assert refused_for(verdict) == {"prompt-limit"}
    assert "= 8,192 is below maxInputLen 30,000" in said(verdict, "prompt-limit")
    assert "maxNumTokens at least 30,000" in said(verdict, "prompt-limit")
    assert plan(LLAMA_31_8B, input_len=8192, **off).ok
    assert not plan(LLAMA_31_8B, input_len=8193, **off).ok


def test_c54_chunked_context_takes_the_whole_sequence() -> None:
    """It is on wherever paged context FMHA is; serving.repository sets both from the same property."""
    verdict = plan(QWEN2_7B, input_len=30000, seq_len=32768, num_tokens=8192)
    assert verdict.ok
    assert verdict.longest_prompt.value == 32767
    fp8 = plan(LLAMA_31_8B, quantization="fp8", kv_cache="fp8", input_len=30000, seq_len=32768, num_tokens=8192)
    assert fp8.longest_prompt.value == 32767, "FP8 weights keep it with an FP8 cache"


BUILD_TIME = {"batch": 16, "input_len": 1025, "seq_len": 2049, "num_tokens": 2049, "beams": 2}


@pytest.mark.parametrize("field", BUILD_TIME)
def test_c55_limits_change_the_build(field: str) -> None:
    before = build_command(engine_spec(), LLAMA_31_8B, RELEASE)
    assert build_command(engine_spec(**{field: BUILD_TIME[field]}), LLAMA_31_8B, RELEASE) != before


@pytest.mark.parametrize(
    ("field", "value"), [("tp", 2), ("dtype", "float16"), ("quantization", "fp8"), ("kv_cache", "fp8")]
)
def test_c55_precision_and_ranks_change_the_checkpoint(field: str, value: Any) -> None:
    before = checkpoint_step(engine_spec(), LLAMA_31_8B, RELEASE)
    assert checkpoint_step(engine_spec(**{field: value}), LLAMA_31_8B, RELEASE) != before


def test_c55_what_is_read_at_run_time_changes_neither() -> None:
    for spec in (engine_spec(kv_percent=50), engine_spec(serving={"maxQueueSize": 7})):
        assert build_command(spec, LLAMA_31_8B, RELEASE) == build_command(engine_spec(), LLAMA_31_8B, RELEASE)
        assert checkpoint_step(spec, LLAMA_31_8B, RELEASE) == checkpoint_step(engine_spec(), LLAMA_31_8B, RELEASE)


def test_c56_the_answer_is_part_of_the_sequence() -> None:
    verdict = plan(LLAMA_2_7B, input_len=4096, seq_len=2048, num_tokens=8192)
    assert {"sequence-length"} <= refused_for(verdict)
    assert "at least 4,097" in said(verdict, "sequence-length")


def test_c57_a_long_context_on_forty_gigabytes() -> None:
    asked: dict[str, Any] = {
        "quantization": "int4_awq", "input_len": 131000, "seq_len": 131072, "num_tokens": 131072, "batch": 1
    }  # fmt: skip
    verdict = plan(LLAMA_31_8B, A100_40, **asked)
    per_token, sequence = verdict.memory.kv_bytes_per_token.value, verdict.memory.tokens_per_sequence.value
    assert per_token * sequence == 16 * GIB
    assert 5.0 < verdict.memory.weights.value / GIB < 6.0
    assert "multiplies the activation memory" in said(verdict, "step-tokens")


def test_c59_longer_than_the_position_table() -> None:
    rotary = plan(llama(32, 32, 8, 4096, 14336, 32000, max_position_embeddings=8192), seq_len=8242)
    assert rotary.ok
    assert "maxSeqLen 8,242 is above the model's 8,192 positions" in said(rotary, "positions")
    learned = llama(12, 12, 12, 768, 3072, 50257, architectures=["GPT2LMHeadModel"], max_position_embeddings=8192)
    assert "positions" in refused_for(plan(learned, seq_len=8242))


def test_c60_an_encoder_decoder_model() -> None:
    t5 = {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True,
        "d_model": 512, "num_heads": 8, "num_layers": 6, "d_ff": 2048, "vocab_size": 32128, "n_positions": 512,
    }  # fmt: skip
    verdict = plan(read_config(t5, None))
    assert "architecture" in refused_for(verdict)
    assert "T5ForConditionalGeneration is an encoder-decoder model" in said(verdict, "architecture")


def test_c61_a_flag_that_is_gone_is_never_passed() -> None:
    for name in CATALOG.release_names:
        release = CATALOG.release(name)
        if release.builds_engines:
            flags = {w for w in build_command(engine_spec(), LLAMA_2_7B, release) if w.startswith("--")}
            assert flags <= set(release.commands["trtllm-build"].flags)


def test_c63_one_option_two_names() -> None:
    text = """
releases: [{release: 0.12.0, status: supported}]
commands: [{command: convert-llama, program: {"0.12": [python3, convert_checkpoint.py]}}]
"""
    old = build_command(engine_spec(), LLAMA_2_7B, load_catalog({"old.yaml": text}).release("0.12.0"))
    assert old[old.index("--paged_kv_cache") + 1] == "enable"
    assert "--kv_cache_type" not in old
    new = build_command(engine_spec(), LLAMA_2_7B, RELEASE)
    assert new[new.index("--kv_cache_type") + 1] == "paged"
    assert "--paged_kv_cache" not in new


def test_c65_a_release_without_build_tool_is_refused_with_the_last_that_has_it() -> None:
    verdict = plan(LLAMA_31_8B, release="1.3.0rc23")
    assert "release" in refused_for(verdict)
    assert "use release 1.2.1" in said(verdict, "release")
