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
      },                                 # smallest first
      "text": {                          # of `text_report`; absent when the step did not look, or there is no tokenizer
        "endTokens": {                   # ids after which a text ends, by the file that names them, in their order
          "generation_config.json": [151645, 151643], "config.json": [151643]
        },
        "endToken": ["<|im_end|>", 151645],        # the tokenizer's own: its text, and its id where a file says it
        "code": ["tokenizer_config.json", "tokenization_x.XTokenizer"],  # file with auto_map, and the class it names
        "sentencePiece": true            # a SentencePiece tokenizer
      }                                  # keys with nothing to say are absent
    }

dtype is the safetensors header's own word (`F32`, `BF16`, `F8_E4M3`, `I32`, ...). Further keys beside `config` and
`tensors` are the step's own (resolved revision, tokenizer, files) and are ignored here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
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

END_TOKEN_FILES = ("generation_config.json", "config.json")
"""Files that name end tokens by their ids, the one that decides first."""
TEXT_FILES = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
"""What `text_report` reads beside config.json, where the model has it."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json")
"""A tokenizer is there when one of these is: the fast format, SentencePiece, or byte-level BPE."""
_SENTENCE_PIECE_FILES = frozenset({"tokenizer.model", "spiece.model"})
_LOADED_CLASSES = ("AutoTokenizer", "AutoConfig", "AutoModelForCausalLM", "AutoModel")
"""Entries of auto_map that converters, quantize.py and the Triton models load."""
_MAX_END_TOKENS = 16
_MAX_WORD = 80

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
    text: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The report of a model whose files are at hand. `tensors` is every tensor of every safetensors header, `text`
    what `text_report` gives."""
    selected = select_config(config)
    if hf_quant_config is not None:
        selected["hf_quant_config"] = _object(hf_quant_config)
    beside = {} if text is None else {"text": dict(text)}
    taken = _json_bytes(selected) + (_json_bytes(beside) if beside else 0)
    return {"config": selected, "tensors": None if tensors is None else _summary(tensors, taken), **beside}


def text_report(
    config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]], names: Collection[str]
) -> dict[str, Any] | None:
    """What the small files say of how text is made and where it ends; None for a model without a tokenizer.

    `files` are those of `TEXT_FILES` that are there, by name; `names` all the model's files.
    """
    if not any(name in names for name in TOKENIZER_FILES):
        return None
    out: dict[str, Any] = {}
    by_file = {name: _token_ids(config if name == "config.json" else files.get(name, {})) for name in END_TOKEN_FILES}
    if named := {name: ids for name, ids in by_file.items() if ids}:
        out["endTokens"] = named
    tokenizer = files.get("tokenizer_config.json", {})
    token = _token_text(tokenizer) or _token_text(files.get("special_tokens_map.json", {}))
    if token:
        out["endToken"] = [token, _added_token_id(tokenizer, token)]
    for name, content in (("tokenizer_config.json", tokenizer), ("config.json", config)):
        if (found := _code_class(content.get("auto_map"))) and "code" not in out:
            out["code"] = [name, found]
    if not _SENTENCE_PIECE_FILES.isdisjoint(names):
        out["sentencePiece"] = True
    return out


def _token_ids(content: Mapping[str, Any]) -> list[int]:
    """`eos_token_id` as a list; what is no token's id (null, -1) is left out."""
    for holder in (content, *(inner for key in sorted(NESTED_KEYS) if isinstance(inner := content.get(key), Mapping))):
        value = holder.get("eos_token_id")
        listed = value if isinstance(value, list) else [value]
        ids = [i for i in listed if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < _MAX_INT]
        if ids:
            return list(dict.fromkeys(ids))[:_MAX_END_TOKENS]
    return []


def _token_text(content: Mapping[str, Any]) -> str | None:
    value = content.get("eos_token")
    text = value.get("content") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) and 0 < len(text) <= _MAX_WORD and text.isprintable() else None


def _added_token_id(tokenizer: Mapping[str, Any], token: str) -> int | None:
    """The id of a token by `added_tokens_decoder`, which newer files have."""
    added = tokenizer.get("added_tokens_decoder")
    for key, entry in added.items() if isinstance(added, Mapping) else ():
        if str(key).isdecimal() and len(str(key)) < 12 and isinstance(entry, Mapping) and entry.get("content") == token:
            return int(key)
    return None


def _code_class(auto_map: Any) -> str | None:
    """The first class of an auto_map that is Python code of the repository; older files have a bare list."""
    named = [auto_map.get(key) for key in _LOADED_CLASSES] if isinstance(auto_map, Mapping) else [auto_map]
    for value in named:
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and word:
                return word if len(word) <= _MAX_WORD and word.isprintable() else f"{ascii(word)[:_MAX_WORD]}..."
    return None


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
