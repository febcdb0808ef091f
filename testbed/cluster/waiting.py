"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.cluster.errors import ClusterError


def wait_until(
    condition: Callable[[], bool],
    limit_seconds: float,
    what: str,
    *,
    hint: Callable[[], str] = str,
    interval_seconds: float = 0.1,
) -> None:
    """Returns once `condition()` holds; after `limit_seconds` raises ClusterError naming `what`, with `hint()`."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {limit_seconds:g} s in vain for {what} {hint()}".strip())
        time.sleep(interval_seconds)
