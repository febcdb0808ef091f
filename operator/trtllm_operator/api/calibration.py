"""How a quantization that looks at activations gets to see some."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .common import PersistentVolumeClaimDirectory
from .markers import Object


class CalibrationDataset(Object):
    """Sample texts for calibration."""

    persistent_volume_claim: PersistentVolumeClaimDirectory
    """A directory on a claim with .jsonl or .txt files; a row of .jsonl has its text under `text`. They are
    inspected once, and their contents are part of the checkpoint's key: other texts belong into another directory."""


class Calibration(Object):
    """How a quantization that looks at activations sees them (fp8, int4_awq, int8_sq, w4a8_awq, nvfp4)."""

    dataset: CalibrationDataset | None = None
    """Texts like those that will be served; by default a small set of English texts that comes with the operator."""
    samples: Annotated[int, Field(ge=1, le=100_000)] = 512
    """Texts to run, as far as there are as many."""
    max_seq_len: Annotated[int, Field(ge=8, le=131_072)] = 512
    """Tokens of a text that are run."""
