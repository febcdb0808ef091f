"""Names of the objects that clients and people meet: no two owners in a namespace have the same.

`--` parts an LLMEngine from its target. A name that has `--` in it already gets a hash behind it, and so has more than
one `--`. What has none is the front's, what has one can be read in one way, and what has more ends in a hash of
everything that it was made from.
"""

from __future__ import annotations

from ..objects import short_hash

SEPARATOR = "--"
MAX_LENGTH = 63
"""Of a DNS label, which a Service's name is."""
_HASH_DIGITS = 8


def service_name(engine: str, target: str) -> str:
    """The Service of a target, and what else it has one of: `<engine>--<target>`."""
    name = f"{engine}{SEPARATOR}{target}"
    return name if name.count(SEPARATOR) == 1 and len(name) <= MAX_LENGTH else _hashed(name, [engine, target])


def front_service_name(engine: str) -> str:
    """The Service of an LLMEngine's front: the LLMEngine's own name."""
    return engine if SEPARATOR not in engine else _hashed(engine, [engine])


def front_name(engine: str) -> str:
    """The other objects of an LLMEngine's front: `<engine>-front`."""
    name = f"{engine}-front"
    return name if SEPARATOR not in engine else _hashed(name, ["front", "of", engine])


def _hashed(name: str, parts: list[str]) -> str:
    room = MAX_LENGTH - 2 * len(SEPARATOR) - _HASH_DIGITS
    kept = name[:room].strip("-")
    return f"{kept}{SEPARATOR * (1 if SEPARATOR in kept else 2)}{short_hash(parts, _HASH_DIGITS)}"
