"""Memory and disk of an engine, at run time and while it is built. Sources of the constants: docs/arithmetic.md."""

from __future__ import annotations

from dataclasses import dataclass

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from .commands import tokens_per_block
from .config import DTYPE_BYTES
from .model import ModelFacts
from .precision import ResolvedPrecision
from .target import TargetGpu
from .terms import MIB, Term, bytes_text, ceil_div, round_up

CUDA_CONTEXT_BYTES = 1340 * MIB
"""Device memory that is neither weights, activations nor buffers nor free: of the 81,559 MiB that the label reports,
72,172 MiB are left before the KV cache and 8,053 MiB accounted for in the published log (docs/reference/memory.md)."""
PEER_BUFFER_BYTES = 512 * MIB
"""NCCL and custom all-reduce buffers of a rank that has peers."""
BUILD_WORKSPACE_BYTES = 512 * MIB
HOST_FLOOR_BYTES = 7_000_000_000
HOST_BASE_BYTES = 2_900_000_000
CONVERT_BASE_BYTES = 4_000_000_000
SHM_BYTES = 1024 * MIB
"""Of /dev/shm with several ranks: NCCL fails with less (troubleshooting.md)."""


@dataclass(frozen=True)
class Memory:
    """Every memory and disk number of one target; None where the GPU's memory is not known."""

    weights: Term
    activations: Term
    buffers: Term
    reserved: Term
    kv_bytes_per_token: Term
    tokens_per_sequence: Term
    total: Term | None
    free: Term | None
    kv_pool: Term | None
    kv_tokens: Term | None
    full_sequences: Term | None
    build_gpu: Term
    build_host: Term
    convert_host: Term
    shm: Term
    model_disk: Term
    checkpoint_disk: Term
    engine_disk: Term

    def terms(self) -> tuple[Term, ...]:
        return tuple(t for t in vars(self).values() if isinstance(t, Term))


def memory(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, precision: ResolvedPrecision, gpu: TargetGpu
) -> Memory:
    """All terms for one GPU of one target."""
    weights = weights_per_gpu(spec, facts, precision)
    activations = activation_bytes(spec, facts, precision)
    buffers = buffer_bytes(spec, facts)
    reserved = reserved_bytes(spec)
    per_token = kv_bytes_per_token(spec, facts, precision)
    block = tokens_per_block(release)
    sequence = _tokens_per_sequence(spec, block)
    total = free = pool = tokens = sequences = None
    if gpu.memory_mib is not None:
        total = Term("gpu_memory_bytes", gpu.memory_mib * MIB, "B", f"{gpu.memory_mib} MiB of {gpu.product}")
        taken = (weights, activations, buffers, reserved)
        left = total.value - sum(t.value for t in taken)
        free = Term(
            "free_bytes",
            left,
            "B",
            f"{total} - " + " - ".join(f"{t} {t.name.split('_')[0]}" for t in taken),
            estimate=True,
        )
        percent = spec.serving.kv_cache_free_gpu_memory_percent
        pool = Term(
            "kv_cache_pool_bytes",
            max(left, 0) * percent // 100,
            "B",
            f"{percent}% of the {bytes_text(max(left, 0))} free once the engine is loaded",
            estimate=True,
        )
        held = tokens_in_pool(pool.value, per_token.value, block)
        tokens = Term(
            "kv_cache_tokens",
            held,
            "tokens",
            f"{pool.value:,} B / ({per_token.value:,} B a token x {block} tokens a block) = {held // block:,} blocks",
            estimate=True,
        )
        full = tokens.value // sequence.value
        sequences = Term(
            "full_length_sequences",
            full,
            "sequences",
            f"{tokens.value:,} tokens / {sequence.value:,} tokens of one full-length sequence",
            estimate=True,
        )
    engine = weights.value * spec.parallelism.tensor * spec.parallelism.pipeline
    world = spec.parallelism.tensor * spec.parallelism.pipeline
    return Memory(
        weights=weights,
        activations=activations,
        buffers=buffers,
        reserved=reserved,
        kv_bytes_per_token=per_token,
        tokens_per_sequence=sequence,
        total=total,
        free=free,
        kv_pool=pool,
        kv_tokens=tokens,
        full_sequences=sequences,
        build_gpu=_build_gpu(weights, activations),
        build_host=_build_host(weights, spec, facts, precision),
        convert_host=_convert_host(facts),
        shm=Term("shm_bytes", SHM_BYTES if world > 1 else 64 * MIB, "B", "1 GiB with several ranks, else 64 MiB"),
        model_disk=Term("model_disk_bytes", facts.weight_bytes, "B", "the source's tensors as they are"),
        checkpoint_disk=Term("checkpoint_disk_bytes", engine, "B", f"{world} x {weights}, one file a rank"),
        engine_disk=Term("engine_disk_bytes", engine, "B", f"{world} x {weights}, one file a rank"),
    )


def layers_per_stage(facts: ModelFacts, pipeline: int) -> int:
    """Layers of the largest pipeline stage."""
    return ceil_div(facts.num_layers, pipeline)


def kv_heads_per_rank(facts: ModelFacts, tensor: int) -> int:
    """KV heads of one rank: each is copied when there are more ranks than KV heads."""
    return max(ceil_div(facts.num_key_value_heads, tensor), 1)


def kv_bytes_per_token(spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision) -> Term:
    """KV cache of one token on one GPU: 2 x layers x KV heads x head size x bytes (cpp kvCacheManager.h)."""
    layers = layers_per_stage(facts, spec.parallelism.pipeline)
    bits = precision.kv_cache_bits
    if facts.kv_lora_rank is not None:
        width = facts.kv_lora_rank + (facts.qk_rope_head_dim or 0)
        formula = f"{layers} layers x latent width {width} x {bits // 8} B, whole on every rank"
        return Term("kv_cache_bytes_per_token", layers * width * bits // 8, "B", formula)
    heads = kv_heads_per_rank(facts, spec.parallelism.tensor)
    copies = (
        f" (each of {facts.num_key_value_heads} copied)" if spec.parallelism.tensor > facts.num_key_value_heads else ""
    )
    return Term(
        "kv_cache_bytes_per_token",
        2 * layers * heads * facts.head_size * bits // 8,
        "B",
        f"2 (K and V) x {layers} layers x {heads} KV heads{copies} x {facts.head_size} x {bits // 8} B",
    )


def tokens_in_pool(pool_bytes: int, bytes_per_token: int, tokens_per_block: int) -> int:
    """Tokens that a KV cache holds, in whole blocks."""
    return pool_bytes // (bytes_per_token * tokens_per_block) * tokens_per_block


def _tokens_per_sequence(spec: LLMEngineSpec, block: int) -> Term:
    budgets = spec.budgets
    tokens = round_up(budgets.max_seq_len, block) * budgets.max_beam_width
    beams = f" x {budgets.max_beam_width} beams" if budgets.max_beam_width > 1 else ""
    return Term(
        "tokens_per_full_sequence",
        tokens,
        "tokens",
        f"maxSeqLen {budgets.max_seq_len:,} in blocks of {block}{beams}",
    )


def weights_per_gpu(spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision) -> Term:
    """Weights of the fullest rank.

    Layers: matrices / TP at the format's bits, K and V copied when TP exceeds the KV heads, norms whole; divided by
    stage. Embedding table whole on every rank of the first stage (the converter's default), output layer / TP on the
    last. One table serves as both only when the model ties them, one rank holds both and nothing is quantised.
    """
    tensor, pipeline = spec.parallelism.tensor, spec.parallelism.pipeline
    layers = layers_per_stage(facts, pipeline)
    width = DTYPE_BYTES[precision.dtype]
    kv_share = kv_heads_per_rank(facts, tensor) / facts.num_key_value_heads
    matrices = (
        (
            ceil_div(facts.sharded_parameter_count + facts.expert_parameter_count, tensor)
            + round(facts.kv_parameter_count * kv_share)
        )
        * layers
        // facts.num_layers
    )
    matrix_bytes = _matrix_bytes(matrices, facts, precision)
    replicated = facts.replicated_parameter_count * layers // facts.num_layers * width
    padded_vocab = round_up(facts.vocab_size, tensor)
    table = max(facts.embedding_parameter_count, facts.vocab_size * facts.hidden_size) * width
    head = padded_vocab // tensor * facts.hidden_size * width
    quantised = precision.format is not None and precision.format.weight_bits is not None
    shared = facts.tie_word_embeddings and tensor == 1 and pipeline == 1 and not quantised
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
        f"{' and scales' if quantised else ''} = {bytes_text(matrix_bytes)}; norms {bytes_text(replicated)}; "
        f"{ends_text}",
    )


def _matrix_bytes(elements: int, facts: ModelFacts, precision: ResolvedPrecision) -> int:
    """Bytes of the quantised matrices with their scales."""
    format_ = precision.format
    if format_ is None or format_.weight_bits is None:
        return elements * DTYPE_BYTES[precision.dtype]
    group = facts.quantization_group_size if precision.source else format_.group_size
    packed = ceil_div(elements * format_.weight_bits, 8)
    scales = ceil_div(elements, group) * format_.scale_bytes_per_group if group and group > 0 else 0
    # A row of a matrix is at least as long as the model is wide.
    return packed + scales + ceil_div(elements, facts.hidden_size) * format_.scale_bytes_per_output_channel


def activation_bytes(spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision) -> Term:
    """Execution context of an engine, fixed when it is built.

    Each token of a step keeps a few rows of the model's width and of the MLP's at once; 4 and 3 reproduce the
    928.77 MiB logged for an 8B model at 8,192 tokens. TP shrinks the MLP's part.
    """
    tokens, width = spec.budgets.max_num_tokens, DTYPE_BYTES[precision.dtype]
    mlp = ceil_div(facts.intermediate_size, spec.parallelism.tensor)
    value = tokens * (4 * facts.hidden_size + 3 * mlp) * width
    formula = f"maxNumTokens {tokens:,} x (4 x {facts.hidden_size:,} + 3 x {mlp:,}) x {width} B"
    return Term("activation_bytes", value, "B", formula, estimate=True)


def buffer_bytes(spec: LLMEngineSpec, facts: ModelFacts) -> Term:
    """Runtime and decoder buffers: logits and token ids of every sequence in flight."""
    slots = spec.budgets.max_batch_size * spec.budgets.max_beam_width
    value = slots * (2 * 4 * facts.vocab_size + 3 * 4 * spec.budgets.max_seq_len)
    formula = (
        f"maxBatchSize {spec.budgets.max_batch_size:,} x beams {spec.budgets.max_beam_width} x "
        f"(2 x 4 B x vocabulary {facts.vocab_size:,} + 3 x 4 B x maxSeqLen {spec.budgets.max_seq_len:,})"
    )
    return Term("runtime_buffer_bytes", value, "B", formula, estimate=True)


def reserved_bytes(spec: LLMEngineSpec) -> Term:
    """CUDA context and driver, and the communication buffers of ranks that have peers."""
    world = spec.parallelism.tensor * spec.parallelism.pipeline
    value = CUDA_CONTEXT_BYTES + (PEER_BUFFER_BYTES if world > 1 else 0)
    formula = f"driver and CUDA context {bytes_text(CUDA_CONTEXT_BYTES)}"
    if world > 1:
        formula += f" + peer buffers {bytes_text(PEER_BUFFER_BYTES)}"
    return Term("reserved_bytes", value, "B", formula, estimate=True)


def _build_gpu(weights: Term, activations: Term) -> Term:
    value = weights.value + activations.value + BUILD_WORKSPACE_BYTES
    formula = f"{weights} weights + {activations} activations + {bytes_text(BUILD_WORKSPACE_BYTES)} workspace"
    return Term("build_gpu_bytes", value, "B", formula, estimate=True)


def _build_host(weights: Term, spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision) -> Term:
    """Host memory of trtllm-build, which builds one rank at a time; fitted to published peaks (docs/arithmetic.md)."""
    width = DTYPE_BYTES[precision.dtype]
    tables = (facts.vocab_size + facts.vocab_size // spec.parallelism.tensor) * facts.hidden_size * width
    value = max(HOST_FLOOR_BYTES, 3 * weights.value + 2 * tables + HOST_BASE_BYTES)
    formula = (
        f"max(7 GB, 3 x {weights} weights of a rank + 2 x {bytes_text(tables)} tables + 2.9 GB), one rank at a time"
    )
    return Term("build_host_bytes", value, "B", formula, estimate=True)


def _convert_host(facts: ModelFacts) -> Term:
    """Host memory of a conversion with one worker: the whole source model, and the slices being written."""
    value = facts.weight_bytes * 5 // 4 + CONVERT_BASE_BYTES
    formula = f"1.25 x {bytes_text(facts.weight_bytes)} source weights + 4 GB, one worker"
    return Term("convert_host_bytes", value, "B", formula, estimate=True)
