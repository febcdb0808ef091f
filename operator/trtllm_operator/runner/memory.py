"""Host memory as the container's cgroup counts it, version 1 or 2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes no limit as the largest page-aligned number."""


@dataclass(frozen=True)
class HostMemory:
    """A reading; None is what this kernel does not tell."""

    limit_bytes: int | None = None
    peak_bytes: int | None = None
    """Highest charge so far, page cache included: at most the limit, and more than the processes need."""
    oom_kills: int | None = None
    """Processes of the container that the kernel has killed for memory."""


def read(root: Path = CGROUP_ROOT) -> HostMemory:
    """The memory of the container this process runs in."""
    if (root / "memory.max").exists() or (root / "cgroup.controllers").exists():
        limit, peak, events = root / "memory.max", root / "memory.peak", root / "memory.events"
    else:
        v1 = root / "memory"
        limit, peak, events = v1 / "memory.limit_in_bytes", v1 / "memory.max_usage_in_bytes", v1 / "memory.oom_control"
    limit_bytes = _number(limit)
    if limit_bytes is not None and limit_bytes >= _UNLIMITED_BYTES:
        limit_bytes = None
    return HostMemory(limit_bytes, _number(peak), _oom_kills(events))


def gib(n: int) -> str:
    """Bytes for a person: `1.25 GiB`, or `180 MiB` below one GiB."""
    return f"{n / 2**30:.2f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _oom_kills(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
