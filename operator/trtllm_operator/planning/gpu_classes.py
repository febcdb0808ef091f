"""GPU classes: what the GPUs of several nodes have in common as far as an engine is concerned, and who selects them.

A class is product, compute capability, CPU architecture and the resource that Pods ask for (which tells MIG slices).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..api.common import NodePlacement
from ..api.engineartifact import DEFAULT_CPU_ARCHITECTURE, GpuClass
from ..api.llmengine import Architecture, GpuSelector
from ..catalog import parse_product
from ..objects import CPU_ARCHITECTURE_LABEL, GPU_RESOURCE, MAJOR_LABEL, MINOR_LABEL, PRODUCT_LABEL, short_hash
from .gpu_nodes import GpuNode, Offer

MEMORY_TOLERANCE = 0.03
"""The same product has been seen with up to 3 % more or less under other drivers."""
MAX_SLUG_LENGTH = 16
"""`<LLMEngine>-<target>-<slug>-<8 hex>` fits 63 where the first two have 36 (api.llmengine.ROOT_RULES)."""
LISTED = 5
"""Nodes and problems named in one message."""
_ARCHITECTURES: dict[str, Architecture] = {
    "7.0": "volta",
    "7.2": "volta",
    "7.5": "turing",
    "8.9": "ada-lovelace",
    "8": "ampere",
    "9": "hopper",
    "10": "blackwell",
    "12": "blackwell",
    "13": "rubin",
}
"""By compute capability or its major, as GPU feature discovery 0.20 has it (earlier ones call 8.9 ampere)."""


@dataclass(frozen=True)
class FoundClass:
    """A class of GPUs that nodes offer."""

    gpu: GpuClass
    offers: tuple[tuple[GpuNode, Offer], ...]
    """Nodes with what they offer of it, by name."""

    @property
    def memory_mib(self) -> int | None:
        """The least of its nodes: an engine runs on any of them."""
        return min(self._memories, default=None)

    @property
    def gpus_per_node(self) -> int | None:
        """The most that one node offers; None where no node says."""
        return max((o.count for _, o in self.offers if o.count), default=None)

    @property
    def shared(self) -> bool:
        return parse_product(self.gpu.product).shared

    @property
    def _memories(self) -> list[int]:
        return [offer.memory_mib for _, offer in self.offers if offer.memory_mib]

    def closed_to(self, placement: NodePlacement) -> tuple[str, ...]:
        """Why Pods can start on none of its nodes, a reason for each; empty when they can on one."""
        reasons: list[str] = []
        for node, offer in self.offers:
            reason = node.closed_to(placement)
            if reason is None and offer.count != 0:
                return ()
            none = f"offers no {self.gpu.resource} now: its device plugin is not up, or none of its GPUs is healthy"
            reasons.append(f"node {node.name} {reason or none}")
        return tuple(reasons)

    @property
    def remarks(self) -> tuple[str, ...]:
        """In what its nodes differ although they should not."""
        out: list[str] = []
        if (least := self.memory_mib) and max(self._memories) > least * (1 + MEMORY_TOLERANCE):
            sizes = _grouped((f"{o.memory_mib} MiB", n.name) for n, o in self.offers if o.memory_mib)
            out.append(f"its GPUs differ in memory: {sizes}; planned for {least} MiB")
        if len({node.driver for node, _ in self.offers if node.driver}) > 1:
            drivers = _grouped((f"driver {n.driver}", n.name) for n, _ in self.offers if n.driver)
            out.append(f"its nodes differ: {drivers}")
        return tuple(out)


def find_classes(nodes: Iterable[GpuNode]) -> tuple[FoundClass, ...]:
    """The classes that the nodes offer, in a stable order."""
    found: dict[GpuClass, list[tuple[GpuNode, Offer]]] = {}
    for node in sorted(nodes, key=lambda n: n.name):
        for offer in node.offers:
            found.setdefault(offer.gpu, []).append((node, offer))
    return tuple(
        FoundClass(gpu, tuple(offers)) for gpu, offers in sorted(found.items(), key=lambda f: class_order(f[0]))
    )


def class_order(gpu: GpuClass) -> tuple[bool, bool, str, str, str]:
    """Sort key: whole GPUs of amd64 nodes come first."""
    odd = gpu.resource != GPU_RESOURCE, gpu.cpu_architecture != DEFAULT_CPU_ARCHITECTURE
    return (*odd, gpu.product, gpu.cpu_architecture, gpu.resource)


def architecture_of(compute_capability: str) -> Architecture | None:
    """The architecture of a compute capability; the node label nvidia.com/gpu.family is not to be trusted with it."""
    return _ARCHITECTURES.get(compute_capability) or _ARCHITECTURES.get(compute_capability.partition(".")[0])


def selects(selector: GpuSelector, gpu: GpuClass) -> bool:
    """Whether the class is one of those. GPUs shared between Pods are taken only by their whole product name."""
    if selector.product is not None:
        return gpu.product == selector.product
    if parse_product(gpu.product).shared:
        return False
    if selector.compute_capability is not None:
        return gpu.compute_capability == selector.compute_capability
    if selector.architecture is not None:
        return architecture_of(gpu.compute_capability) == selector.architecture
    return True


def exactness(selector: GpuSelector) -> int:
    """Sort key: the more exact of two targets has a class that both select."""
    said = (selector.product, selector.compute_capability, selector.architecture)
    return next((index for index, value in enumerate(said) if value is not None), len(said))


def slug(gpu: GpuClass) -> str:
    """The class within names of objects: a DNS label of at most MAX_SLUG_LENGTH that follows from the class alone.

    The product in lower case where it fits and says it all (`h100-80gb-hbm3`, `gb200-arm64`); else what fits of it and
    a hash.
    """
    parts = parse_product(gpu.product)
    plain = parts.name.lower()
    if gpu.cpu_architecture != DEFAULT_CPU_ARCHITECTURE:
        plain += f"-{gpu.cpu_architecture}"
    whole = gpu.product == f"NVIDIA-{parts.name}" and gpu.resource == GPU_RESOURCE
    if whole and len(plain) <= MAX_SLUG_LENGTH and set(plain) <= _LABEL_CHARACTERS and "--" not in plain:
        return plain
    if parts.mig_profile:
        plain = f"{plain.partition('-')[0]}-{parts.mig_profile}"
    readable = "".join(c for c in plain.replace("_", "-") if c in _LABEL_CHARACTERS)
    return f"{readable[: MAX_SLUG_LENGTH - 5].strip('-')}-{_short(gpu)}"


_LABEL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def _short(gpu: GpuClass) -> str:
    return short_hash(gpu.model_dump(mode="json", exclude_defaults=True), 4)


def sought(selector: GpuSelector) -> str:
    """What is looked for, in words that go on from 'no node has'."""
    if selector.product is not None:
        return f"{PRODUCT_LABEL}={selector.product}"
    if selector.compute_capability is not None:
        major, _, minor = selector.compute_capability.partition(".")
        return f"{MAJOR_LABEL}={major} and {MINOR_LABEL}={minor}"
    if selector.architecture is not None:
        return f"a GPU of architecture {selector.architecture}"
    return "a GPU"


def sought_class(gpu: GpuClass) -> str:
    """The class in the same words."""
    where = (
        ""
        if gpu.cpu_architecture == DEFAULT_CPU_ARCHITECTURE
        else f" and {CPU_ARCHITECTURE_LABEL}={gpu.cpu_architecture}"
    )
    label = PRODUCT_LABEL if gpu.resource == GPU_RESOURCE else f"{gpu.resource}.product"
    return f"{label}={gpu.product}{where}"


def inventory(nodes: Sequence[GpuNode]) -> str:
    """The GPUs of the nodes, and those that cannot be used with the reason, for a message."""
    offered = [(_offer_text(offer), node.name) for node in nodes for offer in node.offers]
    problems = [f"node {node.name} {node.problem}" for node in sorted(nodes, key=lambda n: n.name) if node.problem]
    said = [f"the nodes have {_grouped(offered)}"] if offered else []
    return "; ".join((*said, *shortened(problems))) or f"no node carries the label {PRODUCT_LABEL}"


def shortened(items: Iterable[str]) -> list[str]:
    """The first LISTED, and how many more there are."""
    said = list(items)
    return said if len(said) <= LISTED else [*said[:LISTED], f"{len(said) - LISTED} more"]


def _offer_text(offer: Offer) -> str:
    gpu = offer.gpu
    marks = [gpu.cpu_architecture] if gpu.cpu_architecture != DEFAULT_CPU_ARCHITECTURE else []
    marks += [gpu.resource] if gpu.resource != GPU_RESOURCE else []
    return " ".join([gpu.product, *(f"[{mark}]" for mark in marks)])


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """`what (node, node), ...`."""
    found: dict[str, list[str]] = {}
    for what, node in pairs:
        found.setdefault(what, []).append(node)
    return ", ".join(f"{what} ({', '.join(shortened(sorted(names)))})" for what, names in sorted(found.items()))
