"""Where requests may go: servers with the limits of the engine that each runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of an engine, in tokens but for the first."""

    max_batch_size: int
    max_input_len: int
    max_seq_len: int


@dataclass(frozen=True)
class Backend:
    """One server."""

    address: str
    """host:port of its gRPC endpoint."""
    target: str
    revision: str
    model: str
    """Model artifact whose tokenizer it was built with."""
    limits: Limits
    weight: int = 1
    """Share among servers of the same limits."""


@dataclass(frozen=True)
class Routes:
    """What may be sent where, at one moment."""

    backends: tuple[Backend, ...] = ()
    reason: str = "nothing has been served yet"
    """Why there is no server, in the LLMEngine's own words."""

    @property
    def capacity(self) -> int:
        """Requests that all servers together run at once."""
        return sum(backend.limits.max_batch_size for backend in self.backends)

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence that any server takes."""
        return max((backend.limits.max_seq_len for backend in self.backends), default=None)


@dataclass(frozen=True)
class Load:
    """What one server has in flight."""

    requests: int = 0
    tokens: int = 0
    """Prompt tokens and those that may still come."""


IDLE = Load()


def fitting(limits: Iterable[Limits], prompt_tokens: int, output_tokens: int | None) -> Limits | None:
    """The limits under which a request gets the most of what it asks for; the smallest of those that give it all.

    None where the prompt fits nowhere. `output_tokens` None asks for as many as there is room for, which any engine
    that takes the prompt has some of: the largest is best then.
    """
    able = [one for one in limits if prompt_tokens <= one.max_input_len and prompt_tokens < one.max_seq_len]
    if not able:
        return None
    wanted = output_tokens if output_tokens is not None else 1
    whole = [one for one in able if prompt_tokens + wanted <= one.max_seq_len]
    return min(whole, key=_size) if whole else max(able, key=_size)


def choose(
    routes: Routes,
    loads: Mapping[str, Load],
    *,
    prompt_tokens: int,
    output_tokens: int,
    avoid: Collection[str] = (),
) -> Backend | None:
    """The server for a request: the smallest engine that fits, and of its servers the least loaded for its weight.

    A server that is full gives way to one of a larger engine that is not. `avoid` holds addresses that failed; they
    are taken only where nothing else is left. None where no server fits.
    """
    able = [
        b
        for b in routes.backends
        if prompt_tokens <= b.limits.max_input_len and prompt_tokens + output_tokens <= b.limits.max_seq_len
    ]

    def rank(backend: Backend) -> tuple[bool, bool, tuple[int, int], float, str]:
        load = loads.get(backend.address, IDLE)
        full = load.requests >= backend.limits.max_batch_size
        share = load.tokens / max(1, backend.weight)
        return (backend.address in avoid, full, _size(backend.limits), share, backend.address)

    return min(able, key=rank, default=None)


def _size(limits: Limits) -> tuple[int, int]:
    return (limits.max_seq_len, limits.max_input_len)
