"""Values that changed between release lines: written once, with the line each value holds from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

Line = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
"""A release line, such as 0.19 or 1.2: releases of one line have the same flags."""


class Entry(BaseModel):
    """Base of everything read from the catalog's files: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def order(line: str) -> tuple[int, int]:
    """Sort key of a release line: 0.9 comes before 0.12."""
    major, minor = line.split(".")
    return int(major), int(minor)


def at(history: Mapping[str, T], line: str) -> T | None:
    """The value that holds in `line`: that of the newest line not after it. None before the first."""
    known = [since for since in history if order(since) <= order(line)]
    return history[max(known, key=order)] if known else None


def covers(line: str, since: str | None, until: str | None) -> bool:
    """Whether `line` is in [since, until): until is the first line without it."""
    return (since is None or order(since) <= order(line)) and (until is None or order(line) < order(until))
