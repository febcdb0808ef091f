"""`plan`: the operator's verdict on a manifest, before anything is built."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..planning.check import Check
from ..planning.nearest import suggestions_text
from ..planning.terms import Term, bytes_text
from .built import Built, unknown_names, what_is_built
from .errors import REFUSED
from .judged import Judged, Planned
from .render import Color, Output, line, structured, table


def show_plan(planned: Planned, output: Output) -> int:
    """Print the plan and return the exit code."""
    if output == "table":
        _print_plan(planned)
    else:
        structured(_plan_object(planned), output)
    return 0 if planned.ok else REFUSED


def _print_plan(planned: Planned) -> None:
    facts = planned.model.facts
    line(
        f"{planned.name}: {facts.architecture}, {facts.parameter_count / 1e9:.3g} billion parameters, {facts.dtype}",
        "bold",
    )
    line(f"release {planned.release.name}, image {planned.image or 'unknown'}")
    for one in planned.targets:
        line()
        _print_target(one)
    line()
    built = what_is_built(planned) if planned.ok else ()
    if not planned.ok:
        line("nothing is built")
    elif built:
        _print_built(planned, built)


def _print_target(one: Judged) -> None:
    plan = one.plan
    verdict: tuple[str, Color] = ("works", "green") if plan.ok else ("refused", "red")
    line(f"target {one.name} on {plan.gpu.product} ({plan.gpu.compute_capability}): {verdict[0]}", verdict[1])
    line(f"  {_said(one)}")
    for check in (*plan.errors, *plan.warnings):
        line(f"  {_mark(check)} {check}", "red" if check.severity == "error" else "yellow")
    if one.suggestions:
        line(f"  {suggestions_text(one.suggestions)}", "green")
    for note in one.notes:
        line(f"  note: {note}", "yellow")
    if plan.ok or any(check.id.startswith("memory") for check in plan.errors):
        table(("  NUMBER", "VALUE", "FROM"), [(f"  {t.name}", str(t), derivation(t)) for t in plan.terms])


def _print_built(planned: Planned, built: tuple[Built, ...]) -> None:
    line("What is built", "bold")
    rows = [
        (
            f"  {b.name or b.type}",
            ", ".join(b.targets),
            b.where,
            str(b.gpus),
            bytes_text(b.host_memory_bytes),
            bytes_text(b.scratch_bytes) if b.scratch_bytes else "-",
            bytes_text(b.store_bytes),
            f"{-(-b.timeout_seconds // 60)} min",
        )
        for b in built
    ]
    table(("  ARTIFACT", "FOR", "WHERE", "GPUS", "HOST MEMORY", "SCRATCH", "STORE", "DEADLINE"), rows)
    if missing := unknown_names(planned):
        line(f"  names follow from {missing}", "dim")
    line()
    line("Commands", "bold")
    commands = dict.fromkeys((b.type, b.command) for b in built if b.command)
    for type_, command in commands:
        line(f"  {type_}: {' '.join(command)}")


def _said(one: Judged) -> str:
    spec, precision = one.spec, one.plan.precision
    return (
        f"{precision.dtype}, quantization {spec.precision.quantization}, KV cache {spec.precision.kv_cache}, "
        f"TP {spec.parallelism.tensor} x PP {spec.parallelism.pipeline}, "
        f"batch {spec.budgets.max_batch_size:,}, {spec.budgets.max_seq_len:,} tokens"
    )


def derivation(term: Term) -> str:
    """Where a number comes from, and whether it is an estimate."""
    return f"{term.formula}{' (estimate)' if term.estimate else ''}"


def _mark(check: Check) -> str:
    return "error:" if check.severity == "error" else "warning:"


def _plan_object(planned: Planned) -> dict[str, Any]:
    return {
        "name": planned.name,
        "ok": planned.ok,
        "release": planned.release.name,
        "image": planned.image,
        "model": {"revision": planned.model.revision, "facts": planned.model.facts.to_facts()},
        "targets": [_target_object(one) for one in planned.targets],
        "artifacts": [_built_object(b) for b in what_is_built(planned)] if planned.ok else [],
    }


def _target_object(one: Judged) -> dict[str, Any]:
    plan = one.plan
    return {
        "name": one.name,
        "gpu": plan.gpu.product,
        "computeCapability": plan.gpu.compute_capability,
        "nodes": list(one.nodes),
        "ok": plan.ok,
        "checks": [_check_object(check) for check in plan.checks],
        "passesWith": [{change.field: change.value for change in suggestion} for suggestion in one.suggestions],
        "notes": list(one.notes),
        "numbers": [term_object(term) for term in plan.terms],
    }


def _built_object(built: Built) -> dict[str, Any]:
    camel = {
        "".join(word.capitalize() if index else word for index, word in enumerate(name.split("_"))): value
        for name, value in asdict(built).items()
    }
    return camel | {"targets": list(built.targets), "command": list(built.command)}


def _check_object(check: Check) -> dict[str, Any]:
    out: dict[str, Any] = {"id": check.id, "ok": check.ok, "message": check.message}
    if not check.ok:
        out |= {"severity": check.severity, "fix": check.fix, "valid": list(check.valid)}
    return out


def term_object(term: Term) -> dict[str, Any]:
    """A number for programs."""
    return asdict(term)
