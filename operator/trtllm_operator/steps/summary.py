"""The inspection report's two parts, as `planning/report.py` defines the format: config.json's and the headers'.

The step stands alone and so has the format's tables itself; a test holds the two together.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .report import StepError
from .source import Tensor

MAX_REPORT_BYTES = 3400
_ENVELOPE_BYTES = 160
"""Braces, keys and counts around the two parts."""

CONFIG_KEYS = frozenset(
    {
        *("architectures", "model_type", "torch_dtype", "dtype", "is_encoder_decoder", "tie_word_embeddings"),
        *("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
        *("num_attention_heads", "n_head", "n_heads", "num_heads"),
        *("num_key_value_heads", "num_kv_heads", "multi_query", "multi_query_attention", "multi_query_group_num"),
        *("new_decoder_architecture", "hidden_size", "n_embd", "d_model", "head_dim", "kv_channels", "head_size"),
        *("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "vocab_size", "padded_vocab_size"),
        *("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len"),
        *("hidden_act", "hidden_activation", "activation_function"),
        *("rope_theta", "partial_rotary_factor", "rotary_pct", "alibi", "sliding_window", "use_sliding_window"),
        *("num_local_experts", "num_experts", "n_routed_experts", "n_shared_experts", "num_experts_per_tok"),
        *("moe_intermediate_size", "shared_expert_intermediate_size"),
        *("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"),
    }
)
OBJECT_KEYS = frozenset({"rope_scaling", "rope_parameters", "quantization_config"})
NESTED_KEYS = frozenset({"text_config", "language_config", "llm_config", "thinker_config"})
DROPPED_KEYS = frozenset({"ignore", "targets", "exclude_modules", "ignored_layers", "modules_to_not_convert"})
DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    "F4": 4,
}
"""Bits of one element, by the safetensors header's word."""
_MAX_INT = 2**63
_MAX_STRING = 128
_MAX_LIST = 8
_MAX_DEPTH = 4


def summarise(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], hf_quant_config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """{"config": ..., "tensors": ...} of at most MAX_REPORT_BYTES as compact JSON."""
    selected = _select(config)
    if hf_quant_config is not None:
        selected["hf_quant_config"] = _object(hf_quant_config)
    return {
        "config": selected,
        "tensors": _tensors(tensors, MAX_REPORT_BYTES - _json_bytes(selected) - _ENVELOPE_BYTES),
    }


def _select(config: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if key in CONFIG_KEYS and _plain(value):
            out[key] = value
        elif key in OBJECT_KEYS and isinstance(value, Mapping):
            out[key] = _object(value)
        elif key in NESTED_KEYS and isinstance(value, Mapping) and depth < _MAX_DEPTH:
            out[key] = _select(value, depth + 1)
    return out


def _object(value: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if len(key) > _MAX_STRING or key in DROPPED_KEYS:
            continue
        if isinstance(item, Mapping) and depth < _MAX_DEPTH:
            out[key] = _object(item, depth + 1)
        elif _plain(item):
            out[key] = item
    return out


def _plain(value: Any) -> bool:
    return _scalar(value) or (isinstance(value, list) and len(value) <= _MAX_LIST and all(map(_scalar, value)))


def _scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return (isinstance(value, int) and abs(value) < _MAX_INT) or (isinstance(value, str) and len(value) <= _MAX_STRING)


def _tensors(tensors: Mapping[str, Tensor], room_bytes: int) -> dict[str, Any]:
    """Tensors that differ only in the numbers of their names are one group; the largest groups come first."""
    if unknown := sorted({tensor.dtype for tensor in tensors.values()} - DTYPE_BITS.keys()):
        raise StepError("ModelUnreadable", f"the model has tensors of type {', '.join(unknown)}, which is not known")
    counts = Counter((_pattern(name), tensor.dtype, tensor.shape) for name, tensor in tensors.items())
    sizes = {g: (DTYPE_BITS[g[1]] * math.prod(g[2]) * count + 7) // 8 for g, count in counts.items()}
    ordered = sorted(counts, key=lambda g: (-sizes[g], *g))
    groups: list[list[Any]] = []
    for name, dtype, shape in ordered:
        entry = [name, dtype, list(shape), counts[name, dtype, shape]]
        room_bytes -= _json_bytes(entry) + 1
        if room_bytes < 0:
            break
        groups.append(entry)
    rest = ordered[len(groups) :]
    return {
        "count": len(tensors),
        "bytes": sum(sizes.values()),
        "groups": groups,
        "rest": [
            sum(counts[g] for g in rest),
            sum(math.prod(g[2]) * counts[g] for g in rest),
            sum(sizes[g] for g in rest),
        ],
    }


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _json_bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")).encode())
