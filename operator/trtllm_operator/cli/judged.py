"""A manifest with all that is judged of it: what the operator would decide, from the same code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..api.llmengine import LLMEngineSpec, Target
from ..catalog import Catalog, Release
from ..objects import Obj
from ..planning.expansion import ConcreteTarget, KnownClass, expand
from ..planning.gpu_nodes import GpuNode, catalog_nodes, read_node
from ..planning.model import ModelFacts
from ..planning.nearest import Suggestion, nearest
from ..planning.overrides import effective_spec
from ..planning.verdict import TargetPlan, judge
from .errors import CliError

Nodes = Sequence[Obj]
"""The nodes of a cluster."""


@dataclass(frozen=True)
class Model:
    """The model a manifest is judged with."""

    facts: ModelFacts
    revision: str | None
    """The commit, where it is known: the names of the artifacts follow from it."""


@dataclass(frozen=True)
class Judged:
    """One target, for one class of GPUs."""

    concrete: ConcreteTarget
    spec: LLMEngineSpec
    """The target's own."""
    plan: TargetPlan
    suggestions: tuple[Suggestion, ...]
    """Changes with each of which a refused target passes."""
    nodes: tuple[str, ...]
    """Nodes of the cluster that have such GPUs; empty where no cluster was asked."""
    notes: tuple[str, ...]
    """What the nodes' state says of the target."""

    @property
    def name(self) -> str:
        return self.concrete.name


@dataclass(frozen=True)
class Planned:
    """A manifest with all that was judged of it."""

    name: str
    spec: LLMEngineSpec
    model: Model
    release: Release
    image: str | None
    """Toolchain image, with its digest where that is known."""
    targets: tuple[Judged, ...]

    @property
    def ok(self) -> bool:
        """Whether each target of the spec works; of several classes of GPUs one is enough."""
        return all(any(one.plan.ok for one in self._of(target)) for target in self.spec.targets)

    def _of(self, target: Target) -> list[Judged]:
        return [one for one in self.targets if one.concrete.spec_target == target.name]


def judge_targets(
    spec: LLMEngineSpec,
    facts: ModelFacts,
    release: Release,
    catalog: Catalog,
    nodes: Nodes | None,
    median_tokens: int | None = None,
    *,
    known: Mapping[str, Sequence[KnownClass]] = MappingProxyType({}),
) -> tuple[Judged, ...]:
    """The verdict on every target.

    Without `nodes`, a target for several classes of GPUs is judged on all of the catalog. `known` are the classes of
    revisions that exist, by target. Raises CliError for GPUs that nobody knows.
    """
    seen = [read_node(node) for node in nodes] if nodes is not None else catalog_nodes(catalog)
    out: list[Judged] = []
    for one in expand(spec, seen, catalog, known).targets:
        if one.gpu is None:
            raise CliError(f"target {one.name}: {_unknown(one, catalog, asked=nodes is not None)}")
        own = effective_spec(spec, one.target)
        plan = judge(own, facts, release, one.gpu, median_tokens)
        suggestions = () if plan.ok else nearest(own, facts, release, one.gpu)
        notes = (*([one.absent] if one.absent else ()), *one.remarks) if nodes is not None else ()
        out.append(Judged(one, own, plan, suggestions, _with(one, seen) if nodes is not None else (), notes))
    return tuple(out)


def _unknown(one: ConcreteTarget, catalog: Catalog, *, asked: bool) -> str:
    if asked:
        return one.absent
    product = one.target.gpu.product
    if product is None:
        return "no GPU of the catalog is like that; llmengine gpus lists what is (--server asks a cluster's nodes)"
    return f"GPU {product} is not in the catalog{alike(product, catalog)} (--server asks a cluster's nodes)"


def alike(product: str, catalog: Catalog) -> str:
    """`; it has ...`: products that have a word in common with one that is not known, or where all are listed."""
    words = {word for word in product.upper().replace("_", "-").split("-") if word != "NVIDIA" and len(word) > 1}
    found = [f"NVIDIA-{gpu.name}" for gpu in catalog.gpus if words & set(gpu.name.upper().split("-"))]
    return f"; it has {', '.join(found)}" if found else "; llmengine gpus lists what is"


def _with(one: ConcreteTarget, nodes: Sequence[GpuNode]) -> tuple[str, ...]:
    return tuple(sorted(n.name for n in nodes if any(offer.gpu == one.gpu_class for offer in n.offers)))
