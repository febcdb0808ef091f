"""The GPUs this container sees, and whether they are the ones that were asked for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .report import StepError

_QUERY = ("name", "uuid", "compute_cap", "memory.total", "driver_version")
_SECONDS = 60
_NOT_IN_A_LABEL = re.compile(r"[^A-Za-z0-9\-_. ]")
_PRODUCT_SUFFIX = re.compile(r"(-MIG-.+|-SHARED)$")
"""What sharing and MIG add to the label; nvidia-smi names the whole GPU."""


@dataclass(frozen=True)
class Gpu:
    """One line of nvidia-smi."""

    name: str
    uuid: str
    compute_capability: str
    memory_mib: int | None
    """None where memory is unified and NVML has no answer."""
    driver_version: str

    def facts(self) -> dict[str, Any]:
        """As the manifest's `build` has them."""
        return {
            "gpu": self.name,
            "gpuUuid": self.uuid,
            "computeCapability": self.compute_capability,
            "gpuMemoryMiB": self.memory_mib,
            "driverVersion": self.driver_version,
        }


def label(name: str) -> str:
    """A GPU's name as GPU feature discovery writes it into `nvidia.com/gpu.product`."""
    return re.sub(r"\s+", "-", _NOT_IN_A_LABEL.sub("", name).strip())


def visible() -> tuple[Gpu, ...]:
    """The GPUs nvidia-smi shows. Raises StepError GpuUnavailable when it shows none."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(
            "GpuUnavailable",
            f"nvidia-smi does not run in this container ({error}). The container runtime has not given it a GPU: check "
            "the device plugin and the NVIDIA container runtime of the node.",
            retryable=True,
        ) from None
    rows = [[field.strip() for field in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or not rows:
        said = (answer.stdout + answer.stderr).strip() or "nothing"
        raise StepError(
            "GpuUnavailable", f"nvidia-smi shows no GPU (exit {answer.returncode}): {said[:500]}", retryable=True
        )
    try:
        return tuple(
            Gpu(name, uuid, cc, int(mib) if mib.isdecimal() else None, driver) for name, uuid, cc, mib, driver in rows
        )
    except ValueError:
        raise StepError("GpuUnavailable", f"nvidia-smi gave what is not a GPU: {answer.stdout.strip()[:500]}") from None


def require_count(gpus: Sequence[Gpu], count: int, *, what: str) -> None:
    """Check that there are enough GPUs."""
    if len(gpus) < count:
        raise StepError("GpuUnavailable", f"{what} needs {count} GPUs; this container sees {len(gpus)}", retryable=True)


def require(gpus: Sequence[Gpu], wanted: Mapping[str, str], count: int, *, what: str) -> None:
    """Check that there are enough GPUs and that all are of the wanted class.

    `wanted` is {"product": the node label's word, "computeCapability": "9.0"}; `what` names what is bound to it.
    """
    require_count(gpus, count, what=what)
    product = _PRODUCT_SUFFIX.sub("", wanted["product"])
    for gpu in gpus:
        if gpu.compute_capability != wanted["computeCapability"] or label(gpu.name) != product:
            raise StepError(
                "GpuMismatch",
                f"{what} is for {wanted['product']} (compute capability {wanted['computeCapability']}), but the node "
                f"has {gpu.name} (label {label(gpu.name)}, compute capability {gpu.compute_capability}). An engine "
                "runs on the GPU it was built for: check the node's labels nvidia.com/gpu.product and "
                "nvidia.com/gpu.compute.*.",
                retryable=True,
            )
