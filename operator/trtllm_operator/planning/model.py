"""`ModelFacts`: all that the planner knows of a model, read from config.json and the tensor headers.

`read_report` takes what the inspection step reports (format: `planning.report`), `read_config` the files themselves.
Facts are flat scalars, so that they fit a status field as they are. Counts are elements of the unquantized model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .model_config import (
    DTYPE_BYTES,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    LAYERS,
    POSITIONS,
    TIED,
    UNGATED,
    ModelUnreadable,
    count,
    flag,
    optional,
    read_dtype,
    read_head_dim,
    read_kv_heads,
    read_latent_attention,
    read_quantization,
    read_rope,
    read_sliding_window,
    said,
    text_config,
    whole_number,
    word,
)
from .report import TensorHeader, make_report
from .tensors import TensorSum, from_dimensions, from_groups
from .text_processing import read_text_facts

__all__ = ["Fact", "ModelFacts", "ModelUnreadable", "read_config", "read_report"]

Fact = int | float | str | bool | None


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
    """Of tokens and of learned positions."""
    lm_head_parameter_count: int
    """0 when the output layer uses the embedding table."""
    kv_parameter_count: int
    """K and V projections, all layers: copied when there are more ranks than KV heads."""
    sharded_parameter_count: int
    """Other matrices of the layers, without experts, and the biases divided with them: divided among tensor-parallel
    ranks."""
    expert_parameter_count: int
    replicated_parameter_count: int
    """Norms, other biases, routers: whole on every rank."""
    sizes_from: str
    """`tensors`, or `config` when the headers are missing or hold packed weights."""
    encoder_decoder: bool = False
    quantization: str | None = None
    """quant_method of a source that is quantized already."""
    quantization_algo: str | None = None
    quantization_bits: int | None = None
    quantization_group_size: int | None = None
    quantization_desc_act: bool = False
    rope_scaling_type: str | None = None
    rope_scaling_factor: float | None = None
    sliding_window: int | None = None
    num_dense_layers: int = 0
    """Layers without experts, of a model that has experts in the others."""
    num_experts: int | None = None
    num_experts_per_token: int | None = None
    kv_lora_rank: int | None = None
    """Of multi-head latent attention, whose cache is one latent vector a token and layer."""
    qk_rope_head_dim: int | None = None
    end_token_ids: str | None = None
    """Ids after which a text ends, with spaces between: those of generation_config.json, else of config.json, else the
    tokenizer's; empty where no file names one, None where nobody has looked."""
    config_end_token_ids: str | None = None
    """Those of config.json alone."""
    tokenizer_end_token: str | None = None
    """Text of the token that the tokenizer ends with; empty where it has none."""
    tokenizer_end_token_id: int | None = None
    remote_code: str | None = None
    """File and class of the repository's own Python code that the model needs to be loaded."""
    sentencepiece: bool | None = None

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
                    raise ModelUnreadable(f"the model's facts have no {field.name}")
                values[field.name] = None if field.default is dataclasses.MISSING else field.default
                continue
            expected = {"int": int, "float": int | float, "str": str, "bool": bool}[str(field.type).split(" ")[0]]
            if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
                raise ModelUnreadable(f"the model's facts say {field.name} is {value!r}")
            values[field.name] = value
        return cls(**values)


def read_config(
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorHeader] | None,
    hf_quant_config: Mapping[str, Any] | None = None,
    text: Mapping[str, Any] | None = None,
) -> ModelFacts:
    """Facts from config.json, every tensor header and what `planning.report.text_report` gives. Raises
    ModelUnreadable."""
    if not isinstance(config, Mapping):
        raise ModelUnreadable(f"config.json holds {said(config)}, not an object")
    try:
        report = make_report(config, tensors, hf_quant_config, text)
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
    text = report.get("text")
    if text is not None and not isinstance(text, Mapping):
        raise ModelUnreadable("the inspection report's text is not an object")
    return _facts(whole, tensors, {} if text is None else read_text_facts(text))


def _facts(whole: Mapping[str, Any], tensors: Mapping[str, Any] | None, text: Mapping[str, Any]) -> ModelFacts:
    config = text_config(whole)
    architectures = whole.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ModelUnreadable("config.json names no architectures")
    if not word(architectures[0]):
        raise ModelUnreadable(f"config.json says {said(architectures[0])}, which is no architecture's name")
    hidden = count(config, HIDDEN, 1_000_000)
    heads = count(config, HEADS, 65_536)
    layers = count(config, LAYERS, 10_000)
    kv_heads = read_kv_heads(config, heads)
    if hidden % heads and read_head_dim(config) is None:
        raise ModelUnreadable(f"hidden_size {hidden} does not divide by {heads} heads, and config.json has no head_dim")
    head_size = read_head_dim(config) or hidden // heads
    vocab = optional(config, ("padded_vocab_size",), 100_000_000) or count(config, ("vocab_size",), 100_000_000)
    intermediate = optional(config, INTERMEDIATE, 10_000_000) or 4 * hidden
    experts = optional(config, ("num_local_experts", "num_experts", "n_routed_experts"), 65_536)
    source = read_quantization(whole, config)
    latent = read_latent_attention(config)
    dense_layers = min(optional(config, ("first_k_dense_replace",), 10_000) or 0, layers) if experts else 0
    expert_intermediate = optional(config, ("moe_intermediate_size",), 10_000_000) or intermediate
    shared_experts = optional(config, ("n_shared_experts",), 65_536) or 0
    model_type = word(config.get("model_type")) or word(whole.get("model_type")) or ""
    tied = flag(config, "tie_word_embeddings", flag(whole, "tie_word_embeddings", model_type in TIED))
    sizes = from_dimensions(
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden=hidden,
        intermediate=intermediate,
        vocab=vocab,
        tied=tied,
        gated=model_type not in UNGATED,
        experts=experts or 0,
        expert_intermediate=expert_intermediate,
        shared_expert_intermediate=optional(config, ("shared_expert_intermediate_size",), 10_000_000)
        or shared_experts * expert_intermediate,
        dense_layers=dense_layers,
        latent=latent,
    )
    sizes_from = "config"
    if (
        tensors is not None
        and source["quantization"] is None
        and (found := _tensor_sum(tensors, heads, kv_heads, tied))
    ):
        sizes, sizes_from = found, "tensors"
    dtype = read_dtype(config, whole, tensors)
    rope = read_rope(config)
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
        max_position_embeddings=optional(config, POSITIONS, 1_000_000_000),
        tie_word_embeddings=tied,
        dtype=dtype,
        parameter_count=sizes.total,
        weight_bytes=whole_number(tensors, "bytes") if tensors is not None else sizes.total * DTYPE_BYTES[dtype],
        embedding_parameter_count=sizes.embedding,
        lm_head_parameter_count=sizes.lm_head,
        kv_parameter_count=sizes.kv,
        sharded_parameter_count=sizes.sharded,
        expert_parameter_count=sizes.expert,
        replicated_parameter_count=sizes.replicated,
        sizes_from=sizes_from,
        encoder_decoder=flag(whole, "is_encoder_decoder", False),
        **source,
        rope_scaling_type=rope[0],
        rope_scaling_factor=rope[1],
        sliding_window=read_sliding_window(config),
        num_dense_layers=dense_layers,
        num_experts=experts,
        num_experts_per_token=optional(config, ("num_experts_per_tok",), 65_536),
        kv_lora_rank=latent.kv_rank if latent else None,
        qk_rope_head_dim=latent.rope if latent else None,
        **text,
    )


def _tensor_sum(tensors: Mapping[str, Any], heads: int, kv_heads: int, tied: bool) -> TensorSum | None:
    try:
        return from_groups(tensors["groups"], tensors["rest"], heads=heads, kv_heads=kv_heads, tied=tied)
    except (KeyError, TypeError, ValueError, IndexError):
        raise ModelUnreadable("the inspection report's tensors are not as planning.report defines them") from None
