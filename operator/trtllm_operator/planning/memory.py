"""Memory of a serving GPU, and the requests that fit at once. Sources of the constants: docs/arithmetic.md."""

from __future__ import annotations

from dataclasses import dataclass

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from .commands import tokens_per_block
from .model import ModelFacts
from .model_config import DTYPE_BYTES
from .precision import ResolvedPrecision
from .target_gpu import TargetGpu
from .terms import MIB, Term, bytes_text, ceil_div, round_up
from .weights import kv_heads_per_rank, layers_per_stage, weights_per_gpu

CUDA_CONTEXT_BYTES = 1340 * MIB
"""Device memory that is neither weights, activations nor buffers nor free: of the 81,559 MiB that the label reports,
72,172 MiB are left before the KV cache and 8,053 MiB accounted for in the published log (docs/reference/memory.md)."""
PEER_BUFFER_BYTES = 512 * MIB
"""NCCL and custom all-reduce buffers of a rank that has peers."""


@dataclass(frozen=True)
class Memory:
    """Every memory number of one target's servers; None where the GPU's memory is not known."""

    weights: Term
    activations: Term
    buffers: Term
    reserved: Term
    total: Term | None
    free: Term | None
    kv_bytes_per_token: Term
    kv_pool: Term | None
    kv_tokens: Term | None
    tokens_per_sequence: Term
    full_sequences: Term | None
    requests_at_limit: Term | None
    requests_at_median: Term | None

    def terms(self) -> tuple[Term, ...]:
        return tuple(t for t in vars(self).values() if isinstance(t, Term))


def memory(
    spec: LLMEngineSpec,
    facts: ModelFacts,
    release: Release,
    precision: ResolvedPrecision,
    gpu: TargetGpu,
    median_tokens: int | None = None,
) -> Memory:
    """All terms for one GPU of one target. `median_tokens`: prompt and answer of a typical request, where known."""
    weights = weights_per_gpu(spec, facts, release, precision)
    activations = activation_bytes(spec, facts, precision)
    buffers = buffer_bytes(spec, facts)
    reserved = reserved_bytes(spec)
    per_token = kv_bytes_per_token(spec, facts, precision)
    block = tokens_per_block(release)
    sequence = _tokens_per_sequence(spec, block)
    total = free = pool = tokens = sequences = at_limit = at_median = None
    if gpu.memory_mib is not None:
        total = Term("gpu_memory_bytes", gpu.memory_mib * MIB, "B", f"{gpu.memory_mib} MiB of {gpu.product}")
        free = _free(total, (weights, activations, buffers, reserved))
        pool = _pool(free, spec.serving.kv_cache_free_gpu_memory_percent)
        tokens = _tokens(pool, per_token, block)
        sequences = Term(
            "full_length_sequences",
            tokens.value // sequence.value,
            "sequences",
            f"{tokens.value:,} tokens / {sequence.value:,} tokens of one full-length sequence",
            estimate=True,
        )
        at_limit = _requests("limit", spec, sequences.value, f"{sequences.value:,} full-length sequences in the cache")
        at_median = _at_median(spec, tokens, block, median_tokens)
    return Memory(
        weights=weights,
        activations=activations,
        buffers=buffers,
        reserved=reserved,
        total=total,
        free=free,
        kv_bytes_per_token=per_token,
        kv_pool=pool,
        kv_tokens=tokens,
        tokens_per_sequence=sequence,
        full_sequences=sequences,
        requests_at_limit=at_limit,
        requests_at_median=at_median,
    )


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


def _free(total: Term, taken: tuple[Term, Term, Term, Term]) -> Term:
    parts = zip(taken, ("weights", "activations", "buffers", "reserved"), strict=True)
    formula = f"{total} - " + " - ".join(f"{term} {name}" for term, name in parts)
    return Term("free_bytes", total.value - sum(t.value for t in taken), "B", formula, estimate=True)


def _pool(free: Term, percent: int) -> Term:
    left = max(free.value, 0)
    formula = f"{percent}% of the {bytes_text(left)} free once the engine is loaded"
    return Term("kv_cache_pool_bytes", left * percent // 100, "B", formula, estimate=True)


def _tokens(pool: Term, per_token: Term, block: int) -> Term:
    held = tokens_in_pool(pool.value, per_token.value, block)
    formula = f"{pool.value:,} B / ({per_token.value:,} B a token x {block} tokens a block) = {held // block:,} blocks"
    return Term("kv_cache_tokens", held, "tokens", formula, estimate=True)


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


def _requests(at: str, spec: LLMEngineSpec, held: int, why: str) -> Term:
    """Requests in flight: as many as the cache holds, and at most maxBatchSize."""
    batch = spec.budgets.max_batch_size
    formula = f"min(maxBatchSize {batch:,}, {why})"
    return Term(f"concurrent_requests_at_{at}", min(batch, held), "requests", formula, estimate=True)


def _at_median(spec: LLMEngineSpec, tokens: Term, block: int, median_tokens: int | None) -> Term:
    longest = spec.budgets.max_seq_len
    median = max(1, longest // 2) if median_tokens is None else min(median_tokens, longest)
    taken = round_up(median, block) * spec.budgets.max_beam_width
    said = "half of maxSeqLen, for want of a measured median" if median_tokens is None else "the median given"
    held = tokens.value // taken
    return _requests("p50", spec, held, f"{tokens.value:,} tokens / {taken:,} ({said}) = {held:,}")
