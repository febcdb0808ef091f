"""Rounding of weights to the stored formats of each quantization algorithm, and back.

Names and shapes are those of a TensorRT-LLM checkpoint: `X.weight`, `X.per_channel_scale`, `X.weights_scaling_factor`,
`X.activation_scaling_factor`, `X.prequant_scaling_factor`. The layout inside `X.weight` is plain row-major: the real
one is permuted for the GPU's matrix instructions.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .dtypes import E4M3_MAX, Floats, Tensor, from_e4m3, narrow, to_e4m3, widen

INT8_MAX = 127.0
INT4_MAX = 7.0

# Lowest compute capability at which TensorRT builds the algorithm.
MIN_SM = {"FP8": 89, "FP8_PER_CHANNEL_PER_TOKEN": 89, "W4A8_AWQ": 89, "NVFP4": 100}
SUPPORTED = (None, "W8A16", "W4A16", "W4A16_AWQ", "FP8", "FP8_PER_CHANNEL_PER_TOKEN")
# Of these the activations that enter a matrix product are rounded to e4m3 as well.
FP8_ALGORITHMS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN")


def quantize_linear(
    name: str,
    weight: Floats,
    algorithm: str | None,
    *,
    dtype_format: str,
    group_size: int = 128,
    activation_scale: float = 1.0,
    prequant_scale: Floats | None = None,
) -> dict[str, Tensor]:
    """The stored tensors of one linear layer.

    Args:
        name: the layer's name without `.weight`.
        weight: (out features, in features) of one rank.
        algorithm: a value of TensorRT-LLM's QuantAlgo, or None for no quantization.
        dtype_format: storage format of what stays a floating-point number.
        group_size: columns that share a scale (W4A16_AWQ).
        activation_scale: static scale of the inputs (FP8), from calibration.
        prequant_scale: factor per input column, applied to the inputs (W4A16_AWQ), from calibration.
    """
    if algorithm is None:
        return {f"{name}.weight": narrow(weight, dtype_format)}
    if algorithm in ("W8A16", "W4A16"):
        limit = INT8_MAX if algorithm == "W8A16" else INT4_MAX
        scale = np.maximum(np.abs(weight).max(axis=1), 1e-12) / limit
        codes = np.clip(np.rint(weight / scale[:, None]), -limit - 1, limit).astype(np.int8).T
        return {
            f"{name}.weight": Tensor("I8", codes if algorithm == "W8A16" else _pack_int4(codes)),
            f"{name}.per_channel_scale": narrow(scale, dtype_format),
        }
    if algorithm == "W4A16_AWQ":
        columns = weight.shape[1]
        if columns % group_size:
            raise ValueError(
                f"Weight shape is not divisible for block size for block quantization: {name} has {columns} input "
                f"columns per rank, block size {group_size}"
            )
        prequant = np.ones(columns, np.float32) if prequant_scale is None else prequant_scale
        groups = (weight / prequant).reshape(weight.shape[0], -1, group_size)
        scale = np.maximum(np.abs(groups).max(axis=2), 1e-12) / INT4_MAX
        codes = np.clip(np.rint(groups / scale[:, :, None]), -INT4_MAX - 1, INT4_MAX).astype(np.int8)
        return {
            f"{name}.weight": Tensor("I8", _pack_int4(codes.reshape(weight.shape).T)),
            f"{name}.weights_scaling_factor": narrow(scale.T, dtype_format),
            f"{name}.prequant_scaling_factor": narrow(prequant, dtype_format),
        }
    if algorithm == "FP8":
        factor = max(float(np.abs(weight).max()), 1e-12) / E4M3_MAX
        return {
            f"{name}.weight": Tensor("F8_E4M3", to_e4m3(weight / np.float32(factor))),
            f"{name}.weights_scaling_factor": Tensor("F32", np.array([factor], np.float32)),
            f"{name}.activation_scaling_factor": Tensor("F32", np.array([activation_scale], np.float32)),
        }
    if algorithm == "FP8_PER_CHANNEL_PER_TOKEN":
        row_scale = np.maximum(np.abs(weight).max(axis=1), 1e-12) / np.float32(E4M3_MAX)
        return {
            f"{name}.weight": Tensor("F8_E4M3", to_e4m3(weight / row_scale[:, None])),
            f"{name}.per_channel_scale": Tensor("F32", row_scale.astype(np.float32)),
        }
    raise NotImplementedError(f"STAND-IN: quantization {algorithm} is not implemented")


def dequantize_linear(name: str, tensors: Mapping[str, Tensor], algorithm: str | None) -> Floats:
    """The weight that a quantized layer really multiplies by, (out features, in features)."""
    weight = tensors[f"{name}.weight"]
    if algorithm is None:
        return widen(weight)
    if algorithm in ("W8A16", "W4A16"):
        codes = weight.array if algorithm == "W8A16" else _unpack_int4(weight.array)
        return codes.T.astype(np.float32) * widen(tensors[f"{name}.per_channel_scale"])[:, None]
    if algorithm == "W4A16_AWQ":
        codes4: Floats = _unpack_int4(weight.array).T.astype(np.float32)
        scale = widen(tensors[f"{name}.weights_scaling_factor"]).T
        grouped: Floats = codes4.reshape(codes4.shape[0], scale.shape[1], -1) * scale[:, :, None]
        return grouped.reshape(codes4.shape) * widen(tensors[f"{name}.prequant_scaling_factor"])
    codes8 = from_e4m3(weight.array.view(np.uint8))
    if algorithm == "FP8":
        return codes8 * widen(tensors[f"{name}.weights_scaling_factor"])
    return codes8 * widen(tensors[f"{name}.per_channel_scale"])[:, None]


def _pack_int4(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Two neighbouring columns per byte, the even one in the low half."""
    halves = codes.astype(np.uint8) & np.uint8(0xF)
    return (halves[:, 0::2] | (halves[:, 1::2] << np.uint8(4))).view(np.int8)


def _unpack_int4(packed: npt.NDArray[np.generic]) -> npt.NDArray[np.int8]:
    raw = np.ascontiguousarray(packed).view(np.int8)
    codes = np.empty((raw.shape[0], raw.shape[1] * 2), np.int8)
    codes[:, 0::2] = np.left_shift(raw, 4) >> 4
    codes[:, 1::2] = raw >> 4
    return codes
