"""The reader and writer, against the reference implementation."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file
from trtllm_standin.dtypes import Tensor, narrow, widen
from trtllm_standin.safetensors_io import CorruptFileError, SafetensorsFile, write_safetensors


def test_the_reference_implementation_reads_what_is_written(tmp_path: Path) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([-1, 7], np.int8),
    }
    formats = {"a": "F32", "b": "I8"}
    write_safetensors(
        tmp_path / "x", {name: Tensor(formats[name], array) for name, array in arrays.items()}, {"k": "v"}
    )
    read = load_file(tmp_path / "x")
    assert {name: array.tolist() for name, array in read.items()} == {n: a.tolist() for n, a in arrays.items()}


def test_it_reads_what_the_reference_implementation_writes(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float16)
    save_file({"w": array}, tmp_path / "x")
    assert np.array_equal(SafetensorsFile(tmp_path / "x")["w"].array, array)


@pytest.mark.parametrize("format_name", ["BF16", "F8_E4M3"])
def test_formats_that_numpy_lacks_survive(tmp_path: Path, format_name: str) -> None:
    tensor = narrow(np.linspace(-3, 3, 40, dtype=np.float32).reshape(8, 5), format_name)
    write_safetensors(tmp_path / "x", {"w": tensor}, {})
    assert np.array_equal(widen(SafetensorsFile(tmp_path / "x")["w"]), widen(tensor))


def test_a_cut_off_file_is_refused_with_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_file({"w": np.zeros(100, np.float32)}, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match=r"bytes where its header needs \d+"):
        SafetensorsFile(path)
    path.write_bytes(b"not safetensors at all")
    with pytest.raises(CorruptFileError, match="no safetensors header"):
        SafetensorsFile(path)
