"""Prints what `why` has found."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .errors import REFUSED
from .render import Color, Output, line, structured, table
from .why import Block, Report, Way


def show_why(report: Report, output: Output) -> int:
    """Print the report and return the exit code: 0 when it is ready, 1 when it is not."""
    if output == "table":
        _print(report)
    else:
        structured(_object(report), output)
    return 0 if report.ready else REFUSED


def _print(report: Report) -> None:
    color: Color = "green" if report.ready else "yellow"
    line(f"{report.title}: {'ready' if report.ready else 'not ready'}", color)
    for name, value in report.facts:
        line(f"  {name:<8} {value}")
    for way in report.ways:
        _print_way(way, report.block)
    line()
    if report.block is None:
        line("nothing blocks it")
        return
    _print_block(report.block)


def _print_way(way: Way, first: Block | None) -> None:
    """One way; what blocks it is said here unless it is what blocks everything."""
    line()
    line(way.title, "bold")
    for name, value in way.facts:
        line(f"  {name:<8} {value}")
    if way.steps:
        table(("  STEP", "NAME", "STATE", "WHERE"), [(f"  {s.what}", s.name, s.state, s.where) for s in way.steps])
    if way.block and not (first and way.block.message == first.message):
        line(f"  waits    {way.block.reason}: {way.block.message}", _color(way.block))


def _print_block(block: Block) -> None:
    line(f"what blocks: {block.what}: {block.reason}", _color(block))
    if block.message:
        line(f"  {block.message}")
    if block.remedy:
        line(f"  change: {block.remedy}")
    elif block.goes_on:
        line("  it goes on by itself")


def _color(block: Block) -> Color:
    return "yellow" if block.goes_on else "red"


def _object(report: Report) -> dict[str, Any]:
    def block(found: Block | None) -> dict[str, Any] | None:
        if found is None:
            return None
        return {
            "what": found.what,
            "reason": found.reason,
            "message": found.message,
            "goesOnByItself": found.goes_on,
            "change": found.remedy,
        }

    return {
        "name": report.title,
        "ready": report.ready,
        "facts": dict(report.facts),
        "ways": [
            {
                "name": way.title,
                "facts": dict(way.facts),
                "steps": [asdict(step) for step in way.steps],
                "block": block(way.block),
            }
            for way in report.ways
        ],
        "block": block(report.block),
    }
