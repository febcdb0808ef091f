"""`plan` and `explain`: the operator's verdict on a manifest, and where one of its numbers comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..api.llmengine import LLMEngineSpec
from ..catalog import Catalog, Release
from ..planning.check import Check
from ..planning.commands import CommandUnknown, build_command, checkpoint_step
from ..planning.model import ModelFacts
from ..planning.target import TargetGpu
from ..planning.terms import Term, bytes_text
from ..planning.verdict import TargetPlan, judge
from .errors import REFUSED, CliError
from .render import Colour, Output, line, structured, table

Nodes = Iterable[Mapping[str, str]]
"""Labels of the nodes of a cluster."""


@dataclass(frozen=True)
class Planned:
    """A manifest with all that was judged of it."""

    name: str
    spec: LLMEngineSpec
    facts: ModelFacts
    release: Release
    targets: Mapping[str, TargetPlan]
    """Verdicts by the targets' names."""

    @property
    def ok(self) -> bool:
        return all(plan.ok for plan in self.targets.values())


def judge_targets(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, catalog: Catalog, nodes: Nodes
) -> dict[str, TargetPlan]:
    """The verdict on every target, by its name. Raises CliError for a GPU that nobody knows."""
    labels = tuple(nodes)
    plans: dict[str, TargetPlan] = {}
    for target in spec.targets:
        product = target.gpu.product
        gpu = TargetGpu.from_nodes(product, labels, catalog.gpu(product))
        if gpu is None:
            where = "and no node has it" if labels else "(llmengine gpus lists it; --server asks a cluster's nodes)"
            raise CliError(f"target {target.name}: GPU {product} is not in the catalogue {where}")
        plans[target.name] = judge(spec, facts, release, gpu)
    return plans


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
