"""Reading a model: dimensions, quantized sources, tensor headers, and what can't be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planning.build import SMOLLM2
from tests.unit.planning.models import plan, refused_for, said
from trtllm_operator.planning import ModelFacts, ModelUnreadable, read_config, read_report
from trtllm_operator.planning.report import MAX_REPORT_BYTES, TensorHeader, make_report


def smollm2_tensors(dtype: str = "BF16") -> dict[str, TensorHeader]:
    layer = {
        "self_attn.q_proj": (576, 576),
        "self_attn.k_proj": (192, 576),
        "self_attn.v_proj": (192, 576),
        "self_attn.o_proj": (576, 576),
        "mlp.gate_proj": (1536, 576),
        "mlp.up_proj": (1536, 576),
        "mlp.down_proj": (576, 1536),
        "input_layernorm": (576,),
        "post_attention_layernorm": (576,),
    }
    tensors = {f"model.layers.{i}.{name}.weight": shape for i in range(30) for name, shape in layer.items()}
    tensors |= {"model.embed_tokens.weight": (49152, 576), "model.norm.weight": (576,)}
    return {name: TensorHeader(dtype, shape) for name, shape in tensors.items()}


def test_dimensions_and_tensors_agree_on_smollm2() -> None:
    from_tensors = read_config(SMOLLM2, smollm2_tensors())
    from_dimensions = read_config(SMOLLM2, None)
    assert from_tensors.sizes_from == "tensors"
    assert from_tensors.parameter_count == from_dimensions.parameter_count == 134_515_008
    assert from_tensors.weight_bytes == 269_030_016
    for part in ("embedding", "lm_head", "kv", "sharded", "expert", "replicated"):
        name = f"{part}_parameter_count"
        assert getattr(from_tensors, name) == getattr(from_dimensions, name), name


def test_a_tied_table_that_is_stored_twice_is_counted_once() -> None:
    tensors = smollm2_tensors() | {"lm_head.weight": TensorHeader("BF16", (49152, 576))}
    assert read_config(SMOLLM2, tensors).lm_head_parameter_count == 0
    untied = read_config(SMOLLM2 | {"tie_word_embeddings": False}, tensors)
    assert untied.lm_head_parameter_count == 49152 * 576


def test_experts_and_fused_projections_are_told_apart() -> None:
    tensors = {
        "model.embed_tokens.weight": TensorHeader("BF16", (1000, 64)),
        "model.layers.0.self_attn.qkv_proj.weight": TensorHeader("BF16", (128, 64)),
        "model.layers.0.mlp.gate.weight": TensorHeader("BF16", (2, 64)),
        "model.layers.0.mlp.experts.0.up_proj.weight": TensorHeader("BF16", (256, 64)),
        "model.layers.0.mlp.experts.1.up_proj.weight": TensorHeader("BF16", (256, 64)),
    }
    config = SMOLLM2 | {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    facts = read_config(config, tensors)
    assert facts.kv_parameter_count == 128 * 64 // 2, "of 4 query, 2 K and 2 V heads half are K and V"
    assert facts.sharded_parameter_count == 128 * 64 // 2
    assert facts.expert_parameter_count == 2 * 256 * 64
    assert facts.replicated_parameter_count == 2 * 64


@pytest.mark.parametrize(
    ("declared", "quantization", "algo", "bits", "group"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, "awq", None, 4, 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "gptq", None, 4, 128),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", None, None, None),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fbgemm_fp8", None, None, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "modelopt", "FP8", None, None),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128}}},
                "ignore": ["lm_head"] * 100,
            },
            "compressed-tensors", "pack-quantized", 4, 128,
        ),
        ({"bits": 4}, "unknown", None, 4, None),
    ],
)  # fmt: skip
def test_quantized_sources_are_recognised(
    declared: dict[str, Any], quantization: str, algo: str | None, bits: int | None, group: int | None
) -> None:
    facts = read_config(SMOLLM2 | {"quantization_config": declared}, None)
    assert (facts.quantization, facts.quantization_algo) == (quantization, algo)
    assert (facts.quantization_bits, facts.quantization_group_size) == (bits, group)


def test_a_modelopt_file_beside_the_config_is_recognised() -> None:
    quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    facts = read_config(SMOLLM2, None, quant)
    assert (facts.quantization, facts.quantization_algo, facts.quantization_group_size) == ("modelopt", "NVFP4", 16)


@pytest.mark.parametrize(
    ("change", "kv_heads"),
    [
        ({"num_key_value_heads": None}, 9),
        ({"multi_query": True}, 1),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 3, "num_key_value_heads": None}, 3),
        ({"multi_query_attention": True, "multi_query_group_num": 3}, 3),
    ],
)
def test_kv_heads_under_every_name(change: dict[str, Any], kv_heads: int) -> None:
    assert read_config(SMOLLM2 | change, None).num_key_value_heads == kv_heads


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_attention_heads": "nine"}, "num_attention_heads is 'nine', not a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; expected 1 to"),
        ({"num_attention_heads": -9}, "num_attention_heads is -9"),
        ({"num_attention_heads": 9.0}, "is 9.0, not a whole number"),
        ({"num_attention_heads": True}, "is True, not a whole number"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; expected 1 to 10000"),
        ({"hidden_size": float("nan")}, "no hidden_size"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"hidden_size": 577}, "hidden_size 577 does not divide by 9 heads"),
        ({"num_key_value_heads": 4}, "9 attention heads and 4 KV heads"),
        ({"vocab_size": 10**30}, "no padded_vocab_size|no vocab_size"),
        ({"architectures": []}, "no architectures"),
        ({"architectures": "LlamaForCausalLM"}, "no architectures"),
        ({"architectures": [None]}, "no architectures"),
        ({"architectures": ["Llama\nForCausalLM"]}, "which is no architecture's name"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', not true or false"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "8"}}, "rope scaling factor is '8'"),
        ({"max_position_embeddings": "8k"}, "max_position_embeddings is '8k'"),
    ],
)
def test_a_hostile_config_is_one_clear_line(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelUnreadable, match=says) as error:
        read_config(SMOLLM2 | change, None)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("config", [[], "text", None, 1])
def test_a_config_that_is_no_object_is_refused(config: Any) -> None:
    with pytest.raises(ModelUnreadable, match="not an object"):
        read_config(config, None)


def test_an_unknown_tensor_type_is_refused() -> None:
    with pytest.raises(ModelUnreadable, match="F7"):
        read_config(SMOLLM2, {"x": TensorHeader("F7", (1,))})


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [*SMOLLM2, "head_dim", "rope_scaling", "quantization_config", "text_config", "kv_lora_rank", "sliding_window",
     "num_experts", "first_k_dense_replace", "n_shared_experts"]
)  # fmt: skip


@given(st.dictionaries(KEYS, ANY_JSON, max_size=6))
def test_no_config_makes_reading_raise_anything_else(change: dict[str, Any]) -> None:
    refused = ""
    try:
        facts = read_config({**SMOLLM2, **change}, None)
    except ModelUnreadable as error:
        refused = str(error)
    else:
        assert ModelFacts.from_facts(facts.to_facts()) == facts
    assert "\n" not in refused


@given(st.fixed_dictionaries({}, optional={"config": ANY_JSON, "tensors": ANY_JSON}))
def test_no_report_makes_reading_raise_anything_else(report: dict[str, Any]) -> None:
    with pytest.raises(ModelUnreadable):
        read_report(report)


TENSOR_GROUPS = st.lists(st.lists(ANY_JSON, max_size=5) | ANY_JSON, max_size=4)


@given(st.fixed_dictionaries({}, optional={"groups": TENSOR_GROUPS, "rest": ANY_JSON, "bytes": ANY_JSON}))
def test_no_tensors_make_reading_raise_anything_else(tensors: dict[str, Any]) -> None:
    refused = ""
    try:
        read_report({"config": SMOLLM2, "tensors": tensors})
    except ModelUnreadable as error:
        refused = str(error)
    assert "\n" not in refused


def test_facts_survive_the_status_field() -> None:
    facts = read_config(SMOLLM2, smollm2_tensors())
    stored = json.loads(json.dumps(facts.to_facts()))
    assert all(isinstance(v, bool | int | float | str) for v in stored.values())
    assert len(json.dumps(stored)) < 3500
    assert ModelFacts.from_facts(stored) == facts


@pytest.mark.parametrize("change", [{"num_layers": None}, {"num_layers": "30"}, {"tie_word_embeddings": 1}])
def test_damaged_facts_are_refused_by_name(change: dict[str, Any]) -> None:
    stored = read_config(SMOLLM2, None).to_facts() | change
    with pytest.raises(ModelUnreadable, match="the model's facts"):
        ModelFacts.from_facts(stored)


def test_a_report_keeps_its_limit_and_folds_the_smallest_tensors() -> None:
    many = {
        f"model.layers.0.some.rather.long.module.name.of.number{chr(97 + i)}x.weight": TensorHeader("BF16", (i + 1, 8))
        for i in range(26)
    }
    tensors = smollm2_tensors() | many | {f"x{'y' * 90}{i}": TensorHeader("F32", (i + 1,)) for i in range(40)}
    report = make_report(SMOLLM2, tensors)
    assert len(json.dumps(report, separators=(",", ":"))) <= MAX_REPORT_BYTES
    summary = report["tensors"]
    listed = sum(group[3] for group in summary["groups"])
    assert summary["rest"][0] > 0
    assert listed + summary["rest"][0] == summary["count"] == len(tensors)
    assert read_report(report).parameter_count == read_config(SMOLLM2, tensors).parameter_count


def test_a_report_says_alike_tensors_once() -> None:
    report = make_report(SMOLLM2, smollm2_tensors())
    groups = report["tensors"]["groups"]
    assert ["model.layers.*.self_attn.q_proj.weight", "BF16", [576, 576], 30] in groups
    assert len(groups) == 11
    assert report["tensors"]["rest"] == [0, 0, 0]


def test_a_config_of_another_model_than_the_weights_is_refused() -> None:
    """A repository whose config.json was edited: KV bytes of a token would follow it, bytes of weights the files."""
    tensors = {"model.embed_tokens.weight": TensorHeader("BF16", (49152, 576))}
    for layer in range(30):
        for name in ("k_proj", "v_proj"):
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = TensorHeader("BF16", (192, 576))
    assert plan(read_config(SMOLLM2, tensors)).ok
    edited = plan(read_config(SMOLLM2 | {"num_hidden_layers": 32}, tensors))
    assert refused_for(edited) == {"one-model"}
    assert said(edited, "one-model").startswith(
        "config.json and the weight files are not of one model: K and V projections of 32 layers with 3 KV heads of 64 "
        "and width 576 have 7,077,888 elements, those of the files 6,635,520"
    )
    assert plan(read_config(SMOLLM2 | {"num_hidden_layers": 32}, None)).ok, "without the files nobody can tell"


def test_auto_makes_float16_of_a_float32_source_and_says_so() -> None:
    verdict = plan(read_config(SMOLLM2 | {"torch_dtype": "float32"}, None))
    assert verdict.ok
    assert said(verdict, "dtype").startswith("the source is float32, and the converter's auto makes float16 of it")
