"""Volumes that are full, with their numbers."""

from __future__ import annotations

import os
from pathlib import Path

from .memory import gib
from .report import StepError


def disk_full(where: Path, needed_bytes: int | None = None) -> StepError:
    """The volume that holds `where` is full, with its numbers."""
    needs = f"; {gib(needed_bytes)} more are needed" if needed_bytes is not None else ""
    return StepError(
        "DiskFull",
        f"the volume of {where} is full: {free_space(where)}{needs}. Enlarge the claim, or remove what no LLMEngine "
        "needs from it.",
    )


def free_space(where: Path) -> str:
    """`1.00 GiB of 8.00 GiB are free`, of the volume that holds `where`."""
    volume = os.statvfs(where)
    free, size = volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize
    return f"{gib(free)} of {gib(size)} are free"
