"""`plan` and `explain`: the operator's verdict on a manifest, and where one of its numbers comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..api.llmengine import LLMEngineSpec, Target
from ..catalog import Catalog, Release
from ..objects import Obj
from ..planning.check import Check
from ..planning.commands import CommandUnknown, build_command, checkpoint_step
from ..planning.gpu_nodes import catalogue_nodes, read_node
from ..planning.model import ModelFacts
from ..planning.overrides import effective_spec
from ..planning.targets import expand
from ..planning.terms import Term, bytes_text
from ..planning.verdict import TargetPlan, judge
from .errors import REFUSED, CliError
from .render import Colour, Output, line, structured, table

Nodes = Sequence[Obj]
"""The nodes of a cluster."""


@dataclass(frozen=True)
class Planned:
    """A manifest with all that was judged of it."""

    name: str
    spec: LLMEngineSpec
    facts: ModelFacts
    release: Release
    targets: Mapping[str, TargetPlan]
    """Verdicts by the targets' names."""

    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the nodes' state says of a target, by its name; nothing where no cluster was asked."""

    @property
    def ok(self) -> bool:
        """Whether each target of the spec works; of several classes of GPUs one is enough."""
        return all(any(plan.ok for plan in self._plans_of(target)) for target in self.spec.targets)

    def _plans_of(self, target: Target) -> list[TargetPlan]:
        several = target.gpu.product is None
        return [p for n, p in self.targets.items() if n == target.name or (several and n.startswith(f"{target.name}-"))]


def judge_targets(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, catalog: Catalog, nodes: Nodes | None
) -> tuple[dict[str, TargetPlan], dict[str, tuple[str, ...]]]:
    """The verdict on every target and what is to be noted of it, by its name.

    Without `nodes`, a target for several classes of GPUs is judged on all of the catalogue. Raises CliError for GPUs
    that nobody knows.
    """
    seen = [read_node(node) for node in nodes] if nodes is not None else catalogue_nodes(catalog)
    plans: dict[str, TargetPlan] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for one in expand(spec, seen, catalog, {}).targets:
        if one.gpu is None and nodes is None:
            raise CliError(
                f"target {one.name}: GPU {one.target.gpu.product} is not in the catalogue (llmengine gpus lists it; "
                "--server asks a cluster's nodes)"
            )
        if one.gpu is None:
            raise CliError(f"target {one.name}: {one.absent}")
        plans[one.name] = judge(effective_spec(spec, one.target), facts, release, one.gpu)
        if nodes is not None and (said := (*([one.absent] if one.absent else ()), *one.remarks)):
            notes[one.name] = said
    return plans, notes


def show_plan(planned: Planned, output: Output) -> int:
    """Print the plan and return the exit code."""
    if output == "table":
        _print_plan(planned)
    else:
        structured(_plan_object(planned), output)
    return 0 if planned.ok else REFUSED


def explain(planned: Planned, number: str | None, output: Output) -> int:
    """Print one number of each target with its derivation, or all of them."""
    known = {t.name for plan in planned.targets.values() for t in plan.terms}
    if number is not None and number not in known:
        raise CliError(f"no number is called {number}; there are {', '.join(sorted(known))}")
    chosen = {n: [t for t in plan.terms if number in (None, t.name)] for n, plan in planned.targets.items()}
    if output != "table":
        structured({n: [_term_object(t) for t in terms] for n, terms in chosen.items()}, output)
        return 0
    for name, terms in chosen.items():
        line(name, "bold")
        table(
            ("NUMBER", "VALUE", "", "FROM"),
            [(t.name, f"{t.value:,} {t.unit}", _short(t), f"{t.formula}{_estimated(t)}") for t in terms],
        )
    return 0


def _short(term: Term) -> str:
    return bytes_text(term.value) if term.unit == "B" else ""


def _estimated(term: Term) -> str:
    return " (estimate)" if term.estimate else ""


def _print_plan(planned: Planned) -> None:
    spec, facts = planned.spec, planned.facts
    model = f"{facts.architecture}, {facts.parameter_count / 1e9:.3g} billion parameters, {facts.dtype}"
    line(f"{planned.name}: {model}", "bold")
    line(
        f"release {planned.release.name}, quantization {spec.precision.quantization}, KV cache "
        f"{spec.precision.kv_cache}, TP {spec.parallelism.tensor} x PP {spec.parallelism.pipeline}"
    )
    for target, plan in planned.targets.items():
        line()
        verdict: tuple[str, Colour] = ("works", "green") if plan.ok else ("refused", "red")
        line(f"target {target} on {plan.gpu.product}: {verdict[0]}", verdict[1])
        for check in (*plan.errors, *plan.warnings):
            line(f"  {_mark(check)} {check}", "red" if check.severity == "error" else "yellow")
        for note in planned.notes.get(target, ()):
            line(f"  note: {note}", "yellow")
        table(
            ("  NUMBER", "VALUE", "FROM"),
            [(f"  {t.name}", str(t), f"{t.formula}{_estimated(t)}") for t in plan.terms],
        )
    line()
    if not planned.ok:
        line("nothing is built")
        return
    line("What is built", "bold")
    rows = [(a["type"], a["where"], a["command"]) for a in _artifacts(planned)]
    table(("ARTEFACT", "WHERE", "COMMAND"), rows)


def _mark(check: Check) -> str:
    return "error:" if check.severity == "error" else "warning:"


def _artifacts(planned: Planned) -> list[dict[str, Any]]:
    """What a build makes, with where and by which command; empty when the release can't."""
    given = planned.spec, planned.facts, planned.release
    try:
        checkpoint, build = checkpoint_step(*given), build_command(*given)
    except CommandUnknown:
        return []
    return [
        {"type": "Model", "where": "any node", "command": "fetch"},
        {
            "type": "Checkpoint",
            "where": "a node with a GPU" if checkpoint.needs_gpu else "any node",
            "command": " ".join(checkpoint.command),
        },
        *(
            {"type": "Engine", "where": f"one GPU, {product}", "command": " ".join(build)}
            for product in dict.fromkeys(plan.gpu.product for plan in planned.targets.values())
        ),
    ]


def _plan_object(planned: Planned) -> dict[str, Any]:
    return {
        "name": planned.name,
        "ok": planned.ok,
        "release": planned.release.name,
        "image": planned.release.image,
        "model": planned.facts.to_facts(),
        "targets": [
            {
                "name": target,
                "gpu": plan.gpu.product,
                "computeCapability": plan.gpu.compute_capability,
                "ok": plan.ok,
                "checks": [_check_object(check) for check in plan.checks],
                "notes": list(planned.notes.get(target, ())),
                "numbers": [_term_object(term) for term in plan.terms],
            }
            for target, plan in planned.targets.items()
        ],
        "artifacts": _artifacts(planned),
    }


def _check_object(check: Check) -> dict[str, Any]:
    out: dict[str, Any] = {"id": check.id, "ok": check.ok, "message": check.message}
    if not check.ok:
        out |= {"severity": check.severity, "fix": check.fix, "valid": list(check.valid)}
    return out


def _term_object(term: Term) -> dict[str, Any]:
    return {
        "name": term.name,
        "value": term.value,
        "unit": term.unit,
        "formula": term.formula,
        "estimate": term.estimate,
    }
