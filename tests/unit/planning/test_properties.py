"""What holds for every spec and model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.planning.build import engine_spec, llama
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import CommandUnknown, ModelFacts, TargetGpu, build_command, checkpoint_step, judge

CATALOG = load_catalog()
SUPPORTED = [name for name in CATALOG.release_names if CATALOG.release(name).builds_engines]


QUANTIZED = {"quant_method": "awq", "bits": 4, "group_size": 128}


@st.composite
def models(draw: st.DrawFn) -> ModelFacts:
    kv_heads = draw(st.integers(1, 16))
    heads = kv_heads * draw(st.integers(1, 8))
    head_size = draw(st.sampled_from([64, 80, 100, 128, 256]))
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    experts = {"num_experts": draw(st.integers(1, 300)), "first_k_dense_replace": draw(st.integers(1, 200))}
    more: dict[str, Any] = draw(
        st.sampled_from(
            [{}, latent, experts, latent | experts, {"sliding_window": 4096}, {"quantization_config": QUANTIZED}]
        )
    )
    return llama(
        draw(st.integers(1, 130)), heads, kv_heads, heads * head_size, draw(st.integers(1, 60_000)),
        draw(st.integers(1, 260_000)), head_dim=head_size, tie_word_embeddings=draw(st.booleans()),
        max_position_embeddings=draw(st.none() | st.integers(1, 200_000)),
        torch_dtype=draw(st.sampled_from(["float16", "bfloat16", "float32"])),
        architectures=[draw(st.sampled_from(["LlamaForCausalLM", "Qwen2ForCausalLM", "GPT2LMHeadModel", "Nobody"]))],
        **more,
    )  # fmt: skip


SPECS = st.fixed_dictionaries(
    {
        "tp": st.integers(1, 64),
        "pp": st.integers(1, 64),
        "quantization": st.sampled_from(["none", "fp8", "fp8_rowwise", "int8_wo", "int4_awq", "nvfp4", "int8_sq"]),
        "kv_cache": st.sampled_from(["auto", "fp8", "int8"]),
        "batch": st.integers(1, 65_536),
        "input_len": st.integers(1, 2**24),
        "seq_len": st.integers(1, 2**24),
        "num_tokens": st.integers(1, 2**24),
        "beams": st.integers(1, 256),
        "kv_percent": st.integers(1, 99),
        "release": st.sampled_from(CATALOG.release_names),
    }
)
GPUS = st.builds(
    TargetGpu,
    product=st.just("GPU"),
    compute_capability=st.sampled_from(["7.0", "8.0", "8.9", "9.0", "10.0", "13.0"]),
    memory_mib=st.none() | st.integers(1, 400_000),
    gpus_per_node=st.none() | st.integers(0, 16),
)


@given(models(), SPECS, GPUS)
def test_no_input_makes_the_planner_raise(facts: ModelFacts, spec: dict[str, Any], gpu: TargetGpu) -> None:
    release = CATALOG.release(spec["release"])
    plan = judge(engine_spec(**spec), facts, release, gpu)
    for term in plan.terms:
        assert term.formula
    for check in plan.checks:
        assert check.message
        assert "\n" not in str(check)
    if plan.ok:
        assert build_command(engine_spec(**spec), facts, release)
        assert checkpoint_step(engine_spec(**spec), facts, release)


@given(models(), SPECS, st.sampled_from(SUPPORTED))
def test_commands_are_made_or_refused_in_one_line(facts: ModelFacts, spec: dict[str, Any], release: str) -> None:
    asked = engine_spec(**(spec | {"release": release}))
    refused = ""
    try:
        first = checkpoint_step(asked, facts, CATALOG.release(release))
    except CommandUnknown as error:
        refused = str(error)
    else:
        assert first == checkpoint_step(asked, facts, CATALOG.release(release)), "the same spec, the same command"
    assert "\n" not in refused


def memory_fits(spec: dict[str, Any], facts: ModelFacts, gpu: TargetGpu) -> bool:
    plan = judge(engine_spec(**spec), facts, CATALOG.release("1.2.1"), gpu)
    return not {"memory-weights", "memory-kv-cache"} & {check.id for check in plan.errors}


MODERATE = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4, 8]),
        "quantization": st.sampled_from(["none", "int8_wo", "int4_awq"]),
        "batch": st.integers(1, 512),
        "seq_len": st.integers(2, 65_536),
        "num_tokens": st.integers(1, 32_768),
        "beams": st.integers(1, 4),
        "kv_percent": st.integers(1, 99),
    }
)


@settings(max_examples=200)
@given(models(), MODERATE, st.integers(1_000, 200_000), st.integers(1, 100_000))
def test_more_gpu_memory_is_never_worse(facts: ModelFacts, spec: dict[str, Any], memory_mib: int, more: int) -> None:
    gpu = TargetGpu("GPU", "9.0", memory_mib)
    larger = replace(gpu, memory_mib=memory_mib + more)
    assume(memory_fits(spec, facts, gpu))
    assert memory_fits(spec, facts, larger)


@settings(max_examples=200)
@given(
    models(),
    MODERATE,
    st.sampled_from(["batch", "seq_len", "num_tokens", "beams"]),
    st.integers(1, 5_000),
    st.integers(1_000, 200_000),
)
def test_wider_limits_are_never_better(
    facts: ModelFacts, spec: dict[str, Any], field: str, more: int, memory_mib: int
) -> None:
    gpu = TargetGpu("GPU", "9.0", memory_mib)
    wider = spec | {field: min(spec[field] + more, 256) if field == "beams" else spec[field] + more}
    assume(memory_fits(wider, facts, gpu))
    assert memory_fits(spec, facts, gpu)
