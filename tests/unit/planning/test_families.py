"""Families whose converters differ from Llama's: command lines, what each refuses, bytes of a rank and of a token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.planning.build import engine_spec
from tests.unit.planning.models import CATALOG, RELEASE, plan, refused_for, said
from trtllm_operator.planning import ModelFacts, checkpoint_step, read_config
from trtllm_operator.planning.nearest import nearest
from trtllm_operator.planning.report import TensorHeader
from trtllm_operator.planning.verdict import TargetPlan

ROWS, COLUMNS, WHOLE, KV, TABLE = "rows", "columns", "whole", "kv", "table"


@dataclass(frozen=True)
class Model:
    """A published model: config.json's dimensions, every tensor with how its converter cuts it, and its parameters."""

    config: dict[str, Any]
    layer: dict[str, tuple[tuple[int, ...], str]]
    outside: dict[str, tuple[tuple[int, ...], str]]
    published: int
    """Parameters, as the model's page on the hub or its paper says."""

    @property
    def layers(self) -> int:
        return int(self.config.get("num_hidden_layers") or self.config["n_layer"])

    def facts(self, **config: Any) -> ModelFacts:
        tensors = {name: TensorHeader("BF16", shape) for name, (shape, _) in self.outside.items()}
        for name, (shape, _) in self.layer.items():
            tensors |= {name.replace("*", str(i)): TensorHeader("BF16", shape) for i in range(self.layers)}
        return read_config({"max_position_embeddings": 4096, "torch_dtype": "bfloat16"} | self.config | config, tensors)


def linear(name: str, out: int, into: int, cut: str, bias: bool = False) -> dict[str, tuple[tuple[int, ...], str]]:
    """A matrix of Transformers, (outputs, inputs); a bias is cut with the outputs alone."""
    found: dict[str, tuple[tuple[int, ...], str]] = {f"{name}.weight": ((out, into), cut)}
    if bias:
        found[f"{name}.bias"] = ((out,), WHOLE if cut == COLUMNS else cut)
    return found


def norm(name: str, width: int, bias: bool = False) -> dict[str, tuple[tuple[int, ...], str]]:
    return {f"{name}.{part}": ((width,), WHOLE) for part in (("weight", "bias") if bias else ("weight",))}


LAYER = "model.layers.*"
PHI_3_MINI = Model(
    {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "num_hidden_layers": 32, "num_attention_heads": 32,
     "num_key_value_heads": 32, "hidden_size": 3072, "intermediate_size": 8192, "vocab_size": 32064,
     "tie_word_embeddings": False, "sliding_window": 2047},
    linear(f"{LAYER}.self_attn.qkv_proj", 9216, 3072, ROWS) | linear(f"{LAYER}.self_attn.o_proj", 3072, 3072, COLUMNS)
    | linear(f"{LAYER}.mlp.gate_up_proj", 16384, 3072, ROWS) | linear(f"{LAYER}.mlp.down_proj", 3072, 8192, COLUMNS)
    | norm(f"{LAYER}.input_layernorm", 3072) | norm(f"{LAYER}.post_attention_layernorm", 3072),
    {"model.embed_tokens.weight": ((32064, 3072), TABLE), "lm_head.weight": ((32064, 3072), ROWS)}
    | norm("model.norm", 3072),
    3_821_079_552,
)  # fmt: skip
PHI_2 = Model(
    {"architectures": ["PhiForCausalLM"], "model_type": "phi", "num_hidden_layers": 32, "num_attention_heads": 32,
     "num_key_value_heads": 32, "hidden_size": 2560, "intermediate_size": 10240, "vocab_size": 51200,
     "tie_word_embeddings": False},
    linear(f"{LAYER}.self_attn.q_proj", 2560, 2560, ROWS, bias=True)
    | linear(f"{LAYER}.self_attn.k_proj", 2560, 2560, KV, bias=True)
    | linear(f"{LAYER}.self_attn.v_proj", 2560, 2560, KV, bias=True)
    | linear(f"{LAYER}.self_attn.dense", 2560, 2560, COLUMNS, bias=True)
    | linear(f"{LAYER}.mlp.fc1", 10240, 2560, ROWS, bias=True)
    | linear(f"{LAYER}.mlp.fc2", 2560, 10240, COLUMNS, bias=True) | norm(f"{LAYER}.input_layernorm", 2560, bias=True),
    # The output layer's bias is counted whole: 51,200 elements.
    {"model.embed_tokens.weight": ((51200, 2560), TABLE), "lm_head.weight": ((51200, 2560), ROWS),
     "lm_head.bias": ((51200,), WHOLE)}
    | norm("model.final_layernorm", 2560, bias=True),
    2_779_683_840,
)  # fmt: skip


def gemma(architecture: str, model_type: str, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int,
          vocab: int, norms: tuple[str, ...], published: int, **config: Any) -> Model:  # fmt: skip
    width, kv = heads * 256, kv_heads * 256
    return Model(
        {"architectures": [architecture], "model_type": model_type, "num_hidden_layers": layers, "head_dim": 256,
         "num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": hidden,
         "intermediate_size": intermediate, "vocab_size": vocab} | config,
        linear(f"{LAYER}.self_attn.q_proj", width, hidden, ROWS) | linear(f"{LAYER}.self_attn.k_proj", kv, hidden, KV)
        | linear(f"{LAYER}.self_attn.v_proj", kv, hidden, KV)
        | linear(f"{LAYER}.self_attn.o_proj", hidden, width, COLUMNS)
        | linear(f"{LAYER}.mlp.gate_proj", intermediate, hidden, ROWS)
        | linear(f"{LAYER}.mlp.up_proj", intermediate, hidden, ROWS)
        | linear(f"{LAYER}.mlp.down_proj", hidden, intermediate, COLUMNS)
        | {k: v for name in norms for k, v in norm(f"{LAYER}.{name}", hidden if "layernorm" in name else 256).items()},
        {"model.embed_tokens.weight": ((vocab, hidden), ROWS)} | norm("model.norm", hidden),
        published,
    )  # fmt: skip


NORMS = ("input_layernorm", "post_attention_layernorm")
NORMS_2 = (*NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
GEMMA_2B = gemma("GemmaForCausalLM", "gemma", 18, 2048, 16384, 8, 1, 256000, NORMS, 2_506_172_416)
GEMMA_7B = gemma("GemmaForCausalLM", "gemma", 28, 3072, 24576, 16, 16, 256000, NORMS, 8_537_680_896)
GEMMA_2_2B = gemma("Gemma2ForCausalLM", "gemma2", 26, 2304, 9216, 8, 4, 256000, NORMS_2, 2_614_341_888,
                   max_position_embeddings=8192, sliding_window=4096)  # fmt: skip
GEMMA_3_1B = gemma("Gemma3ForCausalLM", "gemma3_text", 26, 1152, 6912, 4, 1, 262144,
                   (*NORMS_2, "self_attn.q_norm", "self_attn.k_norm"), 999_885_952,
                   max_position_embeddings=32768, sliding_window=512)  # fmt: skip
GPT2 = Model(
    {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768,
     "n_inner": None, "vocab_size": 50257, "n_positions": 1024, "max_position_embeddings": None},
    # Conv1D: (inputs, outputs). The mask is a buffer that the hub's copy stores.
    {"h.*.attn.c_attn.weight": ((768, 2304), KV), "h.*.attn.c_attn.bias": ((2304,), KV),
     "h.*.attn.c_proj.weight": ((768, 768), ROWS), "h.*.attn.c_proj.bias": ((768,), WHOLE),
     "h.*.mlp.c_fc.weight": ((768, 3072), ROWS), "h.*.mlp.c_fc.bias": ((3072,), ROWS),
     "h.*.mlp.c_proj.weight": ((3072, 768), ROWS), "h.*.mlp.c_proj.bias": ((768,), WHOLE)}
    | norm("h.*.ln_1", 768, bias=True) | norm("h.*.ln_2", 768, bias=True),
    {"wte.weight": ((50257, 768), TABLE), "wpe.weight": ((1024, 768), TABLE)} | norm("ln_f", 768, bias=True),
    124_439_808,
)  # fmt: skip
STARCODER2_3B = Model(
    {"architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "num_hidden_layers": 30,
     "num_attention_heads": 24, "num_key_value_heads": 2, "hidden_size": 3072, "intermediate_size": 12288,
     "vocab_size": 49152},
    linear(f"{LAYER}.self_attn.q_proj", 3072, 3072, ROWS, bias=True)
    | linear(f"{LAYER}.self_attn.k_proj", 256, 3072, KV, bias=True)
    | linear(f"{LAYER}.self_attn.v_proj", 256, 3072, KV, bias=True)
    | linear(f"{LAYER}.self_attn.o_proj", 3072, 3072, COLUMNS, bias=True)
    | linear(f"{LAYER}.mlp.c_fc", 12288, 3072, ROWS, bias=True)
    | linear(f"{LAYER}.mlp.c_proj", 3072, 12288, COLUMNS, bias=True)
    | norm(f"{LAYER}.input_layernorm", 3072, bias=True) | norm(f"{LAYER}.post_attention_layernorm", 3072, bias=True),
    {"model.embed_tokens.weight": ((49152, 3072), TABLE)} | norm("model.norm", 3072, bias=True),
    3_030_371_328,
)  # fmt: skip
COMMAND_R = Model(
    {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "num_hidden_layers": 40,
     "num_attention_heads": 64, "num_key_value_heads": 64, "hidden_size": 8192, "intermediate_size": 22528,
     "vocab_size": 256000},
    linear(f"{LAYER}.self_attn.q_proj", 8192, 8192, ROWS) | linear(f"{LAYER}.self_attn.k_proj", 8192, 8192, KV)
    | linear(f"{LAYER}.self_attn.v_proj", 8192, 8192, KV) | linear(f"{LAYER}.self_attn.o_proj", 8192, 8192, COLUMNS)
    | linear(f"{LAYER}.mlp.gate_proj", 22528, 8192, ROWS) | linear(f"{LAYER}.mlp.up_proj", 22528, 8192, ROWS)
    | linear(f"{LAYER}.mlp.down_proj", 8192, 22528, COLUMNS) | norm(f"{LAYER}.input_layernorm", 8192),
    {"model.embed_tokens.weight": ((256000, 8192), ROWS)} | norm("model.norm", 8192),
    34_980_831_232,
)  # fmt: skip
FALCON_7B = Model(
    {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "num_hidden_layers": 32,
     "num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False, "hidden_size": 4544,
     "vocab_size": 65024},
    linear("transformer.h.*.self_attention.query_key_value", 73 * 64, 4544, KV)
    | linear("transformer.h.*.self_attention.dense", 4544, 4544, COLUMNS)
    | linear("transformer.h.*.mlp.dense_h_to_4h", 18176, 4544, ROWS)
    | linear("transformer.h.*.mlp.dense_4h_to_h", 4544, 18176, COLUMNS)
    | norm("transformer.h.*.input_layernorm", 4544, bias=True),
    # The table is stored a second time as the output layer.
    {"transformer.word_embeddings.weight": ((65024, 4544), TABLE), "lm_head.weight": ((65024, 4544), "copy")}
    | norm("transformer.ln_f", 4544, bias=True),
    6_921_720_704,
)  # fmt: skip
FALCON_40B = Model(
    FALCON_7B.config | {"num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8, "hidden_size": 8192,
                        "new_decoder_architecture": True},
    linear("transformer.h.*.self_attention.query_key_value", 144 * 64, 8192, "gqa")
    | linear("transformer.h.*.self_attention.dense", 8192, 8192, COLUMNS)
    | linear("transformer.h.*.mlp.dense_h_to_4h", 32768, 8192, ROWS)
    | linear("transformer.h.*.mlp.dense_4h_to_h", 8192, 32768, COLUMNS)
    | norm("transformer.h.*.ln_attn", 8192, bias=True) | norm("transformer.h.*.ln_mlp", 8192, bias=True),
    {"transformer.word_embeddings.weight": ((65024, 8192), TABLE)} | norm("transformer.ln_f", 8192, bias=True),
    41_303_293_952,
)  # fmt: skip
BLOOM_560M = Model(
    {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "n_layer": 24, "num_attention_heads": 16,
     "hidden_size": 1024, "vocab_size": 250880},
    linear("h.*.self_attention.query_key_value", 3072, 1024, KV, bias=True)
    | linear("h.*.self_attention.dense", 1024, 1024, COLUMNS, bias=True)
    | linear("h.*.mlp.dense_h_to_4h", 4096, 1024, ROWS, bias=True)
    | linear("h.*.mlp.dense_4h_to_h", 1024, 4096, COLUMNS, bias=True)
    | norm("h.*.input_layernorm", 1024, bias=True) | norm("h.*.post_attention_layernorm", 1024, bias=True),
    {"word_embeddings.weight": ((250880, 1024), TABLE)} | norm("word_embeddings_layernorm", 1024, bias=True)
    | norm("ln_f", 1024, bias=True),
    559_214_592,
)  # fmt: skip
MODELS = {
    "phi-2": PHI_2, "phi-3-mini": PHI_3_MINI, "gemma-2b": GEMMA_2B, "gemma-7b": GEMMA_7B, "gemma-2-2b": GEMMA_2_2B,
    "gemma-3-1b": GEMMA_3_1B, "gpt2": GPT2, "starcoder2-3b": STARCODER2_3B, "command-r": COMMAND_R,
    "falcon-7b": FALCON_7B, "falcon-40b": FALCON_40B, "bloom-560m": BLOOM_560M,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_published_count(name: str) -> None:
    facts = MODELS[name].facts()
    assert facts.sizes_from == "tensors"
    assert facts.parameter_count == MODELS[name].published


def test_a_mask_that_is_stored_is_no_parameter() -> None:
    mask = {"h.*.attn.bias": ((1, 1, 1024, 1024), WHOLE)}
    stored = Model(GPT2.config, GPT2.layer | mask, GPT2.outside, GPT2.published)
    assert stored.facts().parameter_count == GPT2.published


def rank_bytes(model: Model, tp: int, kv_copies: int = 1, tied: bool = False) -> int:
    """Bytes at 16 bits of one of `tp` ranks, tensor by tensor, as the family's converter cuts them."""

    def elements(shape: tuple[int, ...], cut: str) -> int:
        whole = math.prod(shape)
        if cut in (ROWS, COLUMNS):
            return whole // tp
        if cut == KV:
            return whole * kv_copies // tp
        if cut == "gqa":  # 16 of 18 parts are Q
            return whole * 16 // 18 // tp + whole * 2 // 18 * kv_copies // tp
        return 0 if cut == "copy" else whole

    layers = sum(elements(*tensor) for tensor in model.layer.values()) * model.layers
    outside = sum(elements(*tensor) for tensor in model.outside.values())
    # The output layer that is not stored is the table again, divided, its vocabulary padded.
    table = next(shape for shape, cut in model.outside.values() if cut in (TABLE, ROWS))
    head = 0 if tied else -(-table[0] // tp) * table[1]
    return 2 * (layers + outside + head)


@pytest.mark.parametrize(
    ("name", "tp", "kv_copies", "one_table"),
    [
        ("gemma-2b", 1, 1, True),
        ("gemma-2b", 2, 2, True),  # the one KV head is whole on both
        ("gemma-7b", 1, 1, True),
        ("gemma-7b", 4, 1, True),  # the table is divided as the output layer is, and serves as it
        ("gemma-2-2b", 1, 1, True),
        ("gemma-2-2b", 2, 1, True),
        ("gemma-3-1b", 2, 2, True),
        ("gpt2", 1, 1, True),
        ("gpt2", 3, 1, False),
        ("starcoder2-3b", 1, 1, True),
        ("starcoder2-3b", 2, 1, False),
        ("starcoder2-3b", 4, 2, False),
        ("command-r", 1, 1, True),
        ("command-r", 8, 1, True),
        ("falcon-7b", 1, 1, True),
        ("falcon-40b", 8, 1, False),
        ("falcon-40b", 16, 2, False),
        ("bloom-560m", 1, 1, True),
        ("bloom-560m", 2, 1, False),
    ],
)
def test_weights_of_a_rank_are_the_sum_of_its_slices(name: str, tp: int, kv_copies: int, one_table: bool) -> None:
    found = plan(MODELS[name].facts(), tp=tp).memory.weights
    assert found.value == rank_bytes(MODELS[name], tp, kv_copies, one_table), found.formula


def test_weights_without_a_tied_table_are_the_sum_of_the_slices() -> None:
    for model, tp in ((PHI_3_MINI, 1), (PHI_2, 1), (PHI_2, 2)):
        assert plan(model.facts(), tp=tp).memory.weights.value == rank_bytes(model, tp, tied=True)


@pytest.mark.parametrize(
    ("name", "tp", "bytes_per_token"),
    [
        # 2 x layers x KV heads x head size x 2 bytes
        ("phi-2", 1, 2 * 32 * 32 * 80 * 2),
        ("phi-3-mini", 1, 393_216),
        ("gemma-2b", 1, 18_432),
        ("gemma-2b", 2, 18_432),
        ("gemma-2-2b", 1, 106_496),
        ("gemma-2-2b", 2, 53_248),
        ("gpt2", 1, 36_864),
        ("starcoder2-3b", 1, 30_720),
        ("starcoder2-3b", 4, 15_360),
        ("command-r", 1, 1_310_720),
        ("falcon-7b", 1, 8_192),
        ("bloom-560m", 1, 98_304),
    ],
)
def test_cache_of_a_token(name: str, tp: int, bytes_per_token: int) -> None:
    assert plan(MODELS[name].facts(), tp=tp).memory.kv_bytes_per_token.value == bytes_per_token


CORE = "python3 /app/examples/models/core"
WEIGHT_ONLY = " --use_weight_only --weight_only_precision int8"


@pytest.mark.parametrize(
    ("name", "spec", "line"),
    [
        ("phi-3-mini", {}, f"{CORE}/phi/convert_checkpoint.py --model_dir {{parent}} --output_dir {{output}} "
         "--dtype bfloat16 --tp_size 1 --pp_size 1 --workers 1"),
        ("phi-2", {"tp": 2, "quantization": "int8_wo"}, f"{CORE}/phi/convert_checkpoint.py --model_dir {{parent}} "
         f"--output_dir {{output}} --dtype bfloat16 --tp_size 2 --pp_size 1{WEIGHT_ONLY} --workers 1"),
        ("gemma-2-2b", {"tp": 2}, f"{CORE}/gemma/convert_checkpoint.py --model-dir {{parent}} "
         "--output-model-dir {output} --ckpt-type hf --dtype bfloat16 --world-size 2 --load_model_on_cpu"),
        ("gemma-3-1b", {"quantization": "int4_wo"}, f"{CORE}/gemma/convert_checkpoint.py --model-dir {{parent}} "
         "--output-model-dir {output} --ckpt-type hf --dtype bfloat16 --world-size 1 "
         "--use-weight-only-with-precision int4 --load_model_on_cpu"),
        ("gpt2", {"tp": 2, "pp": 2, "kv_cache": "int8"}, f"{CORE}/gpt/convert_checkpoint.py --model_dir {{parent}} "
         "--output_dir {output} --gpt_variant gpt2 --dtype bfloat16 --tp_size 2 --pp_size 2 --int8_kv_cache "
         "--calib_dataset {calibration}/texts-1 --load_model_on_cpu --workers 1"),
        ("starcoder2-3b", {}, f"{CORE}/gpt/convert_checkpoint.py --model_dir {{parent}} --output_dir {{output}} "
         "--gpt_variant starcoder2 --dtype bfloat16 --tp_size 1 --pp_size 1 --load_model_on_cpu --workers 1"),
        ("command-r", {"tp": 4, "quantization": "int8_wo"}, f"{CORE}/commandr/convert_checkpoint.py "
         "--model_dir {parent} --output_dir {output} --dtype bfloat16 --tp_size 4 --pp_size 1"
         f"{WEIGHT_ONLY} --load_model_on_cpu --workers 1"),
        ("bloom-560m", {"tp": 2, "kv_cache": "int8"}, "python3 /app/examples/models/contrib/bloom/convert_checkpoint.py"
         " --model_dir {parent} --output_dir {output} --dtype bfloat16 --tp_size 2 --pp_size 1 --int8_kv_cache "
         "--calib_dataset {calibration}/texts-1 --workers 1"),
        ("falcon-40b", {"tp": 2, "pp": 2}, "python3 /app/examples/models/contrib/falcon/convert_checkpoint.py "
         "--model_dir {parent} --output_dir {output} --dtype bfloat16 --tp_size 2 --pp_size 2 --workers 1"),
    ],
)  # fmt: skip
def test_a_conversion_is_called_as_its_script_wants_it(name: str, spec: dict[str, Any], line: str) -> None:
    """Golden, because a change of one changes every key made from it."""
    for release in ("1.0.0", "1.2.1"):
        step = checkpoint_step(engine_spec(release=release, **spec), MODELS[name].facts(), CATALOG.release(release))
        assert " ".join(step.command) == line


def test_every_flag_of_a_conversion_is_one_of_its_script() -> None:
    for name, model in MODELS.items():
        facts = model.facts()
        family = RELEASE.family_of(facts.architecture)
        assert family is not None
        assert family.command is not None
        words = checkpoint_step(engine_spec(), facts, RELEASE).command
        assert {w for w in words if w.startswith("--")} <= set(RELEASE.commands[family.command].flags), name


def test_a_gpu_is_asked_for_where_the_script_needs_one() -> None:
    needs = {name: checkpoint_step(engine_spec(), m.facts(), RELEASE).needs_gpu for name, m in MODELS.items()}
    assert [name for name, gpu in needs.items() if gpu] == ["starcoder2-3b"]


@pytest.mark.parametrize(
    ("name", "spec", "check", "says"),
    [
        ("phi-2", {"pp": 2}, "parallelism", "parallelism.pipeline 2: phi models are not divided so (its converter "
         "asserts pp_size 1); set parallelism.pipeline 1"),
        ("phi-3-mini", {"tp": 2}, "parallelism", "parallelism.tensor 2: phi3 models are not divided so (its converter "
         "cuts gate and up projection as one matrix, and its README lists Phi-3 mini, medium and Phi-4 without tensor "
         "parallelism); set parallelism.tensor 1"),
        ("phi-3-mini", {"quantization": "int8_wo"}, "commands", "convert-phi makes no int8_wo of phi3 models: its "
         "converter writes no scales for Phi-3"),
        ("phi-2", {"kv_cache": "fp8"}, "commands", "convert-phi makes no KV cache fp8 of phi models: it has no flag "
         "--fp8_kv_cache in this release"),
        ("gemma-2b", {"pp": 2}, "parallelism", "parallelism.pipeline 2: gemma models are not divided so (its converter "
         "knows tensor parallelism alone); set parallelism.pipeline 1"),
        ("gemma-2-2b", {"tp": 8}, "tensor-parallel-kv-heads", "release 1.2.1 does not copy KV heads of gemma2 models, "
         "and TP 8 needs 2 copies of 4; valid for this model on one node: 1, 2, 4"),
        ("gemma-2-2b", {"seq_len": 8192}, "longest-sequence", "maxSeqLen 8,192 is above the 4,096 tokens that the "
         "release allows gemma2 models; maxSeqLen at most 4,096"),
        ("gemma-2-2b", {"kv_cache": "int8"}, "commands", "convert-gemma makes no KV cache int8 of gemma2 models: its "
         "converter calibrates with a SentencePiece file that a model need not have"),
        ("starcoder2-3b", {"kv_cache": "int8"}, "commands", "convert-gpt makes no KV cache int8 of starcoder2 models: "
         "its scales are looked up under GPT-2's names of the layers"),
        ("falcon-40b", {"quantization": "fp8_rowwise"}, "commands", "convert-falcon makes no fp8_rowwise of falcon "
         "models: it has no flag --use_fp8_rowwise in this release"),
    ],
)  # fmt: skip
def test_what_a_family_is_refused_for(name: str, spec: dict[str, Any], check: str, says: str) -> None:
    verdict = plan(MODELS[name].facts(), **spec)
    assert said(verdict, check) == says
    assert check in refused_for(verdict)


def test_a_vocabulary_that_is_not_padded_has_to_divide() -> None:
    facts = GEMMA_7B.facts(vocab_size=256002)
    assert said(plan(facts, tp=4), "vocabulary") == (
        "parallelism.tensor 4: vocabulary 256002 does not divide by 4 (rest 2), and the converter of gemma models does "
        "not pad it; valid for this model on one node: 1, 2"
    )
    assert "vocabulary" not in refused_for(plan(facts, tp=2))


def test_a_table_that_tensorrt_does_not_take_is_refused() -> None:
    """BLOOM 176B's 250,880 x 14,336, which its README divides for this reason; Command R+ has 256,000 x 12,288."""
    bloom = BLOOM_560M.facts(hidden_size=14336, num_attention_heads=112, n_layer=70)
    assert said(plan(bloom, tp=8), "embedding-table") == (
        "a rank's embedding table has 3,596,615,680 elements, and TensorRT takes tensors of at most 2,147,483,647; "
        "a model with a smaller vocabulary or width"
    )
    command_r_plus = COMMAND_R.facts(hidden_size=12288, num_attention_heads=96, num_key_value_heads=8)
    assert said(plan(command_r_plus), "embedding-table") == (
        "a rank's embedding table has 3,145,728,000 elements, and TensorRT takes tensors of at most 2,147,483,647; "
        "parallelism.tensor at least 2"
    )
    assert "embedding-table" not in refused_for(plan(command_r_plus, tp=4))


def test_a_head_size_that_the_converter_does_not_read_is_refused() -> None:
    facts = STARCODER2_3B.facts(head_dim=64)
    assert said(plan(facts), "head-size") == (
        "head size 64 is not hidden size 3072 / 24 heads, as the converter of starcoder2 models takes it to be"
    )


@pytest.mark.parametrize("architecture", ["InternLM2ForCausalLM", "Phi3SmallForCausalLM", "JAISLMHeadModel"])
def test_models_that_need_code_of_their_repository_are_refused_by_name(architecture: str) -> None:
    verdict = plan(PHI_3_MINI.facts(architectures=[architecture]))
    assert refused_for(verdict) == {"architecture"}
    assert said(verdict, "architecture") == (
        f"release 1.2.1 converts {architecture}, but it is not converted here: Transformers has no class of it, and no "
        "code of a model's repository is ever fetched"
    )


def test_families_without_a_converter_in_an_older_release_are_refused() -> None:
    verdict = plan(GEMMA_7B.facts(), release="0.21.0")
    assert said(verdict, "commands") == (
        "gemma models are not converted with release 0.21.0: the catalog does not hold its converter's flags"
    )


def suggestions(verdict: TargetPlan, facts: ModelFacts, **spec: Any) -> set[str]:
    return {" and ".join(map(str, s)) for s in nearest(engine_spec(**spec), facts, RELEASE, verdict.gpu)}


def test_what_would_pass_is_within_what_the_family_allows() -> None:
    facts = PHI_3_MINI.facts()
    assert "parallelism.tensor 1" in suggestions(plan(facts, tp=4), facts, tp=4)
    facts = GEMMA_2_2B.facts()
    assert "budgets.maxSeqLen 4,096" in suggestions(plan(facts, seq_len=8192), facts, seq_len=8192)
    assert "parallelism.pipeline 1" in suggestions(plan(facts, pp=2), facts, pp=2)


def test_host_memory_of_a_conversion_counts_what_its_script_copies() -> None:
    """Gemma's script makes float32 of all weights; Llama's loads slices."""
    gemma_bytes, phi_bytes = GEMMA_7B.facts().weight_bytes, PHI_2.facts().weight_bytes
    assert plan(GEMMA_7B.facts()).building.convert_host.value == gemma_bytes * 425 // 100 + 4 * 10**9
    assert plan(PHI_2.facts()).building.convert_host.value == phi_bytes * 225 // 100 + 4 * 10**9
    calibrated = plan(GEMMA_7B.facts(), quantization="fp8").building.convert_host.value
    assert calibrated == gemma_bytes * 125 // 100 + 4 * 10**9
