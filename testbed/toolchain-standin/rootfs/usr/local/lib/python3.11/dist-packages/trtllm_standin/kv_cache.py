"""The paged key/value cache: blocks are counted as the GPU's pool would count them, values live in host memory.

A block holds `tokens_per_block` tokens of all layers of one rank. The pool's size follows from the stand-in GPU's
memory and the engine's cache data type; the values are kept as float32, rounded to that data type.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from .dtypes import Floats, from_bfloat16, round_e4m3, to_bfloat16

CACHE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "fp8": 1}


def kv_bytes_per_token(*, layers: int, kv_heads: int, head_size: int, cache_dtype: str) -> int:
    """Bytes of one token's keys and values on one rank."""
    return 2 * layers * kv_heads * head_size * CACHE_BYTES[cache_dtype]


def pool_blocks(
    *,
    free_bytes: int,
    fraction: float,
    bytes_per_token: int,
    tokens_per_block: int,
    max_tokens: int | None,
) -> int:
    """Blocks of the pool: `fraction` of what is free once the engine is loaded, or `max_tokens` where that is less."""
    blocks = int(free_bytes * fraction) // (bytes_per_token * tokens_per_block)
    if max_tokens is not None:
        blocks = min(blocks, -(-max_tokens // tokens_per_block))
    return blocks


def round_to_cache(values: Floats, cache_dtype: str, scale: float) -> Floats:
    """What reading the cache gives after writing `values` to it."""
    if cache_dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if cache_dtype == "bfloat16":
        return from_bfloat16(to_bfloat16(values))
    if cache_dtype == "fp8":
        return round_e4m3(values / np.float32(scale)) * np.float32(scale)
    if cache_dtype == "int8":
        codes: Floats = np.clip(np.rint(values / np.float32(scale)), -128, 127)
        return codes * np.float32(scale)
    return values


class BlockPool:
    """Counts blocks. Not thread-safe: the scheduler's thread alone uses it."""

    def __init__(self, blocks: int, tokens_per_block: int) -> None:
        self.max_blocks = blocks
        self.tokens_per_block = tokens_per_block
        self.used_blocks = 0

    @property
    def free_blocks(self) -> int:
        return self.max_blocks - self.used_blocks

    def blocks_for(self, tokens: int) -> int:
        return math.ceil(tokens / self.tokens_per_block)

    def take(self, blocks: int) -> None:
        if blocks > self.free_blocks:
            raise ValueError(f"{blocks} blocks wanted, {self.free_blocks} free")
        self.used_blocks += blocks

    def give_back(self, blocks: int) -> None:
        self.used_blocks -= blocks


@dataclass
class SequenceCache:
    """Keys and values of one sequence: per layer and rank an array (kv heads, capacity, head size)."""

    keys: list[list[Floats]]
    values: list[list[Floats]]
    capacity: int
    length: int = field(default=0)

    @staticmethod
    def empty(kv_heads_by_rank: list[list[int]], head_size: int) -> "SequenceCache":
        """`kv_heads_by_rank[layer][rank]` heads; nothing is allocated before the first `reserve`."""

        def arrays() -> list[list[Floats]]:
            return [[np.empty((heads, 0, head_size), np.float32) for heads in layer] for layer in kv_heads_by_rank]

        return SequenceCache(arrays(), arrays(), 0)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` in all, at least doubling so that growth costs little per token."""
        if tokens <= self.capacity:
            return
        capacity = max(tokens, 2 * self.capacity, 64)
        for store in (self.keys, self.values):
            for layer in store:
                for rank, old in enumerate(layer):
                    new = np.empty((old.shape[0], capacity, old.shape[2]), np.float32)
                    new[:, : self.length] = old[:, : self.length]
                    layer[rank] = new
        self.capacity = capacity
