"""GPUs, by the product names that node labels carry."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from .history import Entry

ComputeCapability = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]


class Gpu(Entry):
    """One GPU product."""

    name: str
    """As `parse_product` leaves it: without NVIDIA- or Tesla-, MIG and sharing suffixes."""
    aliases: tuple[str, ...] = ()
    """Further names of a GPU that is the same for an engine."""
    architecture: str
    """As the label nvidia.com/gpu.family says it in its current version."""
    compute_capability: ComputeCapability
    memory_mib: Annotated[int, Field(gt=0)] | None
    """As nvidia-smi and the label nvidia.com/gpu.memory report it; None: not known."""
    memory_bandwidth_gb_per_second: Annotated[int, Field(gt=0)] | None = None
    link: Literal["nvlink", "pcie-bridge", "pcie", "c2c"]
    """How GPUs of one host reach each other; pcie: no link that is sure to give peer access."""
    max_gpus_per_node: Annotated[int, Field(ge=1)]
    cpu_architecture: Literal["amd64", "arm64"] = "amd64"
    mig_profiles: tuple[str, ...] = ()
    source: str


class ProductLabel(NamedTuple):
    """The parts of a value of the label nvidia.com/gpu.product."""

    name: str
    mig_profile: str | None
    shared: bool


_MIG = re.compile(r"-MIG-(?P<profile>[0-9A-Za-z.+-]+)$")


def parse_product(label: str) -> ProductLabel:
    """Take a product label apart: `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED` is an A100-SXM4-40GB's slice, shared."""
    shared = label.endswith("-SHARED")
    name = label.removesuffix("-SHARED")
    profile: str | None = None
    if found := _MIG.search(name):
        profile, name = found["profile"], name[: found.start()]
    return ProductLabel(name.removeprefix("NVIDIA-").removeprefix("Tesla-"), profile, shared)


def mig_memory_mib(profile: str) -> int | None:
    """Memory a MIG profile is named after (`1g.5gb`: 5 GB), in MiB of 2**20 bytes; None when the name has none."""
    found = re.search(r"\.([0-9]+)gb", profile)
    return int(found[1]) * 10**9 // 2**20 if found else None
