"""JSON as the API server itself would write it.

What it keeps as raw bytes (`data` of a ControllerRevision, which may never change) is encoded again by Go whenever
somebody patches the object, the garbage collector for one. Bytes that Go would write alike survive that: fields sorted,
which is for whoever makes the object to see to, and `<`, `>`, `&` and the line separators escaped.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ESCAPED = re.compile("[<>&\u2028\u2029]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def go_json(value: Any) -> bytes:
    """Compact JSON in UTF-8, the fields in the order of `value`, with Go's escapes; half a character becomes U+FFFD."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = _LONE_SURROGATE.sub("\ufffd", text)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def ascii_json(value: Any) -> bytes:
    """Compact JSON in ASCII, as earlier versions sent it."""
    return json.dumps(value, separators=(",", ":")).encode()
