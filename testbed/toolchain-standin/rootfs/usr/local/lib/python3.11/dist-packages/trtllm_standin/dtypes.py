"""Number formats that numpy lacks, rounded as the hardware rounds them (to nearest, ties to even).

bfloat16 and e4m3 arrays are held as their bit patterns (uint16, uint8) in a `Tensor`, which names the format.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
# Any array whose element type is one of the storage formats below.
Stored = npt.NDArray[np.generic]

# Storage formats under their safetensors names.
STORAGE: dict[str, np.dtype[np.generic]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "F8_E4M3": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
}
FLOAT_FORMATS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}

E4M3_MAX = 448.0  # largest finite value of e4m3fn: 1.75 * 2**8


@dataclass(frozen=True)
class Tensor:
    """An array and the format its bits are in, a key of STORAGE."""

    format: str
    array: Stored

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return self.array.nbytes


def to_bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    """Bit patterns of the nearest bfloat16; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    codes = rounded.astype(np.uint16)
    codes[np.isnan(values)] = 0x7FC0
    return codes


def from_bfloat16(codes: npt.NDArray[np.uint16]) -> Floats:
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_e4m3(values: Floats) -> npt.NDArray[np.uint8]:
    """Bit patterns of the nearest e4m3fn value; what is beyond +-448 saturates, as TensorRT's quantizer does."""
    finite = np.ascontiguousarray(np.clip(values, -E4M3_MAX, E4M3_MAX), dtype=np.float32)
    bits = finite.view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    # Normal values: drop 20 of float32's 23 mantissa bits, then move the exponent bias from 127 to 7.
    normal = ((magnitude + np.uint32(0x7FFFF) + ((magnitude >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)).astype(
        np.int32
    ) - ((127 - 7) << 3)
    # Below 2**-6 the step is a constant 2**-9; np.rint rounds ties to even.
    subnormal = np.rint(np.abs(finite) * np.float32(2**9)).astype(np.int32)
    codes = np.where(np.abs(finite) < np.float32(2**-6), subnormal, normal).astype(np.uint8)
    return codes | ((bits >> np.uint32(24)).astype(np.uint8) & np.uint8(0x80))


def _e4m3_table() -> Floats:
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 0xF, codes & 0x7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    magnitude[[0x7F, 0xFF]] = np.nan
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.float32)


_E4M3_VALUES = _e4m3_table()


def from_e4m3(codes: npt.NDArray[np.uint8]) -> Floats:
    return _E4M3_VALUES[codes]


def round_e4m3(values: Floats) -> Floats:
    return from_e4m3(to_e4m3(values))


def narrow(values: Floats, format_name: str) -> Tensor:
    """Round float32 values to a floating storage format."""
    if format_name == "F32":
        return Tensor("F32", np.ascontiguousarray(values, dtype=np.float32))
    if format_name == "F16":
        return Tensor("F16", np.ascontiguousarray(values, dtype=np.float16))
    if format_name == "BF16":
        return Tensor("BF16", to_bfloat16(values))
    if format_name == "F8_E4M3":
        return Tensor("F8_E4M3", to_e4m3(values))
    raise ValueError(f"{format_name} is not a floating storage format")


def widen(tensor: Tensor) -> Floats:
    """The values of a floating tensor as float32, exactly."""
    if tensor.format == "BF16":
        return from_bfloat16(tensor.array.view(np.uint16))
    if tensor.format == "F8_E4M3":
        return from_e4m3(tensor.array.view(np.uint8))
    return tensor.array.astype(np.float32)


def recast(tensor: Tensor, format_name: str) -> Tensor:
    """The same values in another floating format; the same object when nothing changes."""
    return tensor if tensor.format == format_name else narrow(widen(tensor), format_name)
