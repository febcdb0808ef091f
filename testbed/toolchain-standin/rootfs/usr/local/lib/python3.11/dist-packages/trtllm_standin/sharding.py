"""Cutting a Llama network into the tensors of one rank, under TensorRT-LLM's names."""

from collections.abc import Callable

import numpy as np

from .dtypes import Floats, Tensor, narrow
from .hf_model import HuggingFaceWeights, LlamaShape
from .mapping import Mapping, kv_heads_of_rank, pad_vocabulary

# (layer's name in the checkpoint without `.weight`, this rank's float32 weight) -> its stored tensors.
QuantizeLinear = Callable[[str, Floats], dict[str, Tensor]]


def split_rows(weight: Floats, parts: int, part: int) -> Floats:
    """Output features (first axis): a column-parallel layer."""
    rows = weight.shape[0] // parts
    return weight[part * rows : (part + 1) * rows]


def split_columns(weight: Floats, parts: int, part: int) -> Floats:
    """Input features (second axis): a row-parallel layer, whose results are summed over ranks."""
    columns = weight.shape[1] // parts
    return weight[:, part * columns : (part + 1) * columns]


def _kv_rows(weight: Floats, shape: LlamaShape, mapping: Mapping) -> Floats:
    heads = kv_heads_of_rank(shape.num_key_value_heads, mapping.tp_size, mapping.tp_rank)
    return weight[heads.start * shape.head_size : heads.stop * shape.head_size]


def _pad_rows(weight: Floats, rows: int) -> Floats:
    return np.pad(weight, ((0, rows - weight.shape[0]), (0, 0))) if rows > weight.shape[0] else weight


def shard_llama(
    weights: HuggingFaceWeights,
    shape: LlamaShape,
    mapping: Mapping,
    *,
    dtype_format: str,
    quantize: QuantizeLinear,
    use_parallel_embedding: bool,
    embedding_sharding_dim: int,
) -> dict[str, Tensor]:
    """All tensors of `mapping.rank`. Layers are numbered from 0 within a pipeline stage.

    An `lm_head.weight` equal to the rank's `transformer.vocab_embedding.weight` is left out; the build shares it.
    """
    tp, part = mapping.tp_size, mapping.tp_rank
    tensors: dict[str, Tensor] = {}
    embedding = weights["model.embed_tokens.weight"] if mapping.is_first_stage or mapping.is_last_stage else None
    stored_embedding: Floats | None = None

    if mapping.is_first_stage and embedding is not None:
        if not use_parallel_embedding:
            stored_embedding = embedding
        elif embedding_sharding_dim == 0:
            stored_embedding = split_rows(_pad_rows(embedding, pad_vocabulary(shape.vocab_size, tp)), tp, part)
        else:
            stored_embedding = split_columns(embedding, tp, part)
        tensors["transformer.vocab_embedding.weight"] = narrow(stored_embedding, dtype_format)

    for local, layer in enumerate(mapping.layers(shape.num_hidden_layers)):
        source, target = f"model.layers.{layer}", f"transformer.layers.{local}"
        query = split_rows(weights[f"{source}.self_attn.q_proj.weight"], tp, part)
        key = _kv_rows(weights[f"{source}.self_attn.k_proj.weight"], shape, mapping)
        value = _kv_rows(weights[f"{source}.self_attn.v_proj.weight"], shape, mapping)
        tensors |= quantize(f"{target}.attention.qkv", np.concatenate([query, key, value]))
        for name, linear, split in (
            ("attention.dense", "self_attn.o_proj", split_columns),
            ("mlp.fc", "mlp.gate_proj", split_rows),
            ("mlp.gate", "mlp.up_proj", split_rows),
            ("mlp.proj", "mlp.down_proj", split_columns),
        ):
            tensors |= quantize(f"{target}.{name}", split(weights[f"{source}.{linear}.weight"], tp, part))
        for name, norm in (("input_layernorm", "input_layernorm"), ("post_layernorm", "post_attention_layernorm")):
            tensors[f"{target}.{name}.weight"] = narrow(weights[f"{source}.{norm}.weight"], dtype_format)

    if mapping.is_last_stage and embedding is not None:
        tensors["transformer.ln_f.weight"] = narrow(weights["model.norm.weight"], dtype_format)
        head = weights.get("lm_head.weight", embedding)
        head = split_rows(_pad_rows(head, pad_vocabulary(shape.vocab_size, tp)), tp, part)
        if stored_embedding is None or not np.array_equal(head, stored_embedding):
            tensors["lm_head.weight"] = narrow(head, dtype_format)
    return tensors
