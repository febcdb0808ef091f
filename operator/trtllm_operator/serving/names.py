"""Names of the Services of targets: no two pairs of LLMEngine and target in a namespace have the same."""

from __future__ import annotations

import re

from ..objects import short_hash

MAX_LENGTH = 63
"""Of a DNS label, which a Service's name is."""
_HASH_DIGITS = 8
_LIKE_A_HASH = re.compile(rf"[0-9a-f]{{{_HASH_DIGITS}}}")


def service_name(engine: str, target: str) -> str:
    """`<engine>-<target>`, and where another pair could be written like that a hash of the two behind it.

    Without a hash the last `-` is where the target begins: a target with a `-` in its name, one that looks like a hash,
    and what is too long get one. So what ends in a hash is a hashed name, and every other can be read in one way.
    """
    plain = f"{engine}-{target}"
    if "-" not in target and not _LIKE_A_HASH.fullmatch(target) and len(plain) <= MAX_LENGTH:
        return plain
    digest = short_hash([engine, target], _HASH_DIGITS)
    return f"{plain[: MAX_LENGTH - _HASH_DIGITS - 1].rstrip('-')}-{digest}"
