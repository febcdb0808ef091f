"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.errors import ClusterError


def wait_until(
    condition: Callable[[], bool], limit_seconds: float, what: str, *, hint: str = "", interval_seconds: float = 0.1
) -> None:
    """Returns once `condition()` holds; raises ClusterError naming `what` after `limit_seconds`."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {limit_seconds:g} s in vain for {what}{'; ' + hint if hint else ''}")
        time.sleep(interval_seconds)
