"""One at a time: builds, and changes to the cluster, across processes and checkouts."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.cluster.paths import cache


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Waits for the lock of this name. It is released when the process ends, however that comes about."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
