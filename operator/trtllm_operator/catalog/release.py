"""One release as the planner sees it: every history of the catalog resolved to the values of its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .schema import (
    ConversionEntry,
    DefectEntry,
    FlagType,
    ImageEntry,
    KnownFailure,
    Scalar,
    SourceCheckpoint,
    Status,
    Tool,
)


@dataclass(frozen=True)
class Flag:
    """One flag of a command in one release."""

    name: str
    type: FlagType
    choices: tuple[str, ...]
    default: Scalar
    aliases: tuple[str, ...]
    note: str
    extra: bool = False
    """Whether spec.build.extraFlags may give it."""


@dataclass(frozen=True)
class Command:
    """A command of the toolchain image."""

    name: str
    program: tuple[str, ...] | None
    """How it is called in the image; None: not known."""
    needs_gpu: bool
    flags: Mapping[str, Flag]
    conversion: ConversionEntry
    source: str


@dataclass(frozen=True)
class Format:
    """A format of the weights: what spec.precision.quantization names."""

    name: str
    quant_algo: str | None
    weight_bits: int | None
    group_size: int | None
    group_sizes: tuple[int, ...]
    scale_bytes_per_group: int
    scale_bytes_per_output_channel: int
    tool: Tool
    arguments: tuple[str, ...]
    families: tuple[str, ...]
    paged_context_fmha_with_fp8_kv_cache: bool
    compute_capabilities: tuple[str, ...]
    unproven: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class KvCacheFormat:
    """A format of the KV cache: what spec.precision.kvCache names."""

    name: str
    quant_algo: str
    bits: int
    convert_arguments: tuple[str, ...]
    quantize_arguments: tuple[str, ...]
    paged_context_fmha: Literal["fp8-weights", "never"]
    needs_calibration: bool
    compute_capabilities: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Family:
    """Models that one script converts."""

    name: str
    architectures: tuple[str, ...]
    command: str | None
    refused: str
    arguments: tuple[str, ...]
    conversion_needs_gpu: bool
    unconverted_formats: Mapping[str, str]
    unconverted_kv_caches: Mapping[str, str]
    undivided: Mapping[Literal["tensor", "pipeline"], str]
    copied_kv_heads: Literal["all", "one"]
    divided_embedding: bool
    padded_vocabulary: bool
    free_head_size: bool
    most_tokens: int | None
    positions: Literal["rotary", "learned", "alibi"]
    mixture_of_experts: bool
    quantization_formats: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Placeholder:
    """A value of a Triton model's config.pbtxt template."""

    name: str
    required: bool


@dataclass(frozen=True)
class Field:
    """A field of a request to a Triton model, or of its answer."""

    name: str
    type: str
    required: bool


@dataclass(frozen=True)
class Release:
    """A TensorRT-LLM release: image, commands, what it supports and what is wrong with it."""

    name: str
    line: str
    status: Status
    reason: str
    instead: str | None
    images: tuple[ImageEntry, ...]
    tensorrt: str | None
    cuda: str | None
    driver: str | None
    python: str | None
    image_bytes: int | None
    compute_capabilities: tuple[str, ...]
    beta_compute_capabilities: tuple[str, ...]
    head_sizes: tuple[int, ...]
    uneven_pipeline_stages: bool
    kv_head_duplication: bool
    gpus_per_node: int
    """What the engine's mapping holds when nothing else is said; the runtime checks it for larger worlds."""
    commands: Mapping[str, Command]
    formats: Mapping[str, Format]
    kv_cache_formats: Mapping[str, KvCacheFormat]
    known_failures: tuple[KnownFailure, ...]
    source_checkpoints: tuple[SourceCheckpoint, ...]
    families: Mapping[str, Family]
    templates: Mapping[str, tuple[Placeholder, ...]]
    request_fields: Mapping[str, tuple[Field, ...]]
    response_fields: Mapping[str, tuple[Field, ...]]
    defects: tuple[DefectEntry, ...]
    source: str

    @property
    def builds_engines(self) -> bool:
        return self.status == "supported"

    @property
    def image(self) -> str | None:
        """Image reference of the toolchain and of Triton, with the digest where it is known."""
        if not self.images:
            return None
        first = self.images[0]
        return f"{first.reference}@{first.digest}" if first.digest else first.reference

    def family_of(self, architecture: str) -> Family | None:
        """The family that converts an architecture of config.json; None: the release does not."""
        return next((f for f in self.families.values() if architecture in f.architectures), None)
