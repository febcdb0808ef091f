"""What GPU feature discovery and NVIDIA's device plugin would say of a node's GPUs. Pure.

After k8s-device-plugin v0.20.0: internal/lm (labels), internal/resource (MIG and sharing), in that project's own words.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from testbed.cluster.config import Gpu, Node

MACHINE = "llmengine-stand-in"
# Any fixed namespace makes the UUIDs the same on every run.
UUID_NAMESPACE = uuid.UUID("8f1e4b0a-7c52-4f43-9a53-6f7b3f0c2d11")
FAMILIES = {
    (1,): "tesla",
    (2,): "fermi",
    (3,): "kepler",
    (5,): "maxwell",
    (6,): "pascal",
    (7, 0): "volta",
    (7, 2): "volta",
    (7, 5): "turing",
    (8, 9): "ada-lovelace",
    (8,): "ampere",
    (9,): "hopper",
    (10,): "blackwell",
    (12,): "blackwell",
    (13,): "rubin",
}


def labels(gpu: Gpu) -> dict[str, str]:
    """The node labels of GPU feature discovery, without its timestamp."""
    major, minor = gpu.compute_capability.split(".")
    driver = [*gpu.driver.split("."), ""][:3]
    cuda_major, cuda_minor = gpu.cuda.split(".")
    replicas = gpu.sharing.replicas if gpu.sharing else 1
    product, count, memory_mib = sanitise(gpu.name), gpu.count, gpu.memory_mib
    found = {
        "nvidia.com/cuda.driver-version.full": gpu.driver,
        "nvidia.com/cuda.driver-version.major": driver[0],
        "nvidia.com/cuda.driver-version.minor": driver[1],
        "nvidia.com/cuda.driver-version.revision": driver[2],
        "nvidia.com/cuda.driver.major": driver[0],
        "nvidia.com/cuda.driver.minor": driver[1],
        "nvidia.com/cuda.driver.rev": driver[2],
        "nvidia.com/cuda.runtime-version.full": gpu.cuda,
        "nvidia.com/cuda.runtime-version.major": cuda_major,
        "nvidia.com/cuda.runtime-version.minor": cuda_minor,
        "nvidia.com/cuda.runtime.major": cuda_major,
        "nvidia.com/cuda.runtime.minor": cuda_minor,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.family": family(int(major), int(minor)),
        "nvidia.com/gpu.machine": MACHINE,
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.sharing-strategy": gpu.sharing.strategy if gpu.sharing else "none",
        "nvidia.com/mig.capable": str(mig_capable(gpu)).lower(),
        "nvidia.com/mps.capable": str(gpu.sharing is not None and gpu.sharing.strategy == "mps").lower(),
        "nvidia.com/vgpu.present": "false",
    }
    if gpu.mig:
        found["nvidia.com/mig.strategy"] = gpu.mig.strategy
        profile = gpu.mig.profile.replace("+", ".")
        slices = gpu.count * gpu.mig.instances
        shared = "-SHARED" if gpu.sharing else ""
        if gpu.mig.strategy == "single":
            product, count, memory_mib = f"{product}-MIG-{profile}", slices, gpu.mig.memory_mib
        else:
            prefix = f"nvidia.com/mig-{profile}"
            found |= {
                f"{prefix}.count": str(slices),
                f"{prefix}.memory": str(gpu.mig.memory_mib),
                f"{prefix}.product": f"{product}-MIG-{profile}{shared}",
                f"{prefix}.replicas": str(replicas),
                f"{prefix}.sharing-strategy": gpu.sharing.strategy if gpu.sharing else "none",
            }
            # Parents offer nothing themselves.
            replicas = 0
    if gpu.sharing and replicas:
        product += "-SHARED"
    return found | {
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.replicas": str(replicas),
    }


def sanitise(name: str) -> str:
    """A name as a label value: other characters dropped, blanks to one hyphen."""
    return re.sub(r"\s+", "-", re.sub(r"[^A-Za-z0-9\-_. ]", "", name).strip())


def family(major: int, minor: int) -> str:
    """The architecture's name, `undefined` where feature discovery has none."""
    return FAMILIES.get((major, minor)) or FAMILIES.get((major,), "undefined")


def mig_capable(gpu: Gpu) -> bool:
    """Whether the GPU can be partitioned: A100 and A30, H100 and H200, B200 and B300, RTX PRO 6000."""
    return gpu.compute_capability in {"8.0", "9.0", "10.0", "10.3", "12.0"}


def devices(node: Node) -> dict[str, list[dict[str, Any]]]:
    """What the device plugin offers: resource name to devices, each with what nvidia-smi would say of its GPU."""
    gpu = node.gpu
    if gpu is None:
        return {}
    resource = "nvidia.com/gpu"
    slices: list[tuple[str, int]] = []
    for index in range(gpu.count):
        parent = str(uuid.uuid5(UUID_NAMESPACE, f"{node.name}/{index}"))
        if gpu.mig is None:
            slices.append((f"GPU-{parent}", gpu.memory_mib))
            continue
        if gpu.mig.strategy == "mixed":
            resource = f"nvidia.com/mig-{gpu.mig.profile.replace('+', '.')}"
        for instance in range(gpu.mig.instances):
            slice_id = uuid.uuid5(UUID_NAMESPACE, f"{node.name}/{index}/{instance}")
            slices.append((f"MIG-{slice_id}", gpu.mig.memory_mib))
    found: list[dict[str, Any]] = []
    for index, (identifier, memory_mib) in enumerate(slices):
        described = {
            "index": index,
            "uuid": identifier,
            "name": gpu.name,
            "compute_cap": gpu.compute_capability,
            "memory_total_mib": memory_mib,
            "memory_reserved_mib": 0 if gpu.mig else gpu.memory_reserved_mib,
            "driver_version": gpu.driver,
        }
        if gpu.sharing is None:
            found.append({"id": identifier, "gpu": described})
        else:
            # NVIDIA's plugin names a share by its GPU and a number.
            found += [{"id": f"{identifier}::{share}", "gpu": described} for share in range(gpu.sharing.replicas)]
    return {resource: found}
