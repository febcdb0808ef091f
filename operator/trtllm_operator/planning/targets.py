"""The targets of a spec, one for each class of GPUs: `any` on a cluster with three classes is three of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..api.common import NodePlacement
from ..api.engineartifact import GpuClass
from ..api.llmengine import GpuSelector, LLMEngineSpec, Target
from ..catalog import Catalog, parse_product
from .gpu_classes import (
    LISTED,
    FoundClass,
    class_order,
    exactness,
    find_classes,
    inventory,
    selects,
    slug,
    sought,
    sought_class,
)
from .gpu_nodes import GpuNode
from .overrides import effective_spec
from .target import TargetGpu


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
    passed_by: tuple[str, ...]
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
    classes = find_classes(nodes)
    taken: set[GpuClass] = set()
    made: dict[str, tuple[ConcreteTarget, ...]] = {}
    passed: list[str] = []
    for target in sorted(spec.targets, key=lambda t: exactness(t.gpu)):
        reach = _Reach(target.gpu, spec.build, effective_spec(spec, target).serving)
        if target.gpu.product is not None:
            made[target.name] = (_exact(target, reach, classes, nodes, catalog, known.get(target.name, ())),)
            taken |= {c.gpu for c in classes if selects(target.gpu, c.gpu)}
            continue
        free = [c for c in classes if c.gpu not in taken]
        made[target.name] = _several(target, reach, free, nodes, catalog, known, taken)
        taken |= {c.gpu_class for c in made[target.name] if c.gpu_class}
        passed += [p for p in _passed_by(target.gpu, reach, free, taken) if p not in passed]
    if any(t.gpu.product is None for t in spec.targets):
        passed += [f"node {n.name} {n.problem}" for n in sorted(nodes, key=lambda n: n.name) if n.problem]
    return Expansion(tuple(c for t in spec.targets for c in made[t.name]), tuple(passed[:LISTED]))


@dataclass(frozen=True)
class _Reach:
    """Where the Pods of a target may go."""

    selector: GpuSelector
    build: NodePlacement
    serving: NodePlacement

    def closed(self, found: FoundClass | None, nodes: Sequence[GpuNode], gpu: GpuClass) -> str:
        """Why no Pod of the target can start on a node of the class; empty when both builds and servers can."""
        if found is None:
            return f"no node has {sought_class(gpu)}; {inventory(nodes)}"
        reasons = found.closed_to(self.serving) or found.closed_to(self.build)
        more = [f"{len(reasons) - LISTED} more likewise"] if len(reasons) > LISTED else []
        return "; ".join((*reasons[:LISTED], *more))


def _exact(
    target: Target,
    reach: _Reach,
    classes: Sequence[FoundClass],
    nodes: Sequence[GpuNode],
    catalog: Catalog,
    known: Sequence[KnownClass],
) -> ConcreteTarget:
    """The one class of a product: of those there are the known one, and whole GPUs of amd64 nodes before others."""
    product = target.gpu.product
    assert product is not None
    earlier = [k.gpu for k in sorted(known, key=lambda k: not k.proven) if k.gpu.product == product]
    found = min(
        (c for c in classes if c.gpu.product == product),
        key=lambda c: (c.gpu not in earlier, class_order(c.gpu)),
        default=None,
    )
    if found is not None:
        return _concrete(target, target.name, reach, found.gpu, found, nodes, catalog)
    if earlier:
        return _concrete(target, target.name, reach, earlier[0], None, nodes, catalog)
    gpu = catalog.gpu(product)
    if gpu is None or parse_product(product).mig_profile is not None:
        # A slice's resource follows from the node's MIG strategy.
        unknown = "" if gpu else ", which the catalogue does not know either"
        absent = f"no node has {sought(target.gpu)}{unknown}; {inventory(nodes)}"
        return ConcreteTarget(target, target.name, absent=absent)
    wanted = GpuClass(product=product, compute_capability=gpu.compute_capability, cpu_architecture=gpu.cpu_architecture)
    return _concrete(target, target.name, reach, wanted, None, nodes, catalog)


def _several(
    target: Target,
    reach: _Reach,
    free: Sequence[FoundClass],
    nodes: Sequence[GpuNode],
    catalog: Catalog,
    known: Mapping[str, Sequence[KnownClass]],
    taken: set[GpuClass],
) -> tuple[ConcreteTarget, ...]:
    """The classes among nodes that builds and servers can reach, and those known; or one target that waits."""
    had = {
        k.gpu: (name, k)
        for name, of_name in known.items()
        if name.startswith(f"{target.name}-")
        for k in of_name
        if k.gpu not in taken and selects(target.gpu, k.gpu)
    }
    there = {c.gpu: c for c in free if selects(target.gpu, c.gpu)}
    wanted = [gpu for gpu, found in there.items() if gpu in had or not reach.closed(found, nodes, gpu)]
    wanted += [gpu for gpu, (_, k) in had.items() if gpu not in there and k.proven]
    if not wanted:
        closed = [reach.closed(found, nodes, gpu) for gpu, found in there.items()]
        why = "; ".join(closed) or f"no node has {sought(target.gpu)} that this target can use; {inventory(nodes)}"
        return (ConcreteTarget(target, target.name, absent=why),)
    out: list[ConcreteTarget] = []
    for gpu in sorted(wanted, key=class_order):
        name = had[gpu][0] if gpu in had else f"{target.name}-{slug(gpu)}"
        alone = target.model_copy(update={"name": name, "gpu": GpuSelector(product=gpu.product)})
        out.append(_concrete(alone, target.name, reach, gpu, there.get(gpu), nodes, catalog))
    return tuple(out)


def _concrete(
    target: Target,
    spec_target: str,
    reach: _Reach,
    gpu: GpuClass,
    found: FoundClass | None,
    nodes: Sequence[GpuNode],
    catalog: Catalog,
) -> ConcreteTarget:
    return ConcreteTarget(
        target,
        spec_target,
        gpu_class=gpu,
        gpu=TargetGpu.of_class(
            gpu,
            catalog.gpu(gpu.product),
            memory_mib=found.memory_mib if found else None,
            gpus_per_node=found.gpus_per_node if found else None,
        ),
        absent=reach.closed(found, nodes, gpu),
        remarks=found.remarks if found else (),
    )


def _passed_by(selector: GpuSelector, reach: _Reach, free: Iterable[FoundClass], taken: set[GpuClass]) -> Iterable[str]:
    for found in free:
        names = ", ".join(node.name for node, _ in found.offers[:LISTED])
        if found.shared:
            yield (
                f"{found.gpu.product} ({names}) is shared between Pods, so memory and time are not an engine's own: "
                "to use it all the same, name the product"
            )
        elif found.gpu not in taken and selects(selector, found.gpu):
            yield reach.closed(found, (), found.gpu)
