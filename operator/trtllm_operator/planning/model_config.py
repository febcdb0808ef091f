"""Values of config.json, under all the names that models give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .tensors import LatentAttention

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes of an element of the types an engine computes in."""


class ModelUnreadable(ValueError):  # noqa: N818
    """What the model's files say cannot be planned with. One line: which value, and what was expected."""


HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff")
POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx", "max_seq_len")

UNGATED = frozenset(
    {
        "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "bloom", "falcon", "mpt", "opt", "phi", "starcoder2", "nemotron",
        "stablelm_epoch", "codegen", "RefinedWeb", "RefinedWebModel",
    }
)  # fmt: skip
"""model_type of models whose MLP has two matrices instead of three."""

TIED = frozenset({"bloom", "cohere", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "starcoder2"})
"""model_type of models that tie the output layer to the embedding table unless config.json says otherwise: the default
of their classes in Transformers."""


def said(value: Any) -> str:
    """A value of the files as a message shows it, cut to one short line."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def word(value: Any) -> str | None:
    """A name out of the files, fit to be shown; None for anything else."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value) else None


def text_config(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that holds the decoder's dimensions: the top, or the language model's part of a nested config."""
    if any(key in whole for key in HEADS):
        return whole
    for key in ("text_config", "language_config", "llm_config", "thinker_config"):
        inner = whole.get(key)
        if isinstance(inner, Mapping) and any(k in (found := text_config(inner)) for k in HEADS):
            return found
    return whole


def optional(config: Mapping[str, Any], keys: tuple[str, ...], most: int) -> int | None:
    """The first of the keys that is there, a whole number from 1 to `most`. Raises ModelUnreadable."""
    for key in keys:
        if (value := config.get(key)) is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelUnreadable(f"config.json says {key} is {said(value)}, not a whole number")
        if not 1 <= value <= most:
            raise ModelUnreadable(f"config.json says {key} is {value}; expected 1 to {most}")
        return value
    return None


def count(config: Mapping[str, Any], keys: tuple[str, ...], most: int) -> int:
    """As `optional`, for what every decoder has."""
    value = optional(config, keys, most)
    if value is None:
        raise ModelUnreadable(f"model config not understood: no {keys[0]} at any known place of config.json")
    return value


def flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    """A value that is true or false. Raises ModelUnreadable."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelUnreadable(f"config.json says {key} is {said(value)}, not true or false")
    return value


def whole_number(values: Mapping[str, Any], key: str) -> int:
    """A number of an inspection report, not negative. Raises ModelUnreadable."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ModelUnreadable(f"the inspection report says {key} is {said(value)}, not a whole number")
    return value


def read_head_dim(config: Mapping[str, Any]) -> int | None:
    """Size of an attention head where the config says it; it need not be hidden size / heads."""
    return optional(config, ("head_dim", "kv_channels", "head_size"), 65_536)


def read_kv_heads(config: Mapping[str, Any], heads: int) -> int:
    """KV heads: as many as attention heads unless the config says otherwise. Raises ModelUnreadable."""
    if config.get("multi_query_attention") is True:
        kv_heads = optional(config, ("multi_query_group_num",), 65_536) or 1
    elif config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        kv_heads = 1
    else:
        kv_heads = optional(config, ("num_key_value_heads", "num_kv_heads"), 65_536) or heads
    if heads % kv_heads:
        raise ModelUnreadable(
            f"config.json says {heads} attention heads and {kv_heads} KV heads, which do not divide them"
        )
    return kv_heads


def read_latent_attention(config: Mapping[str, Any]) -> LatentAttention | None:
    """Dimensions of latent attention, if the model has it. Raises ModelUnreadable when one of them is missing."""
    rank = optional(config, ("kv_lora_rank",), 1_000_000)
    if rank is None:
        return None
    return LatentAttention(
        query_rank=optional(config, ("q_lora_rank",), 1_000_000),
        kv_rank=rank,
        rope=count(config, ("qk_rope_head_dim",), 65_536),
        nope=count(config, ("qk_nope_head_dim",), 65_536),
        value=count(config, ("v_head_dim",), 65_536),
    )


def read_dtype(config: Mapping[str, Any], whole: Mapping[str, Any], tensors: Mapping[str, Any] | None) -> str:
    """Type of the weights: the config's, else that of the largest floating tensors, else float16."""
    for value in (config.get("torch_dtype"), config.get("dtype"), whole.get("torch_dtype"), whole.get("dtype")):
        if isinstance(value, str) and (name := value.removeprefix("torch.")) in DTYPE_BYTES:
            return name
    by_header = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    groups = tensors.get("groups") if tensors is not None else None
    return next(
        (
            by_header[g[1]]
            for g in (groups if isinstance(groups, list) else [])
            if isinstance(g, list) and len(g) > 1 and isinstance(g[1], str) and g[1] in by_header
        ),
        "float16",
    )


def read_rope(config: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """Type and factor of the rope scaling, if there is one. Raises ModelUnreadable."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return None, None
    kind = word(scaling.get("rope_type", scaling.get("type")))
    factor = scaling.get("factor")
    if kind in (None, "default"):
        return None, None
    if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6):
        raise ModelUnreadable(f"config.json says the rope scaling factor is {said(factor)}")
    return kind, None if factor is None else float(factor)


def read_sliding_window(config: Mapping[str, Any]) -> int | None:
    """Tokens of the attention window, if it is used."""
    if config.get("use_sliding_window") is False:
        return None
    return optional(config, ("sliding_window",), 1_000_000_000)


def read_quantization(whole: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """How the source is quantized already: by config.json's quantization_config or ModelOpt's own file."""
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
        if word(algo):
            out |= {"quantization": "modelopt", "quantization_algo": algo}
            out["quantization_group_size"] = group if isinstance(group, int) and not isinstance(group, bool) else None
    elif isinstance(declared, Mapping):
        method = declared.get("quant_method")
        weights = _first_weights(declared)
        bits = declared.get("bits", declared.get("w_bit", weights.get("num_bits")))
        group = declared.get("group_size", declared.get("q_group_size", weights.get("group_size")))
        algo = declared.get("quant_algo", declared.get("format", declared.get("fmt")))
        out["quantization"] = word(method) or "unknown"
        out["quantization_algo"] = word(algo)
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
