"""Volumes that are full, with their numbers."""

from __future__ import annotations

import os
from pathlib import Path

from .memory import gib
from .report import StepError

ENLARGE_CLAIM = "Enlarge the claim, or remove what no LLMEngine needs from it."
ENLARGE_NODE = "The node's ephemeral storage holds it: use nodes with larger or emptier disks."


def disk_full(where: Path, needed_bytes: int | None = None, advice: str = ENLARGE_CLAIM) -> StepError:
    """The volume that holds `where` is full, with its numbers."""
    needs = f"; {gib(needed_bytes)} more are needed" if needed_bytes is not None else ""
    return StepError("DiskFull", f"the volume of {where} is full: {free_space(where)}{needs}. {advice}")


def free_space(where: Path) -> str:
    """`1.00 GiB of 8.00 GiB are free`, of the volume that holds `where`."""
    volume = os.statvfs(where)
    free, size = volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize
    return f"{gib(free)} of {gib(size)} are free"
