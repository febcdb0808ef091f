"""Waiting for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(condition: Callable[[], Awaitable[T]], what: str, *, seconds: float = 60) -> T:
    """What `condition` returns once that is true; an AssertionError that names `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        await asyncio.sleep(0.05)
    return value
