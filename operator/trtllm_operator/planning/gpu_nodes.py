"""What one node says of its GPUs: what Pods can ask for there, and why that is less than it might be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..api.common import NodePlacement, Toleration
from ..api.engineartifact import DEFAULT_CPU_ARCHITECTURE, GpuClass
from ..catalog import Catalog, parse_product
from ..objects import (
    COUNT_LABEL,
    CPU_ARCHITECTURE_LABEL,
    GPU_RESOURCE,
    MAJOR_LABEL,
    MEMORY_LABEL,
    MIG_RESOURCE_PREFIX,
    MINOR_LABEL,
    PRODUCT_LABEL,
    Obj,
)

SHARED_RESOURCE = "nvidia.com/gpu.shared"
"""What a device plugin with renameByDefault offers in place of GPU_RESOURCE."""
REPLICAS_LABEL, SHARING_LABEL = "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
MIG_STRATEGY_LABEL, MIG_STATE_LABEL = "nvidia.com/mig.strategy", "nvidia.com/mig.config.state"
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
INVALID_MIG = "INVALID"
PROVIDER_LABELS = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "karpenter.azure.com/sku-gpu-name",
    "kubernetes.azure.com/accelerator",
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
)
"""Labels that tell of a GPU without saying what an engine depends on, in the order in which they say most."""
_MIG_PRODUCT = re.compile(r"^nvidia\.com/mig-(?P<profile>.+)\.product$")


@dataclass(frozen=True)
class Offer:
    """GPUs of one class on one node."""

    gpu: GpuClass
    count: int | None
    """GPUs that Pods may have there: allocatable, or the label where the node's status is not known; None: unknown."""
    memory_mib: int | None
    """Of one GPU or slice; None where NVML has no answer."""

    @property
    def shared(self) -> bool:
        """Time-sliced or MPS: other tenants use the same memory."""
        return parse_product(self.gpu.product).shared


@dataclass(frozen=True)
class GpuNode:
    """One node, as far as its GPUs go."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Obj, ...]
    offers: tuple[Offer, ...]
    problem: str | None
    """Why GPUs that the node has are not among its offers, in words that go on from the node's name."""
    obstacle: str | None
    """Why no Pod can start there now, whatever it asks for, in words that go on from the node's name."""

    @property
    def driver(self) -> str | None:
        return self.labels.get(DRIVER_LABEL)

    def closed_to(self, placement: NodePlacement) -> str | None:
        """Why a Pod with this node selector and these tolerations cannot go there; None: it can."""
        for key, value in (placement.node_selector or {}).items():
            if self.labels.get(key) != value:
                return f"has not the label {key}={value} of the node selector"
        for taint in self.taints:
            if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, placement.tolerations):
                value = f"={taint['value']}" if taint.get("value") else ""
                return f"has the taint {taint['key']}{value}:{taint['effect']}, which nothing in the spec tolerates"
        return self.obstacle


def read_node(node: Obj) -> GpuNode:
    """What a node's labels and status say. Without a status (labels alone) it counts as ready and complete.

    Never raises: all LLMEngines read all nodes, and whoever labels one must not stop the others.
    """
    try:
        return _read_node(node)
    except (AttributeError, KeyError, TypeError, ValueError):
        meta = node.get("metadata") if isinstance(node, Mapping) else None
        name = str(meta.get("name", "")) if isinstance(meta, Mapping) else ""
        problem = f"has labels or a status that describe no GPU: see its labels {PRODUCT_LABEL} and {MAJOR_LABEL}"
        return GpuNode(name=name, labels={}, taints=(), offers=(), problem=problem, obstacle=None)


def _read_node(node: Obj) -> GpuNode:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    spec, status = node.get("spec") or {}, node.get("status") or {}
    offers, problem = _offers(labels, _gpu_resources(status.get("allocatable")))
    return GpuNode(
        name=node["metadata"]["name"],
        labels=labels,
        # The node controller's own taints say what `obstacle` says better.
        taints=tuple(t for t in spec.get("taints") or () if not t["key"].startswith("node.kubernetes.io/")),
        offers=tuple(offers),
        problem=problem,
        obstacle=_obstacle(node, labels),
    )


class _CatalogNode(GpuNode):
    """A node that nobody has seen: it is taken for one with the labels that a selector asks for."""

    def closed_to(self, placement: NodePlacement) -> str | None:
        return None


def catalog_nodes(catalog: Catalog) -> list[GpuNode]:
    """A node for each GPU of the catalog, for a plan without a cluster."""
    return [
        _CatalogNode(
            name="catalog",
            labels={},
            taints=(),
            offers=(
                Offer(
                    GpuClass(
                        product=f"NVIDIA-{gpu.name}",
                        compute_capability=gpu.compute_capability,
                        cpu_architecture=gpu.cpu_architecture,
                    ),
                    gpu.max_gpus_per_node,
                    gpu.memory_mib,
                ),
            ),
            problem=None,
            obstacle=None,
        )
        for gpu in catalog.gpus
    ]


def _obstacle(node: Obj, labels: Mapping[str, str]) -> str | None:
    if "deletionTimestamp" in node["metadata"]:
        return "is being removed"
    conditions = (node.get("status") or {}).get("conditions") or ()
    if any(c["type"] == "Ready" and c["status"] != "True" for c in conditions):
        return "is not ready"
    if (node.get("spec") or {}).get("unschedulable"):
        return "is cordoned"
    if labels.get(MIG_STATE_LABEL) in ("pending", "rebooting"):
        return f"is changing its MIG layout ({MIG_STATE_LABEL}={labels[MIG_STATE_LABEL]})"
    return None


def _gpu_resources(allocatable: Mapping[str, str] | None) -> Mapping[str, int] | None:
    """Allocatable GPUs and slices by resource; None when the node's status is not known."""
    if allocatable is None:
        return None
    kinds = (GPU_RESOURCE, SHARED_RESOURCE)
    return {
        name: int(value) if str(value).isdecimal() else 0
        for name, value in allocatable.items()
        if name in kinds or name.startswith(MIG_RESOURCE_PREFIX)
    }


def _offers(labels: Mapping[str, str], resources: Mapping[str, int] | None) -> tuple[list[Offer], str | None]:
    """The offers, and what is wrong with what is not offered."""
    product = labels.get(PRODUCT_LABEL)
    if not product:
        return [], _undescribed(labels, resources)
    if not labels.get(MAJOR_LABEL, "").isdecimal():
        return [], f"has {product} but no label {MAJOR_LABEL}, which GPU feature discovery writes"
    if parse_product(product).mig_profile == INVALID_MIG:
        return [], f"has {PRODUCT_LABEL}={product}: its MIG layout is not one that the strategy single allows"
    if problem := _hidden_sharing(labels, product, resources) or _several_products(labels, product, resources):
        return [], problem
    offers = list(_slices(labels, resources))
    mixed = labels.get(MIG_STRATEGY_LABEL) == "mixed"
    count = resources.get(GPU_RESOURCE, 0) if resources is not None else _number(labels, COUNT_LABEL)
    if mixed and (count == 0 or (resources is None and labels.get(REPLICAS_LABEL) == "0")):
        return offers, None  # every GPU is cut into slices
    offers.insert(0, Offer(_class(labels, product), count, _number(labels, MEMORY_LABEL)))
    return offers, None


def _undescribed(labels: Mapping[str, str], resources: Mapping[str, int] | None) -> str | None:
    offered = [f"{count} {name}" for name, count in (resources or {}).items() if count]
    said = next((f"{key}={labels[key]}" for key in PROVIDER_LABELS if key in labels), None)
    if not offered and not said:
        return None
    has = f"offers {', '.join(offered)}" if offered else "has a GPU"
    hint = f" ({said} does not say enough)" if said else ""
    return (
        f"{has} but has no label {PRODUCT_LABEL}{hint}: GPU feature discovery, a part of NVIDIA's GPU Operator, "
        "is missing there or began before the driver was ready"
    )


def _hidden_sharing(labels: Mapping[str, str], product: str, resources: Mapping[str, int] | None) -> str | None:
    """Sharing that the product's name does not tell, as the device plugin's renameByDefault has it."""
    strategy = labels.get(SHARING_LABEL, "")
    if parse_product(product).shared or labels.get(MIG_STRATEGY_LABEL) == "mixed":
        return None
    renamed = resources is not None and resources.get(SHARED_RESOURCE, 0) > 0 and not resources.get(GPU_RESOURCE)
    several = (_number(labels, REPLICAS_LABEL) or 1) > 1
    if not renamed and not (several and strategy not in ("", "none")):
        return None
    return f"shares each {product} between Pods as {SHARED_RESOURCE} ({strategy or 'sharing'}): none can be had whole"


def _several_products(labels: Mapping[str, str], product: str, resources: Mapping[str, int] | None) -> str | None:
    """The labels describe one product: more GPUs than it has means that there are others."""
    count = _number(labels, COUNT_LABEL)
    if resources is None or count is None or labels.get(MIG_STRATEGY_LABEL) == "mixed":
        return None
    described, offered = count * max(_number(labels, REPLICAS_LABEL) or 1, 1), resources.get(GPU_RESOURCE, 0)
    if offered <= described:
        return None
    return (
        f"offers {offered} {GPU_RESOURCE} of which {described} are {product} by its labels: it has several products, "
        "which labels cannot tell apart"
    )


def _slices(labels: Mapping[str, str], resources: Mapping[str, int] | None) -> Iterator[Offer]:
    """MIG slices that have a resource of their own (strategy mixed)."""
    for key, product in sorted(labels.items()):
        if found := _MIG_PRODUCT.match(key):
            prefix = f"{MIG_RESOURCE_PREFIX}{found['profile']}"
            count = resources.get(prefix, 0) if resources is not None else _number(labels, f"{prefix}.count")
            yield Offer(_class(labels, product, prefix), count, _number(labels, f"{prefix}.memory"))


def _class(labels: Mapping[str, str], product: str, resource: str = GPU_RESOURCE) -> GpuClass:
    minor = labels.get(MINOR_LABEL, "0")
    return GpuClass(
        product=product,
        compute_capability=f"{labels[MAJOR_LABEL]}.{minor if minor.isdecimal() else 0}",
        cpu_architecture=labels.get(CPU_ARCHITECTURE_LABEL, DEFAULT_CPU_ARCHITECTURE),
        resource=resource,
    )


def _number(labels: Mapping[str, str], key: str) -> int | None:
    value = labels.get(key, "")
    return int(value) if value.isdecimal() else None


def _tolerated(taint: Obj, tolerations: tuple[Toleration, ...]) -> bool:
    """As the scheduler matches; Pods that ask for a GPU tolerate the taint of GPU nodes by themselves."""
    if taint["key"] == GPU_RESOURCE and taint["effect"] == "NoSchedule":
        return True
    for one in tolerations:
        if one.effect not in (None, taint["effect"]):
            continue
        if one.key in (None, taint["key"]) and (
            one.operator == "Exists" or (one.key is not None and (one.value or "") == (taint.get("value") or ""))
        ):
            return True
    return False
