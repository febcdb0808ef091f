"""The GPU that a plan is for, from the catalog or from what a node says of itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..api.engineartifact import GpuClass
from ..catalog import Gpu, parse_product
from ..catalog.gpus import mig_memory_mib


@dataclass(frozen=True)
class TargetGpu:
    """One GPU as a Pod sees it, and how many of them one node offers."""

    product: str
    """As the node label says it."""
    compute_capability: str
    memory_mib: int | None
    """None: not known, and no verdict on memory is given."""
    gpus_per_node: int | None = None
    """Most GPUs that one node offers to one Pod; None: not known."""
    peer_access: bool | None = None
    """Whether GPUs of one node can surely reach each other's memory; None: not known."""
    mig_profile: str | None = None
    shared: bool = False
    """Time-sliced or MPS: the memory belongs to other tenants too."""

    @classmethod
    def of(
        cls, gpu: Gpu, product: str | None = None, *, memory_mib: int | None = None, gpus_per_node: int | None = None
    ) -> TargetGpu:
        """A catalog entry under the product label of a node, whose own memory and count win where they are given."""
        label = product or f"NVIDIA-{gpu.name}"
        parts = parse_product(label)
        whole = gpu.memory_mib if parts.mig_profile is None else mig_memory_mib(parts.mig_profile)
        per_node = gpu.max_gpus_per_node if gpus_per_node is None else gpus_per_node
        return cls(
            product=label,
            compute_capability=gpu.compute_capability,
            memory_mib=whole if memory_mib is None else memory_mib,
            gpus_per_node=1 if parts.mig_profile is not None else per_node,
            peer_access={"nvlink": True, "c2c": True, "pcie-bridge": None, "pcie": False}[gpu.link],
            mig_profile=parts.mig_profile,
            shared=parts.shared,
        )

    @classmethod
    def of_class(
        cls, gpu: GpuClass, known: Gpu | None, *, memory_mib: int | None = None, gpus_per_node: int | None = None
    ) -> TargetGpu:
        """A class that nodes or a revision name, with what nodes say of it; the catalog's entry fills the gaps."""
        parts = parse_product(gpu.product)
        if known is None:
            slice_ = parts.mig_profile is not None
            return cls(
                product=gpu.product,
                compute_capability=gpu.compute_capability,
                memory_mib=memory_mib,
                gpus_per_node=1 if slice_ else gpus_per_node,
                mig_profile=parts.mig_profile,
                shared=parts.shared,
            )
        described = cls.of(known, gpu.product, memory_mib=memory_mib, gpus_per_node=gpus_per_node)
        return replace(described, compute_capability=gpu.compute_capability)


def capability_order(compute_capability: str) -> tuple[int, int]:
    """Sort key: 9.0 comes before 10.0."""
    major, minor = compute_capability.split(".")
    return int(major), int(minor)
