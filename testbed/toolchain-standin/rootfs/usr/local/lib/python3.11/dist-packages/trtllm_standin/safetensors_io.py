"""Reader and writer of the safetensors format, for number formats that numpy lacks too.

The format: 8 bytes little-endian length of a JSON header, the header, the tensors' bytes.
https://github.com/huggingface/safetensors#format
"""

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .dtypes import STORAGE, Tensor

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # limit of the reference implementation


class CorruptFileError(Exception):
    """The file is not a whole safetensors file."""


class SafetensorsFile:
    """One open file. Tensors are views of the mapped file: nothing is read until it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES or header_bytes > min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
                raise CorruptFileError(f"{path}: no safetensors header ({size} bytes)")
            try:
                header = json.loads(file.read(header_bytes))
            except ValueError as error:
                raise CorruptFileError(f"{path}: unreadable safetensors header: {error}") from error
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._data_start = _LENGTH_BYTES + header_bytes
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._entries: dict[str, dict[str, Any]] = header
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if self._data_start + end > size:
            raise CorruptFileError(f"{path}: {size} bytes where its header needs {self._data_start + end}")

    def names(self) -> list[str]:
        return list(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Tensor:
        entry = self._entries[name]
        format_name = str(entry["dtype"])
        if format_name not in STORAGE:
            raise CorruptFileError(
                f"{self.path}: tensor {name} has dtype {format_name}, which the STAND-IN cannot read"
            )
        shape = tuple(entry["shape"])
        begin = entry["data_offsets"][0]
        array = np.frombuffer(self._map, STORAGE[format_name], math.prod(shape), self._data_start + begin)
        return Tensor(format_name, array.reshape(shape))


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the tensors in the mapping's order."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": tensor.format, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-(len(encoded) + _LENGTH_BYTES) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(_LENGTH_BYTES, "little"))
        file.write(encoded)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor.array).data)
