"""Credentials as the steps read them, and what keeps them out of every report.

A Secret is named by whoever writes the LLMEngine, so its content may be anything: another's key, a file of many lines.
What is not one printable line is refused unread, as far as messages go, before any library sees it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

from ..runner.report import StepError

MAX_BYTES = 16 << 10
"""Session tokens of cloud providers have up to some thousand characters."""
HIDDEN = "***"
_loaded: set[str] = set()


def read_credential(path: Path, reason: str, source: str) -> str | None:
    """The credential in a file; None where it is empty. `source` says for people where it comes from.

    Raises StepError `reason` where it is not one line of printable ASCII; the message has nothing of it.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StepError(reason, f"{source} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise StepError(reason, f"{source} has {len(raw):,} bytes; a credential has at most {MAX_BYTES:,}")
    text = raw.decode("ascii", errors="replace").strip()
    if not text:
        return None
    if not all("!" <= character <= "~" for character in text):
        raise StepError(reason, f"{source} is not a credential: it must be one line of printable ASCII without spaces")
    _loaded.add(text)
    return text


def redact(text: str) -> str:
    """The text without any credential that was read, plain or as libraries write them."""
    for secret in sorted(_loaded, key=len, reverse=True):
        for form in _forms(secret):
            text = text.replace(form, HIDDEN)
    return text


def redacted(error: StepError) -> StepError:
    """The same failure with a message that may be shown."""
    error.message = redact(error.message)
    error.args = (error.message,)
    return error


def _forms(secret: str) -> tuple[str, ...]:
    encoded = base64.b64encode(secret.encode()).decode()
    return (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""), encoded, encoded.rstrip("="))
