"""The STAND-IN's rank<i>.engine: a stamp of what it was built with and on, and one rank's weights.

    bytes 0-31   magic
    32-39        length of the JSON header, little-endian
    40-          JSON header, padded to a multiple of 64
    then         the tensors, each aligned to 64 bytes

A real plan is opaque and says nothing of its rank; neither is the rank checked here.
"""

import json
import mmap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import NOTICE
from .dtypes import STORAGE, Tensor

MAGIC = b"LLMENGINE STAND-IN PLAN, NO GPU\n"
_LENGTH_BYTES = 8
_ALIGNMENT = 64


class PlanError(Exception):
    """The file is not a whole plan of the stand-in."""


@dataclass(frozen=True)
class PlanStamp:
    """What a plan is bound to."""

    tensorrt_version: str
    tensorrt_llm_version: str
    gpu_name: str
    compute_cap: str


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def serialize_plan(stamp: PlanStamp, rank: int, tensors: Mapping[str, Tensor]) -> bytearray:
    """The whole file in memory, as TensorRT holds a serialized engine before it is written."""
    entries: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        entries[name] = {"dtype": tensor.format, "shape": list(tensor.shape), "offset": offset}
        offset = _align(offset + tensor.nbytes)
    header = json.dumps(
        {"notice": NOTICE, "stamp": asdict(stamp), "rank": rank, "data_bytes": offset, "tensors": entries}
    ).encode()
    data_start = _align(len(MAGIC) + _LENGTH_BYTES + len(header))
    plan = bytearray(data_start + offset)
    plan[: len(MAGIC)] = MAGIC
    plan[len(MAGIC) : len(MAGIC) + _LENGTH_BYTES] = len(header).to_bytes(_LENGTH_BYTES, "little")
    plan[len(MAGIC) + _LENGTH_BYTES : len(MAGIC) + _LENGTH_BYTES + len(header)] = header
    for name, tensor in tensors.items():
        begin = data_start + entries[name]["offset"]
        plan[begin : begin + tensor.nbytes] = np.ascontiguousarray(tensor.array).reshape(-1).view(np.uint8).data
    return plan


class Plan:
    """One plan on disk. Tensors are views of the mapped file.

    Raises:
        PlanError: the file is cut off or is no plan.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise PlanError(f"{path} is not a plan of the STAND-IN")
            header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            try:
                header = json.loads(file.read(header_bytes))
            except ValueError as error:
                raise PlanError(f"{path} has an unreadable header: {error}") from error
            self._data_start = _align(len(MAGIC) + _LENGTH_BYTES + header_bytes)
            if size != self._data_start + header["data_bytes"]:
                raise PlanError(f"{path} has {size} bytes, its header says {self._data_start + header['data_bytes']}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.stamp = PlanStamp(**header["stamp"])
        self.rank: int = header["rank"]
        self.size_bytes = size
        self._entries: dict[str, dict[str, Any]] = header["tensors"]

    def tensors(self) -> dict[str, Tensor]:
        result = {}
        for name, entry in self._entries.items():
            dtype = STORAGE[entry["dtype"]]
            count = int(np.prod(entry["shape"], dtype=np.int64))
            array = np.frombuffer(self._map, dtype, count, self._data_start + entry["offset"])
            result[name] = Tensor(entry["dtype"], array.reshape(entry["shape"]))
        return result
