"""Tables and lines: with color on a terminal, plain text everywhere else."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

Output = Literal["table", "json", "yaml"]
Color = Literal["green", "yellow", "red", "bold", "dim", ""]


def structured(value: Any, output: Output) -> None:
    """Print a value as JSON or YAML."""
    if output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; a column is as wide as its widest cell."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        drawn = Table(box=None, header_style="bold", pad_edge=False)
        for header in headers:
            drawn.add_column(header, overflow="fold")
        for row in rows:
            drawn.add_row(*row)
        Console(markup=False, highlight=False).print(drawn)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_CODES = {"green": "32", "yellow": "33", "red": "31", "bold": "1", "dim": "2"}


def line(text: str = "", color: Color = "") -> None:
    """Print one line."""
    colored = color and sys.stdout.isatty()
    print(f"\x1b[{_CODES[color]}m{text}\x1b[0m" if colored else text)
