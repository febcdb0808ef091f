"""What several measurements need: the machine in a line, and what the operator has written."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from pathlib import Path

from demo.stack import Stack, operator_metrics

WRITES = ("apply", "create", "update", "delete", "patch")


def operator_writes(stack: Stack) -> Counter[str]:
    """Writes so far by resource, as the operator counts its own calls."""
    counts: Counter[str] = Counter()
    for name, value in operator_metrics(stack).items():
        if name.startswith("llmengine_operator_api_requests_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', name))
            if labels["verb"] in WRITES and not labels["resource"].startswith("leases."):
                counts[labels["resource"].partition(".")[0]] += int(value)
    return counts


def told(counts: Counter[str]) -> str:
    """The sum, and each resource's part."""
    parts = ", ".join(f"{resource} {count}" for resource, count in sorted(counts.items()) if count)
    return f"{counts.total()}{f' ({parts})' if parts else ''}"


def machine() -> str:
    """Processor, memory, system and load of this machine."""
    cpu = next(
        (line.partition(":")[2].strip() for line in lines_of("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = next((int(line.split()[1]) for line in lines_of("/proc/meminfo") if line.startswith("MemTotal")), 0)
    load = os.getloadavg()[0]
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores {cpu}, {memory / 2**20:.0f} GiB, {system}; load {load:.1f} at the end"


def lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
