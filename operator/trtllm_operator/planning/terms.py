"""Numbers with their unit and their derivation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["B", "tokens", "sequences", "requests"]

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Term:
    """One number of a plan."""

    name: str
    value: int
    unit: Unit
    formula: str
    """How it comes about, with the numbers put in."""
    estimate: bool = False
    """Fitted to published logs rather than exact."""

    def __str__(self) -> str:
        return f"{self.value:,} {self.unit}" if self.unit != "B" else bytes_text(self.value)


def bytes_text(value: int) -> str:
    """Bytes for people, in binary units: `37.37 GiB`, `448 MiB`, `512 B`."""
    for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= size:
            return f"{value / size:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{value} B"


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple
