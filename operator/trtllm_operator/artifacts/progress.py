"""How far a step is, from the JSON lines it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

STEP_PERCENT = 10
"""Progress is said in steps of this size, so that a build costs few writes."""
_TRANSFERS = {"downloading": "fetched", "copying": "copied", "hashing": "hashed", "verifying": "verified"}


def progress(step: str, log: str) -> str | None:
    """`12.9 of 16.1 GB fetched (80%)`, `rank 2 of 4`; None where the log says nothing of it."""
    for line in reversed(log.splitlines()):
        event = _event(line)
        if event and (said := _said(step, event)):
            return said
    return None


def _event(line: str) -> Mapping[str, Any] | None:
    if not line.startswith('{"event"'):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _said(step: str, event: Mapping[str, Any]) -> str | None:
    kind = event.get("event")
    try:
        if kind in _TRANSFERS and event.get("totalBytes"):
            return _transfer(_TRANSFERS[kind], int(event["bytes"]), int(event["totalBytes"]))
        if kind == "rank":
            return f"rank {int(event['rank'])} of {int(event['ranks'])}"
        if kind == "working":
            return str(event["what"])[:100]
    except (KeyError, TypeError, ValueError):
        return None
    return None


def _transfer(done_word: str, done: int, total: int) -> str:
    percent = min(100, done * 100 // total) // STEP_PERCENT * STEP_PERCENT
    unit, name = (10**9, "GB") if total >= 10**9 else (10**6, "MB")
    return f"{total * percent / 100 / unit:.1f} of {total / unit:.1f} {name} {done_word} ({percent}%)"
