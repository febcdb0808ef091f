"""What the KV cache of a server came out at, beside what was planned. Pure."""

from __future__ import annotations

import re

TOLERANCE_PERCENT = 20
"""What the plan may be off by without a word: activations, buffers and the driver's share are estimates. A share of the
memory that was not applied is further off: 50 % asked for and 90 % taken are 80 % more."""
_POOL = re.compile(r"Allocated [0-9.]+ GiB for max tokens in paged KV cache \((\d+)\)")
"""KVCacheManager of TensorRT-LLM says so once it has its pool; each rank of its own."""


def pool_tokens(log: str) -> int | None:
    """Tokens that the KV cache holds, as a server's log says; None where it does not. Of several ranks the least."""
    return min((int(tokens) for tokens in _POOL.findall(log)), default=None)


def difference(planned: int | None, found: int | None) -> str | None:
    """What to say of a KV cache that is not what was planned; None within the tolerance, or where one is not known."""
    if not planned or found is None:
        return None
    percent = round((found - planned) * 100 / planned)
    if abs(percent) <= TOLERANCE_PERCENT:
        return None
    return (
        f"the KV cache of the servers holds {found:,} tokens where {planned:,} were planned ({percent:+d} %): the "
        "runtime took another share of the free memory than serving.kvCacheFreeGpuMemoryPercent, or the GPU had other "
        "memory free than was planned"
    )
