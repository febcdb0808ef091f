"""The targets of a spec, one for each class of GPUs: `any` on a cluster with three classes is three of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..api.common import NodePlacement
from ..api.engineartifact import GpuClass
from ..api.llmengine import GpuSelector, LLMEngineSpec, Target
from ..catalog import Catalog, parse_product
from .gpu_classes import (
    FoundClass,
    class_order,
    exactness,
    find_classes,
    inventory,
    selects,
    shortened,
    slug,
    sought,
    sought_class,
)
from .gpu_nodes import GpuNode
from .overrides import effective_spec
from .target_gpu import TargetGpu


@dataclass(frozen=True)
class KnownClass:
    """A class that a target has had a revision for."""

    gpu: GpuClass
    proven: bool
    """Its engine is in the store, or it serves: the class stays although no node has it."""


@dataclass(frozen=True)
class ConcreteTarget:
    """A target for one class of GPUs, as if the spec named it alone."""

    target: Target
    """With its own name and, once known, the class's product as its selector."""
    spec_target: str
    """Name of the target in the spec."""
    gpu_class: GpuClass | None = None
    """None: no class is known yet."""
    gpu: TargetGpu | None = None
    """What the planner knows of the class."""
    absent: str = ""
    """Why nothing of the target can start on a node now, whatever is proven already; empty when it can."""
    remarks: tuple[str, ...] = ()
    """In what the nodes of the class differ although they should not."""

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def derived(self) -> bool:
        """Whether the spec's target may stand for several classes."""
        return self.name != self.spec_target


@dataclass(frozen=True)
class Expansion:
    targets: tuple[ConcreteTarget, ...]
    """In the order of the spec's targets, and then of the classes."""
    skipped: tuple[str, ...]
    """GPUs that a target which may stand for several classes does not use, with the reason for each."""


def expand(
    spec: LLMEngineSpec,
    nodes: Sequence[GpuNode],
    catalog: Catalog,
    known: Mapping[str, Sequence[KnownClass]],
) -> Expansion:
    """The concrete targets of a spec. `known` are the classes of revisions that exist, by the targets' names.

    A class belongs to the target that selects it most exactly, and among equals to the first. One that is proven stays
    when its last node leaves.
    """
    cluster = _Cluster(tuple(nodes), find_classes(nodes), catalog)
    targets: list[ConcreteTarget] = []
    skipped: list[str] = []
    for target in spec.targets:
        reach = _Reach(spec.build, effective_spec(spec, target).serving)
        if target.gpu.product is not None:
            targets.append(_exact(target, reach, cluster, known.get(target.name, ())))
            continue
        had = [
            (name, one)
            for name, of_name in sorted(known.items())
            if name.startswith(f"{target.name}-")
            for one in of_name
            if taker(spec.targets, one.gpu) == target
        ]
        there = {c.gpu: c for c in cluster.classes if taker(spec.targets, c.gpu) == target}
        made = _several(target, reach, cluster, there, had)
        targets += made
        used = {c.gpu_class for c in made}
        skipped += [reach.closed(found) for gpu, found in there.items() if gpu not in used]
    if any(target.gpu.product is None for target in spec.targets):
        skipped += [_shared_text(c) for c in cluster.classes if c.shared and taker(spec.targets, c.gpu) is None]
        skipped += [f"node {n.name} {n.problem}" for n in sorted(nodes, key=lambda n: n.name) if n.problem]
    return Expansion(tuple(targets), tuple(shortened(skipped)))


def taker(targets: Iterable[Target], gpu: GpuClass) -> Target | None:
    """The target that a class belongs to."""
    return min((t for t in targets if selects(t.gpu, gpu)), key=lambda t: exactness(t.gpu), default=None)


@dataclass(frozen=True)
class _Cluster:
    nodes: tuple[GpuNode, ...]
    classes: tuple[FoundClass, ...]
    catalog: Catalog


@dataclass(frozen=True)
class _Reach:
    """Where the Pods of a target may go."""

    build: NodePlacement
    serving: NodePlacement

    def closed(self, found: FoundClass) -> str:
        """Why no Pod of the target can start on a node of the class; empty when both builds and servers can."""
        return "; ".join(shortened(found.closed_to(self.serving) or found.closed_to(self.build)))


def _exact(target: Target, reach: _Reach, cluster: _Cluster, known: Sequence[KnownClass]) -> ConcreteTarget:
    """The one class of a product: of those there are the known one, and whole GPUs of amd64 nodes before others."""
    product = target.gpu.product
    assert product is not None
    earlier = [k.gpu for k in sorted(known, key=lambda k: not k.proven) if k.gpu.product == product]
    found = min(
        (c for c in cluster.classes if c.gpu.product == product),
        key=lambda c: (c.gpu not in earlier, class_order(c.gpu)),
        default=None,
    )
    if found is not None:
        return _concrete(target, target.name, reach, cluster, found.gpu, found)
    if earlier:
        return _concrete(target, target.name, reach, cluster, earlier[0], None)
    gpu = cluster.catalog.gpu(product)
    if gpu is None or parse_product(product).mig_profile is not None:
        # A slice's resource follows from the node's MIG strategy.
        unknown = "" if gpu else ", which the catalog does not know either"
        absent = f"no node has {sought(target.gpu)}{unknown}; {inventory(cluster.nodes)}"
        return ConcreteTarget(target, target.name, absent=absent)
    wanted = GpuClass(product=product, compute_capability=gpu.compute_capability, cpu_architecture=gpu.cpu_architecture)
    return _concrete(target, target.name, reach, cluster, wanted, None)


def _several(
    target: Target,
    reach: _Reach,
    cluster: _Cluster,
    there: Mapping[GpuClass, FoundClass],
    had: Sequence[tuple[str, KnownClass]],
) -> tuple[ConcreteTarget, ...]:
    """The classes among nodes that builds and servers can reach, and those known; or one target that waits."""
    names = {one.gpu: name for name, one in had}
    wanted = {gpu for gpu, found in there.items() if gpu in names or not reach.closed(found)}
    wanted |= {one.gpu for _, one in had if one.proven}
    if not wanted:
        why = "; ".join(shortened(reach.closed(found) for found in there.values()))
        none = f"no node has {sought(target.gpu)} that this target can use; {inventory(cluster.nodes)}"
        return (ConcreteTarget(target, target.name, absent=why or none),)
    out: list[ConcreteTarget] = []
    for gpu in sorted(wanted, key=class_order):
        name = names.get(gpu) or f"{target.name}-{slug(gpu)}"
        alone = target.model_copy(update={"name": name, "gpu": GpuSelector(product=gpu.product)})
        out.append(_concrete(alone, target.name, reach, cluster, gpu, there.get(gpu)))
    return tuple(out)


def _concrete(
    target: Target, spec_target: str, reach: _Reach, cluster: _Cluster, gpu: GpuClass, found: FoundClass | None
) -> ConcreteTarget:
    return ConcreteTarget(
        target,
        spec_target,
        gpu_class=gpu,
        gpu=TargetGpu.of_class(
            gpu,
            cluster.catalog.gpu(gpu.product),
            memory_mib=found.memory_mib if found else None,
            gpus_per_node=found.gpus_per_node if found else None,
        ),
        absent=reach.closed(found) if found else f"no node has {sought_class(gpu)}; {inventory(cluster.nodes)}",
        remarks=found.remarks if found else (),
    )


def _shared_text(found: FoundClass) -> str:
    names = ", ".join(shortened([node.name for node, _ in found.offers]))
    return (
        f"{found.gpu.product} ({names}) is shared between Pods, so memory and time are not an engine's own: "
        "to use it all the same, name the product"
    )
