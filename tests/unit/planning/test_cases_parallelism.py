"""What users met, by the number of the public report each comes from: parallelism."""

from __future__ import annotations

import pytest

from tests.unit.planning.build import engine_spec, llama
from tests.unit.planning.models import (
    H100,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_31_8B,
    LLAMA_31_405B,
    LLAMA_33B,
    QWEN2_7B,
    QWEN2_15B,
    QWEN15_32B,
    gpu,
    plan,
    refused_for,
    said,
)
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import ModelFacts, ModelUnreadable, judge, read_config


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


def test_c43_a_vocabulary_that_is_no_multiple_of_64_is_not_padded_to_one() -> None:
    """Report 301 had an old release pad one of two tables to 32,064; these pad both, to a multiple of TP."""
    assert 32016 % 64 == 16
    facts = llama(32, 32, 32, 4096, 11008, 32016)
    one = plan(facts, quantization="int8_wo")
    assert one.ok
    assert "vocabulary 32016 / TP 1 = 32016" in said(one, "vocabulary")
    assert "padded to 32032" in said(plan(facts, tp=32, quantization="int8_wo"), "vocabulary")
