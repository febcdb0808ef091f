"""Sizes of a model's parts, as tensor parallelism treats them: from tensor shapes, or from the dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class TensorSum:
    """Elements by role; see the fields of ModelFacts."""

    embedding: int = 0
    lm_head: int = 0
    kv: int = 0
    sharded: int = 0
    expert: int = 0
    replicated: int = 0

    @property
    def total(self) -> int:
        return self.embedding + self.lm_head + self.kv + self.sharded + self.expert + self.replicated


_EMBEDDING = frozenset({"embed_tokens", "wte", "wpe", "word_embeddings", "embed_in", "tok_embeddings"})
"""Tables of tokens and of learned positions, which the same ranks hold."""
_LM_HEAD = frozenset({"lm_head", "output_layer", "embed_out"})
_KV = frozenset({"k_proj", "v_proj"})
_FUSED_QKV = frozenset({"qkv_proj", "query_key_value", "c_attn", "W_pack", "Wqkv"})
_CUT_BIASES = (
    _KV | _FUSED_QKV | frozenset({"q_proj", "up_proj", "gate_proj", "gate_up_proj", "fc1", "c_fc", "dense_h_to_4h"})
)
"""Matrices that tensor parallelism divides along their outputs, and their biases with them."""
_ROUTER = frozenset({"gate", "router"})
_LATENT_DOWN = frozenset({"q_a_proj", "kv_a_proj_with_mqa"})
"""Down-projections of latent attention: their outputs are what every rank needs whole."""


def from_groups(
    groups: Iterable[Sequence[Any]], rest: Sequence[int], *, heads: int, kv_heads: int, tied: bool
) -> TensorSum | None:
    """Sums of a report's tensor groups by role. None when they hold no embedding table: not a whole decoder model."""
    found = TensorSum(replicated=_natural(rest[1]))
    for name, _, shape, how_many in groups:
        elements = math.prod(_natural(size) for size in shape) * _natural(how_many)
        parts = name.split(".")
        module = parts[-2] if len(parts) > 1 else parts[-1]
        cut = len(shape) >= 2 or (parts[-1] == "bias" and module in _CUT_BIASES)
        divided = cut and "*" in parts
        if parts[-1] == "bias" and len(shape) > 2:
            continue  # The causal mask that old checkpoints of GPT-2 store: no parameter.
        if module in _EMBEDDING:
            found = replace(found, embedding=found.embedding + elements)
        elif module in _LM_HEAD and len(shape) >= 2:
            # A tied model may still store the table twice; the engine is made from one.
            found = replace(found, lm_head=found.lm_head + (0 if tied else elements))
        elif divided and "experts" in parts:
            found = replace(found, expert=found.expert + elements)
        elif divided and module in _KV:
            found = replace(found, kv=found.kv + elements)
        elif divided and module in _FUSED_QKV:
            kv = elements * 2 * kv_heads // (heads + 2 * kv_heads)
            found = replace(found, kv=found.kv + kv, sharded=found.sharded + elements - kv)
        elif divided and module not in _ROUTER | _LATENT_DOWN:
            found = replace(found, sharded=found.sharded + elements)
        else:
            found = replace(found, replicated=found.replicated + elements)
    return found if found.embedding else None


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


@dataclass(frozen=True)
class LatentAttention:
    """Dimensions of multi-head latent attention."""

    query_rank: int | None
    """None: queries are projected at once."""
    kv_rank: int
    rope: int
    nope: int
    value: int

    def elements(self, hidden: int, heads: int) -> tuple[int, int]:
        """(divided among tensor-parallel ranks, whole on each) of one layer."""
        query_width = heads * (self.nope + self.rope)
        down = hidden * (self.kv_rank + self.rope) + self.kv_rank
        up = self.kv_rank * heads * (self.nope + self.value) + heads * self.value * hidden
        if self.query_rank is None:
            return up + hidden * query_width, down
        return up + self.query_rank * query_width, down + hidden * self.query_rank + self.query_rank


def from_dimensions(
    *,
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    hidden: int,
    intermediate: int,
    vocab: int,
    tied: bool,
    gated: bool,
    experts: int,
    expert_intermediate: int,
    shared_expert_intermediate: int,
    dense_layers: int,
    latent: LatentAttention | None,
) -> TensorSum:
    """Elements of a decoder of these dimensions, without biases: exact for Llama and its kin, close for others."""
    matrices = 3 if gated else 2
    with_experts = layers - dense_layers if experts else 0
    attention, down = latent.elements(hidden, heads) if latent else (2 * hidden * heads * head_size, 0)
    mlp = with_experts * shared_expert_intermediate + (layers - with_experts) * intermediate
    return TensorSum(
        embedding=vocab * hidden,
        lm_head=0 if tied else vocab * hidden,
        kv=0 if latent else layers * 2 * hidden * kv_heads * head_size,
        sharded=layers * attention + matrices * hidden * mlp,
        expert=with_experts * experts * matrices * hidden * expert_intermediate,
        replicated=layers * (2 * hidden + down) + with_experts * experts * hidden + hidden,
    )
