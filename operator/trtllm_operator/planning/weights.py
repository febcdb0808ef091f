"""Weights of the fullest rank, from the model's dimensions, its mapping and its precision."""

from __future__ import annotations

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from .model import ModelFacts
from .model_config import DTYPE_BYTES
from .precision import ResolvedPrecision
from .terms import Term, bytes_text, ceil_div, round_up


def layers_per_stage(facts: ModelFacts, pipeline: int) -> int:
    """Layers of the largest pipeline stage."""
    return ceil_div(facts.num_layers, pipeline)


def kv_heads_per_rank(facts: ModelFacts, tensor: int) -> int:
    """KV heads of one rank: each is copied when there are more ranks than KV heads."""
    return max(ceil_div(facts.num_key_value_heads, tensor), 1)


def weights_per_gpu(spec: LLMEngineSpec, facts: ModelFacts, release: Release, precision: ResolvedPrecision) -> Term:
    """Weights of the fullest rank.

    ModelOpt exports `use_parallel_embedding`, so that tables of what quantize.py makes are divided by TP.
    Layers: matrices / TP at the format's bits, K and V copied when TP exceeds the KV heads, norms whole; divided by
    stage. Embedding table whole on every rank of the first stage (the converters' default) or, where the family has it
    so, / TP; output layer / TP on the last. One table serves as both only when the model ties them, a rank has the same
    part of both and nothing is quantized: published engines of quantized tied models hold it twice.
    """
    tensor, pipeline = spec.parallelism.tensor, spec.parallelism.pipeline
    layers = layers_per_stage(facts, pipeline)
    width = DTYPE_BYTES[precision.dtype]
    matrices = _matrices(facts, tensor, layers)
    matrix_bytes = _matrix_bytes(matrices, facts, precision)
    replicated = facts.replicated_parameter_count * layers // facts.num_layers * width
    padded_vocab = round_up(facts.vocab_size, tensor)
    family = release.family_of(facts.architecture)
    calibrated = precision.format is not None and precision.format.tool == "quantize" and precision.source is None
    cuts = tensor if calibrated or (family is not None and family.divided_embedding) else 1
    table = ceil_div(max(facts.embedding_parameter_count, facts.vocab_size * facts.hidden_size), cuts) * width
    head = padded_vocab // tensor * facts.hidden_size * width
    quantized = precision.format is not None and precision.format.weight_bits is not None
    shared = facts.tie_word_embeddings and tensor == cuts and pipeline == 1 and not quantized
    if pipeline > 1:
        ends, ends_text = max(table, head), f"max(embedding {bytes_text(table)}, output layer {bytes_text(head)})"
    elif shared:
        ends, ends_text = table, f"embedding and output layer in one table {bytes_text(table)}"
    else:
        ends, ends_text = table + head, f"embedding {bytes_text(table)} + output layer {bytes_text(head)}"
    bits = precision.format.weight_bits if precision.format and precision.format.weight_bits else 8 * width
    return Term(
        "weights_bytes_per_gpu",
        matrix_bytes + replicated + ends,
        "B",
        f"{layers} of {facts.num_layers} layers, / TP {tensor}: {matrices:,} x {bits} bit"
        f"{' and scales' if quantized else ''} = {bytes_text(matrix_bytes)}; norms {bytes_text(replicated)}; "
        f"{ends_text}",
    )


def _matrices(facts: ModelFacts, tensor: int, layers: int) -> int:
    """Elements of the matrices of so many layers on one rank; a stage may hold none of the layers without experts."""
    dense = ceil_div(facts.sharded_parameter_count, tensor)
    kv = round(facts.kv_parameter_count * kv_heads_per_rank(facts, tensor) / facts.num_key_value_heads)
    with_experts = max(facts.num_layers - facts.num_dense_layers, 1)
    experts = ceil_div(facts.expert_parameter_count, tensor) * min(layers, with_experts) // with_experts
    return (dense + kv) * layers // facts.num_layers + experts


def _matrix_bytes(elements: int, facts: ModelFacts, precision: ResolvedPrecision) -> int:
    """Bytes of the quantized matrices with their scales."""
    format_ = precision.format
    if format_ is None or format_.weight_bits is None:
        return elements * DTYPE_BYTES[precision.dtype]
    group = facts.quantization_group_size if precision.source else format_.group_size
    packed = ceil_div(elements * format_.weight_bits, 8)
    scales = ceil_div(elements, group) * format_.scale_bytes_per_group if group and group > 0 else 0
    # A row of a matrix is at least as long as the model is wide.
    return packed + scales + ceil_div(elements, facts.hidden_size) * format_.scale_bytes_per_output_channel
