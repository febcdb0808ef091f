"""`InspectionReport`: what the CPU inspection step says of a model, and how to make one from config.json and headers.

The format is a contract between the step (which stands alone) and the planner. It is mechanical: the step interprets
nothing. As compact JSON it is at most `MAX_REPORT_BYTES`, so that it fits a termination message with room to spare::

    {
      "config": {
        # of config.json: the keys in CONFIG_KEYS that are there and not null, each as it is, if it is a number, a
        # boolean, a string of at most 128 characters, or a list of at most 8 such; anything else is left out.
        "architectures": ["LlamaForCausalLM"], "hidden_size": 576, ...,
        # the objects in OBJECT_KEYS (rope_scaling, quantization_config, ...): copied by the rule above, at most 4 deep,
        # without the keys in DROPPED_KEYS
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
        # the objects in NESTED_KEYS (text_config, ...): by all these rules again
        "text_config": {"num_attention_heads": 28},
        # the content of hf_quant_config.json, when the model has that file, by the rule of OBJECT_KEYS
        "hf_quant_config": {"quantization": {"quant_algo": "FP8"}}
      },
      "tensors": {                       # null when the model has no safetensors files
        "count": 272,                    # tensors
        "bytes": 269030016,              # of their data
        "groups": [                      # tensors alike: [name, dtype, shape, how many], most bytes first, then by name
          # every part of the name between dots that is a decimal number is replaced by *; a group is what has the
          # same name, dtype and shape. Bytes are elements x DTYPE_BITS / 8; a dtype not in it is an error.
          ["model.layers.*.mlp.down_proj.weight", "F16", [576, 1536], 30], ...
        ],
        "rest": [0, 0, 0]                # [tensors, elements, bytes] of the groups left out to keep within the limit,
      }                                  # smallest first
    }

dtype is the safetensors header's own word (`F32`, `BF16`, `F8_E4M3`, `I32`, ...). Further keys beside `config` and
`tensors` are the step's own (resolved revision, tokenizer, files) and are ignored here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_REPORT_BYTES = 3400

CONFIG_KEYS = frozenset(
    """architectures model_type torch_dtype dtype is_encoder_decoder tie_word_embeddings
    num_hidden_layers num_layers n_layer n_layers num_attention_heads n_head n_heads num_heads
    num_key_value_heads num_kv_heads multi_query multi_query_attention multi_query_group_num new_decoder_architecture
    hidden_size n_embd d_model head_dim kv_channels head_size
    intermediate_size ffn_hidden_size n_inner ffn_dim d_ff
    vocab_size padded_vocab_size max_position_embeddings n_positions n_ctx seq_length max_seq_len
    hidden_act hidden_activation activation_function rope_theta partial_rotary_factor rotary_pct alibi
    sliding_window use_sliding_window
    num_local_experts num_experts n_routed_experts n_shared_experts num_experts_per_tok moe_intermediate_size
    first_k_dense_replace
    shared_expert_intermediate_size
    kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim""".split()  # noqa: SIM905
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

_ENVELOPE_BYTES = 160
"""Braces, keys and counts around the two variable parts."""
_MAX_INT = 2**63
_MAX_STRING = 128
_MAX_LIST = 8
_MAX_DEPTH = 4


class TensorHeader(NamedTuple):
    """One tensor of a safetensors header."""

    dtype: str
    shape: tuple[int, ...]


def _scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return (isinstance(value, int) and abs(value) < _MAX_INT) or (isinstance(value, str) and len(value) <= _MAX_STRING)


def _plain(value: Any) -> bool:
    return _scalar(value) or (isinstance(value, list) and len(value) <= _MAX_LIST and all(map(_scalar, value)))


def _object(value: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str) or len(key) > _MAX_STRING or key in DROPPED_KEYS:
            continue
        if isinstance(item, Mapping) and depth < _MAX_DEPTH:
            out[key] = _object(item, depth + 1)
        elif _plain(item):
            out[key] = item
    return out


def select_config(config: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    """The part of config.json that a report carries."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        if key in CONFIG_KEYS and _plain(value):
            out[key] = value
        elif key in OBJECT_KEYS and isinstance(value, Mapping):
            out[key] = _object(value)
        elif key in NESTED_KEYS and isinstance(value, Mapping) and depth < _MAX_DEPTH:
            out[key] = select_config(value, depth + 1)
    return out


def make_report(
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorHeader] | None,
    hf_quant_config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The report of a model whose files are at hand. `tensors` is every tensor of every safetensors header."""
    selected = select_config(config)
    if hf_quant_config is not None:
        selected["hf_quant_config"] = _object(hf_quant_config)
    return {"config": selected, "tensors": None if tensors is None else _summary(tensors, _json_bytes(selected))}


def tensor_bytes(dtype: str, elements: int) -> int:
    """Bytes of so many elements of a safetensors dtype. Raises KeyError for a dtype that is not known."""
    return (elements * DTYPE_BITS[dtype] + 7) // 8


def _json_bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")).encode())


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def _summary(tensors: Mapping[str, TensorHeader], config_bytes: int) -> dict[str, Any]:
    counts = Counter((_pattern(name), dtype, shape) for name, (dtype, shape) in tensors.items())
    sizes = {group: tensor_bytes(group[1], math.prod(group[2]) * how_many) for group, how_many in counts.items()}
    ordered = sorted(counts, key=lambda group: (-sizes[group], group[0], group[1], group[2]))
    room = MAX_REPORT_BYTES - config_bytes - _ENVELOPE_BYTES
    groups: list[list[Any]] = []
    for group in ordered:
        entry = [group[0], group[1], list(group[2]), counts[group]]
        room -= _json_bytes(entry) + 1
        if room < 0:
            break
        groups.append(entry)
    left_out = ordered[len(groups) :]
    return {
        "count": len(tensors),
        "bytes": sum(sizes.values()),
        "groups": groups,
        "rest": [
            sum(counts[g] for g in left_out),
            sum(math.prod(g[2]) * counts[g] for g in left_out),
            sum(sizes[g] for g in left_out),
        ],
    }
