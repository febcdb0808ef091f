"""Types of fields that the spec and a target's overrides share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
Quantization = Literal["none", "fp8", "fp8_rowwise", "int8_wo", "int4_wo", "int4_awq", "int8_sq", "w4a8_awq", "nvfp4"]
KvCacheDtype = Literal["auto", "fp8", "int8"]
GroupSize = Literal[64, 128]
Ranks = Annotated[int, Field(ge=1, le=64)]
BatchSize = Annotated[int, Field(ge=1, le=65_536)]
TokenCount = Annotated[int, Field(ge=1, le=16_777_216)]
BeamWidth = Annotated[int, Field(ge=1, le=256)]
Percent = Annotated[int, Field(ge=1, le=99)]
QueueSize = Annotated[int, Field(ge=0, le=1_000_000)]
