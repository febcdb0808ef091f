"""Number formats, against values from their specifications."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trtllm_standin.dtypes import from_bfloat16, from_e4m3, round_e4m3, to_bfloat16, to_e4m3


@pytest.mark.parametrize(
    ("value", "code"),
    [
        # OCP 8-bit floating point specification, table 1 (E4M3).
        (448.0, 0b0_1111_110),
        (2.0**-6, 0b0_0001_000),
        (0.875 * 2.0**-6, 0b0_0000_111),
        (2.0**-9, 0b0_0000_001),
        (0.0, 0),
        (1.0, 0b0_0111_000),
        (-1.5, 0b1_0111_100),
    ],
)
def test_e4m3_has_the_specified_bits(value: float, code: int) -> None:
    assert to_e4m3(np.array([value], np.float32))[0] == code
    assert from_e4m3(np.array([code], np.uint8))[0] == value


def test_e4m3_saturates_and_rounds_ties_to_even() -> None:
    values = np.array([1e6, -1e6, 17.0, 19.0, 1.5 * 2.0**-9, 0.4 * 2.0**-9], np.float32)
    assert round_e4m3(values).tolist() == [448.0, -448.0, 16.0, 20.0, 2 * 2.0**-9, 0.0]


@given(st.floats(-448, 448, width=32))
def test_e4m3_is_the_nearest_value(value: float) -> None:
    every = from_e4m3(np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8))
    rounded = round_e4m3(np.array([value], np.float32))[0]
    assert abs(rounded - np.float32(value)) == np.abs(every - np.float32(value)).min()


@pytest.mark.parametrize(
    ("value", "code"), [(1.0, 0x3F80), (-2.0, 0xC000), (3.140625, 0x4049), (1.00390625, 0x3F80), (1.01171875, 0x3F82)]
)
def test_bfloat16_rounds_to_even(value: float, code: int) -> None:
    assert to_bfloat16(np.array([value], np.float32))[0] == code


def test_bfloat16_keeps_nan_and_infinity() -> None:
    values = from_bfloat16(to_bfloat16(np.array([np.nan, np.inf, -np.inf], np.float32)))
    assert np.isnan(values[0])
    assert values[1:].tolist() == [np.inf, -np.inf]
