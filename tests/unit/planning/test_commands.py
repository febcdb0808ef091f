"""Effective command lines: golden, because a change of one changes every key made from it."""

from __future__ import annotations

import pytest

from tests.unit.planning.build import SMOLLM2, engine_spec, llama
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import (
    CommandUnknown,
    build_command,
    checkpoint_step,
    expectation,
    read_config,
)
from trtllm_operator.planning.commands import trial_command

RELEASE = load_catalog().release("1.2.1")
FACTS = read_config(SMOLLM2, None)


def test_conversion_passes_everything_that_decides_the_checkpoint() -> None:
    assert " ".join(checkpoint_step(engine_spec(tp=3), FACTS, RELEASE).command) == (
        "python3 /app/examples/models/core/llama/convert_checkpoint.py --model_dir {parent} --output_dir {output} "
        "--dtype bfloat16 --tp_size 3 --pp_size 1 --load_model_on_cpu --workers 1"
    )


def test_build_passes_every_default_that_moved_between_releases() -> None:
    assert " ".join(build_command(engine_spec(), FACTS, RELEASE)) == (
        "trtllm-build --checkpoint_dir {parent} --output_dir {output} --max_batch_size 8 --max_input_len 1024 "
        "--max_seq_len 2048 --max_num_tokens 2048 --max_beam_width 1 --kv_cache_type paged --tokens_per_block 32 "
        "--remove_input_padding enable --context_fmha enable --use_paged_context_fmha enable "
        "--use_fp8_context_fmha disable --gpt_attention_plugin auto --gemm_plugin auto --nccl_plugin auto "
        "--moe_plugin auto --reduce_fusion disable --multiple_profiles disable --workers 1 --log_level info"
    )


def test_fp8_is_calibrated_with_a_gpu_and_int8_weights_are_converted_without() -> None:
    fp8 = checkpoint_step(engine_spec(quantization="fp8", kv_cache="fp8"), FACTS, RELEASE)
    assert fp8.needs_gpu
    assert " ".join(fp8.command).startswith(
        "python3 /app/examples/quantization/quantize.py --model_dir {parent} --output_dir {output} --dtype bfloat16 "
        "--tp_size 1 --pp_size 1 --qformat fp8 --kv_cache_dtype fp8"
    )
    int8 = checkpoint_step(engine_spec(quantization="int8_wo"), FACTS, RELEASE)
    assert not int8.needs_gpu
    assert "--use_weight_only --weight_only_precision int8" in " ".join(int8.command)


@pytest.mark.parametrize(
    ("quantization", "kv_cache", "paged", "fp8"),
    [
        ("none", "auto", "enable", "disable"),
        ("fp8", "fp8", "enable", "enable"),
        ("fp8", "auto", "enable", "disable"),
        ("none", "fp8", "disable", "disable"),
        ("none", "int8", "disable", "disable"),
        ("fp8", "int8", "disable", "disable"),
    ],
)
def test_context_attention_follows_the_kv_cache(quantization: str, kv_cache: str, paged: str, fp8: str) -> None:
    line = " ".join(build_command(engine_spec(quantization=quantization, kv_cache=kv_cache), FACTS, RELEASE))
    assert f"--use_paged_context_fmha {paged} --use_fp8_context_fmha {fp8}" in line


def test_every_flag_passed_is_one_of_the_release() -> None:
    for quantization in RELEASE.formats:
        for kv_cache in ("auto", *RELEASE.kv_cache_formats):
            spec = engine_spec(quantization=quantization, kv_cache=kv_cache)
            step = checkpoint_step(spec, FACTS, RELEASE)
            tool = "quantize" if "quantize" in step.command[1] else "convert-llama"
            for name, words in ((tool, step.command), ("trtllm-build", build_command(spec, FACTS, RELEASE))):
                passed = {w for w in words if w.startswith("--")}
                assert passed <= set(RELEASE.commands[name].flags), f"{name} of 1.2.1 refuses some of {passed}"


def test_an_architecture_without_converter_is_refused_by_name() -> None:
    with pytest.raises(CommandUnknown, match="converts no GptOssForCausalLM"):
        checkpoint_step(engine_spec(), llama(1, 1, 1, 64, 128, 100, architectures=["GptOssForCausalLM"]), RELEASE)


def test_expectation_is_what_the_spec_asks() -> None:
    found = expectation(engine_spec(quantization="fp8", kv_cache="fp8", tp=3), FACTS, RELEASE)
    assert found.dump() == {
        "release": "1.2.1",
        "tensorParallel": 3,
        "pipelineParallel": 1,
        "dtype": "bfloat16",
        "quantAlgo": "FP8",
        "kvCacheQuantAlgo": "FP8",
        "maxBatchSize": 8,
        "maxInputLen": 1024,
        "maxSeqLen": 2048,
        "maxNumTokens": 2048,
        "maxBeamWidth": 1,
    }
    assert expectation(engine_spec(), FACTS, RELEASE, engine=False).max_seq_len is None
    assert " ".join(trial_command(expectation(engine_spec(), FACTS, RELEASE), RELEASE)) == (
        "python3 /app/examples/run.py --engine_dir {output} --tokenizer_dir {model} --max_output_len 1 "
        "--input_text Hello --log_level info"
    )
