"""Which GPUs this process sees: what the stand-in device plugin wrote into the container's environment."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

GPUS_ENV = "LLMENGINE_STANDIN_GPUS"


@dataclass(frozen=True)
class Gpu:
    """One stand-in GPU. `memory_reserved_mib` is taken before any process runs."""

    index: int
    uuid: str
    name: str
    compute_cap: str
    memory_total_mib: int
    memory_reserved_mib: int
    driver_version: str

    @property
    def sm(self) -> int:
        """Compute capability as TensorRT-LLM writes it: 8.9 is 89, 10.0 is 100."""
        major, minor = self.compute_cap.split(".")
        return int(major) * 10 + int(minor)

    @property
    def memory_free_bytes(self) -> int:
        return (self.memory_total_mib - self.memory_reserved_mib) * 2**20


class NoDriverError(Exception):
    """The environment has no list of GPUs: this container was given none."""


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """The GPUs of this container, in order.

    Raises:
        NoDriverError: no GPU was allocated to the container.
        ValueError: the variable is there and is not a list of GPUs.
    """
    text = environ.get(GPUS_ENV)
    if not text:
        raise NoDriverError
    try:
        entries = json.loads(text)
        return tuple(
            Gpu(
                index=int(entry["index"]),
                uuid=str(entry["uuid"]),
                name=str(entry["name"]),
                compute_cap=str(entry["compute_cap"]),
                memory_total_mib=int(entry["memory_total_mib"]),
                memory_reserved_mib=int(entry["memory_reserved_mib"]),
                driver_version=str(entry["driver_version"]),
            )
            for entry in entries
        )
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{GPUS_ENV} is not a JSON list of GPUs ({error!r}): {text[:200]}") from error


def device_count(environ: Mapping[str, str] = os.environ) -> int:
    try:
        return len(visible_gpus(environ))
    except NoDriverError:
        return 0
