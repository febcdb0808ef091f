"""`explain`: where a number of a plan comes from."""

from __future__ import annotations

from ..planning.terms import Term, bytes_text
from .errors import CliError
from .judged import Planned
from .plan import derivation, term_object
from .render import Output, line, structured, table


def explain(planned: Planned, number: str | None, output: Output) -> int:
    """Print one number of each target with its derivation, or all of them. Raises CliError that lists what there is."""
    known = {t.name for one in planned.targets for t in one.plan.terms}
    if number is not None and number not in known:
        raise CliError(f"no number is called {number}; there are {', '.join(sorted(known))}")
    chosen = {one.name: [t for t in one.plan.terms if number in (None, t.name)] for one in planned.targets}
    if output != "table":
        structured({name: [term_object(t) for t in terms] for name, terms in chosen.items()}, output)
        return 0
    for name, terms in chosen.items():
        line(name, "bold")
        table(
            ("NUMBER", "VALUE", "", "FROM"),
            [(t.name, f"{t.value:,} {t.unit}", _short(t), derivation(t)) for t in terms],
        )
    return 0


def _short(term: Term) -> str:
    return bytes_text(term.value) if term.unit == "B" else ""
