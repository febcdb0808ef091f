"""One check of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Check:
    """What was looked at and what came of it. `message` holds the numbers, `fix` what would pass."""

    id: str
    ok: bool
    severity: Severity
    """Of a check that is not ok: an error refuses the spec, a warning does not."""
    message: str
    fix: str = ""
    valid: tuple[int, ...] = ()
    """Values that would pass, where they can be listed."""

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message


def passed(check_id: str, message: str) -> Check:
    return Check(check_id, True, "error", message)


def failed(check_id: str, message: str, fix: str = "", valid: tuple[int, ...] = ()) -> Check:
    return Check(check_id, False, "error", message, fix, valid)


def warned(check_id: str, message: str, fix: str = "") -> Check:
    return Check(check_id, False, "warning", message, fix)
