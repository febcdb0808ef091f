"""What users met, by the number of the public report each comes from: lengths."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning.build import engine_spec, llama
from tests.unit.planning.models import A100_40, LLAMA_2_7B, LLAMA_31_8B, QWEN2_7B, RELEASE, plan, refused_for, said
from trtllm_operator.planning import build_command, checkpoint_step, read_config
from trtllm_operator.planning.terms import GIB


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


BUILD_TIME: dict[str, Any] = {"batch": 16, "input_len": 1025, "seq_len": 2049, "num_tokens": 2049, "beams": 2}


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
