"""Where the stand-in's files are, and the GPUs its device plugin hands out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOTFS = Path(__file__).parents[3] / "toolchain-standin" / "rootfs"
PACKAGES = ROOTFS / "usr/local/lib/python3.11/dist-packages"
sys.path.insert(0, str(PACKAGES))


def gpu(name: str = "NVIDIA H100 80GB HBM3", compute_cap: str = "9.0", index: int = 0) -> dict[str, Any]:
    """An entry of the list that the stand-in device plugin hands to a container."""
    return {
        "index": index,
        "uuid": f"GPU-00000000-0000-0000-0000-00000000000{index}",
        "name": name,
        "compute_cap": compute_cap,
        "memory_total_mib": 81559,
        "memory_reserved_mib": 551,
        "driver_version": "580.159.04",
    }
