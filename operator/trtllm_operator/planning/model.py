"""`ModelFacts`: all that the planner knows of a model, read from config.json and the tensor headers.

`read_report` takes what the inspection step reports (format: `planning.report`), `read_config` the files themselves.
Facts are flat scalars, so that they fit a status field as they are. Counts are elements of the unquantised model.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .report import TensorHeader, make_report
from .tensors import TensorSum, from_dimensions, from_groups

Fact = int | float | str | bool | None

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


class ModelUnreadable(ValueError):  # noqa: N818
    """What the model's files say cannot be planned with. One line: which value, and what was expected."""


@dataclass(frozen=True)
class ModelFacts:
    """A decoder model's dimensions and the sizes of its parts."""

    architecture: str
    """First of config.json's `architectures`."""
    model_type: str
    num_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int | None
    tie_word_embeddings: bool
    dtype: str
    """float16, bfloat16 or float32."""
    parameter_count: int
    weight_bytes: int
    """Of the source's tensors as they are stored."""
    embedding_parameter_count: int
    lm_head_parameter_count: int
    """0 when the output layer uses the embedding table."""
    kv_parameter_count: int
    """K and V projections, all layers: copied when there are more ranks than KV heads."""
    sharded_parameter_count: int
    """Other matrices of the layers, without experts: divided among tensor-parallel ranks."""
    expert_parameter_count: int
    replicated_parameter_count: int
    """Norms, biases, routers, position tables: whole on every rank."""
    sizes_from: str
    """`tensors`, or `config` when the headers are missing or hold packed weights."""
    encoder_decoder: bool = False
    quantization: str | None = None
    """quant_method of a source that is quantised already."""
    quantization_algo: str | None = None
    quantization_bits: int | None = None
    quantization_group_size: int | None = None
    quantization_desc_act: bool = False
    rope_scaling_type: str | None = None
    rope_scaling_factor: float | None = None
    sliding_window: int | None = None
    num_experts: int | None = None
    num_experts_per_token: int | None = None
    kv_lora_rank: int | None = None
    """Of multi-head latent attention, whose cache is one latent vector a token and layer."""
    qk_rope_head_dim: int | None = None

    def to_facts(self) -> dict[str, Fact]:
        """The facts that are not None, for status.model.facts."""
        return {f.name: v for f in dataclasses.fields(self) if (v := getattr(self, f.name)) is not None}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Fact]) -> ModelFacts:
        """The inverse of `to_facts`. Raises ModelUnreadable when a fact is missing or of the wrong type."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            if (value := facts.get(field.name)) is None:
                if field.default is dataclasses.MISSING and "None" not in str(field.type):
                    raise ModelUnreadable(f"the model's facts have no {field.name}: inspect the model again")
                values[field.name] = None if field.default is dataclasses.MISSING else field.default
                continue
            expected = {"int": int, "float": int | float, "str": str, "bool": bool}[str(field.type).split(" ")[0]]
            if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
                raise ModelUnreadable(f"the model's facts say {field.name} is {value!r}: inspect the model again")
            values[field.name] = value
        return cls(**values)


def read_config(
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorHeader] | None,
    hf_quant_config: Mapping[str, Any] | None = None,
) -> ModelFacts:
    """Facts from config.json and every tensor header. Raises ModelUnreadable."""
    if not isinstance(config, Mapping):
        raise ModelUnreadable(f"config.json holds {_said(config)}, not an object")
    try:
        report = make_report(config, tensors, hf_quant_config)
    except KeyError as error:
        raise ModelUnreadable(f"a tensor has the type {error.args[0]}, which safetensors does not define") from None
    return read_report(report)


def read_report(report: Mapping[str, Any]) -> ModelFacts:
    """Facts from an inspection report. Raises ModelUnreadable."""
    whole = report.get("config")
    if not isinstance(whole, Mapping):
        raise ModelUnreadable("the inspection report has no config")
    tensors = report.get("tensors")
    if tensors is not None and not isinstance(tensors, Mapping):
        raise ModelUnreadable("the inspection report's tensors are not an object")
    return _facts(whole, tensors)


def _facts(whole: Mapping[str, Any], tensors: Mapping[str, Any] | None) -> ModelFacts:
    config = _text_config(whole)
    architectures = whole.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ModelUnreadable("config.json names no architectures")
    if not _word(architectures[0]):
        raise ModelUnreadable(f"config.json says {_said(architectures[0])}, which is no architecture's name")
    hidden = _count(config, _HIDDEN, 1_000_000)
    heads = _count(config, _HEADS, 65_536)
    layers = _count(config, _LAYERS, 10_000)
    kv_heads = _kv_heads(config, heads)
    if hidden % heads and _head_dim(config) is None:
        raise ModelUnreadable(f"hidden_size {hidden} does not divide by {heads} heads, and config.json has no head_dim")
    head_size = _head_dim(config) or hidden // heads
    vocab = _count(config, ("padded_vocab_size", "vocab_size"), 100_000_000)
    intermediate = _optional(config, _INTERMEDIATE, 10_000_000) or 4 * hidden
    experts = _optional(config, ("num_local_experts", "num_experts", "n_routed_experts"), 65_536)
    tied = _flag(config, "tie_word_embeddings", _flag(whole, "tie_word_embeddings", False))
    source = _source_quantization(whole, config)
    kv_lora_rank = _optional(config, ("kv_lora_rank",), 1_000_000)
    model_type = _word(config.get("model_type")) or _word(whole.get("model_type")) or ""
    sizes = from_dimensions(
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden=hidden,
        intermediate=intermediate,
        vocab=vocab,
        tied=tied,
        gated=model_type not in _UNGATED,
        experts=experts or 0,
        expert_intermediate=_optional(config, ("moe_intermediate_size",), 10_000_000) or intermediate,
        shared_expert_intermediate=_optional(config, ("shared_expert_intermediate_size",), 10_000_000) or 0,
    )
    sizes_from = "config"
    if (
        tensors is not None
        and source["quantization"] is None
        and (found := _tensor_sum(tensors, heads, kv_heads, tied))
    ):
        sizes, sizes_from = found, "tensors"
    dtype = _dtype(config, whole, tensors)
    rope = _rope(config)
    return ModelFacts(
        architecture=architectures[0],
        model_type=model_type,
        num_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_size=head_size,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        max_position_embeddings=_optional(config, _POSITIONS, 1_000_000_000),
        tie_word_embeddings=tied,
        dtype=dtype,
        parameter_count=sizes.total,
        weight_bytes=_whole(tensors, "bytes") if tensors is not None else sizes.total * DTYPE_BYTES[dtype],
        embedding_parameter_count=sizes.embedding,
        lm_head_parameter_count=sizes.lm_head,
        kv_parameter_count=sizes.kv,
        sharded_parameter_count=sizes.sharded,
        expert_parameter_count=sizes.expert,
        replicated_parameter_count=sizes.replicated,
        sizes_from=sizes_from,
        encoder_decoder=_flag(whole, "is_encoder_decoder", False),
        **source,
        rope_scaling_type=rope[0],
        rope_scaling_factor=rope[1],
        sliding_window=_sliding_window(config),
        num_experts=experts,
        num_experts_per_token=_optional(config, ("num_experts_per_tok",), 65_536),
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=_optional(config, ("qk_rope_head_dim",), 65_536) if kv_lora_rank else None,
    )


_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff")
_POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx", "max_seq_len")

_UNGATED = frozenset(
    {
        "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "bloom", "falcon", "mpt", "opt", "phi", "starcoder2", "nemotron",
        "stablelm_epoch", "codegen", "RefinedWeb", "RefinedWebModel",
    }
)  # fmt: skip
"""model_type of models whose MLP has two matrices instead of three."""


def _said(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _word(value: Any) -> str | None:
    """A name out of the files, fit to be shown; None for anything else."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value) else None


def _text_config(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that holds the decoder's dimensions: the top, or the language model's part of a nested config."""
    if any(key in whole for key in _HEADS):
        return whole
    for key in ("text_config", "language_config", "llm_config", "thinker_config"):
        inner = whole.get(key)
        if isinstance(inner, Mapping) and any(k in (found := _text_config(inner)) for k in _HEADS):
            return found
    return whole


def _optional(config: Mapping[str, Any], keys: tuple[str, ...], most: int) -> int | None:
    for key in keys:
        if (value := config.get(key)) is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelUnreadable(f"config.json says {key} is {_said(value)}, not a whole number")
        if not 1 <= value <= most:
            raise ModelUnreadable(f"config.json says {key} is {value}; expected 1 to {most}")
        return value
    return None


def _count(config: Mapping[str, Any], keys: tuple[str, ...], most: int) -> int:
    value = _optional(config, keys, most)
    if value is None:
        raise ModelUnreadable(f"model config not understood: no {keys[0]} at any known place of config.json")
    return value


def _flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelUnreadable(f"config.json says {key} is {_said(value)}, not true or false")
    return value


def _whole(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ModelUnreadable(f"the inspection report says {key} is {_said(value)}, not a whole number")
    return value


def _head_dim(config: Mapping[str, Any]) -> int | None:
    return _optional(config, ("head_dim", "kv_channels", "head_size"), 65_536)


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    if config.get("multi_query_attention") is True:
        kv_heads = _optional(config, ("multi_query_group_num",), 65_536) or 1
    elif config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        kv_heads = 1
    else:
        kv_heads = _optional(config, ("num_key_value_heads", "num_kv_heads"), 65_536) or heads
    if heads % kv_heads:
        raise ModelUnreadable(
            f"config.json says {heads} attention heads and {kv_heads} KV heads, which do not divide them"
        )
    return kv_heads


def _dtype(config: Mapping[str, Any], whole: Mapping[str, Any], tensors: Mapping[str, Any] | None) -> str:
    for value in (config.get("torch_dtype"), config.get("dtype"), whole.get("torch_dtype"), whole.get("dtype")):
        if isinstance(value, str) and (name := value.removeprefix("torch.")) in DTYPE_BYTES:
            return name
    by_header = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    groups = tensors.get("groups", []) if tensors is not None else []
    return next(
        (by_header[g[1]] for g in groups if isinstance(g, list) and len(g) > 1 and g[1] in by_header), "float16"
    )


def _rope(config: Mapping[str, Any]) -> tuple[str | None, float | None]:
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return None, None
    kind = _word(scaling.get("rope_type", scaling.get("type")))
    factor = scaling.get("factor")
    if kind in (None, "default"):
        return None, None
    if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6):
        raise ModelUnreadable(f"config.json says the rope scaling factor is {_said(factor)}")
    return kind, None if factor is None else float(factor)


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False:
        return None
    return _optional(config, ("sliding_window",), 1_000_000_000)


def _source_quantization(whole: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """How the source is quantised already: by config.json's quantization_config or ModelOpt's own file."""
    declared = whole.get("quantization_config") or config.get("quantization_config")
    modelopt = whole.get("hf_quant_config")
    out: dict[str, Any] = {
        "quantization": None,
        "quantization_algo": None,
        "quantization_bits": None,
        "quantization_group_size": None,
        "quantization_desc_act": False,
    }
    if isinstance(modelopt, Mapping) and isinstance(inner := modelopt.get("quantization"), Mapping):
        algo, group = inner.get("quant_algo"), inner.get("group_size")
        if _word(algo):
            out |= {"quantization": "modelopt", "quantization_algo": algo}
            out["quantization_group_size"] = group if isinstance(group, int) and not isinstance(group, bool) else None
    elif isinstance(declared, Mapping):
        method = declared.get("quant_method")
        weights = _first_weights(declared)
        bits = declared.get("bits", declared.get("w_bit", weights.get("num_bits")))
        group = declared.get("group_size", declared.get("q_group_size", weights.get("group_size")))
        algo = declared.get("quant_algo", declared.get("format", declared.get("fmt")))
        out["quantization"] = _word(method) or "unknown"
        out["quantization_algo"] = _word(algo)
        out["quantization_bits"] = bits if isinstance(bits, int) and not isinstance(bits, bool) else None
        out["quantization_group_size"] = group if isinstance(group, int) and not isinstance(group, bool) else None
        out["quantization_desc_act"] = declared.get("desc_act") is True
    return out


def _first_weights(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights' scheme of the first group of a compressed-tensors config."""
    groups = declared.get("config_groups")
    if isinstance(groups, Mapping):
        for group in groups.values():
            if isinstance(group, Mapping) and isinstance(weights := group.get("weights"), Mapping):
                return weights
    return {}


def _tensor_sum(tensors: Mapping[str, Any], heads: int, kv_heads: int, tied: bool) -> TensorSum | None:
    try:
        return from_groups(tensors["groups"], tensors["rest"], heads=heads, kv_heads=kv_heads, tied=tied)
    except (KeyError, TypeError, ValueError, IndexError):
        raise ModelUnreadable("the inspection report's tensors are not as planning.report defines them") from None
