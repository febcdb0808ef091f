"""What the catalog's files may hold: the schema that every entry is validated against.

Every file, in the package or from a ConfigMap, is a map of sections; a section is a list of entries. The sections and
the field that names an entry in each are in `SECTIONS`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .gpus import ComputeCapability, Gpu
from .history import Entry, Line

FlagType = Literal["int", "float", "text", "path", "switch", "word", "plugin"]
Scalar = bool | int | float | str | None
Tool = Literal["convert", "quantize"]
Status = Literal["supported", "incomplete", "no-engines"]
FlagName = Annotated[str, Field(pattern=r"^--?[a-z][a-z0-9_-]*$")]
Source = Annotated[str, Field(min_length=1)]
"""Where the entry's facts were read."""


class FlagEntry(Entry):
    """A flag over all releases. A value that changed is a map from the line it holds from."""

    name: FlagName
    type: FlagType | dict[Line, FlagType]
    aliases: tuple[FlagName, ...] = ()
    choices: tuple[str, ...] | dict[Line, tuple[str, ...]] = ()
    default: Scalar | dict[Line, Scalar] = None
    since: Line | None = None
    until: Line | None = None
    """First line without the flag."""
    extra: bool = False
    """Whether spec.build.extraFlags may give it: it changes neither what the API has a field for, nor what serving
    has to know, and names no file."""
    note: str = ""


class ConversionEntry(Entry):
    """How a converter takes what the planner decides, where it differs from most."""

    model_flag: FlagName = "--model_dir"
    output_flag: FlagName = "--output_dir"
    tensor_flag: FlagName = "--tp_size"
    pipeline_flag: FlagName | None = "--pp_size"
    """None: it knows no pipeline stages."""
    always: tuple[str, ...] = ()
    """Words of every conversion."""
    format_arguments: dict[str, tuple[str, ...]] = {}
    """Its own words for formats of the weights, by the format's name."""
    host_memory_percent: Annotated[int, Field(ge=100)] = 125
    """Host memory of a conversion, of the source's bytes."""


class CommandEntry(Entry):
    """A command of the toolchain image."""

    command: str
    program: dict[Line, tuple[str, ...] | None]
    """How it is called in the image; null: not known where the image has it."""
    needs_gpu: bool
    since: Line | None = None
    until: Line | None = None
    flags: tuple[FlagEntry, ...]
    conversion: ConversionEntry = ConversionEntry()
    source: Source


class FormatEntry(Entry):
    """A format of the weights."""

    name: str
    quant_algo: str | None
    """As the checkpoint's and the engine's config.json name it."""
    weight_bits: Annotated[int, Field(gt=0)] | None
    """Of a quantized element; null: not quantized."""
    group_size: Annotated[int, Field(gt=0)] | None = None
    group_sizes: tuple[int, ...] = ()
    """Group sizes that an engine can be built with; empty: all that the API takes."""
    scale_bytes_per_group: Annotated[int, Field(ge=0)] = 2
    scale_bytes_per_output_channel: Annotated[int, Field(ge=0)] = 0
    tool: Tool
    arguments: tuple[str, ...]
    families: tuple[str, ...] = ()
    """Families it is limited to; empty: those whose entry names it, or all when the tool is convert."""
    paged_context_fmha_with_fp8_kv_cache: dict[Line, bool] = {}
    """Whether the builder keeps paged context FMHA beside an FP8 KV cache, by line."""
    compute_capabilities: dict[Line, tuple[ComputeCapability, ...]]
    unproven: tuple[ComputeCapability, ...] = ()
    """Where one document lists it and another does not."""
    source: Source


class KvCacheEntry(Entry):
    """A format of the KV cache."""

    name: str
    quant_algo: str
    bits: Annotated[int, Field(gt=0)]
    convert_arguments: tuple[str, ...]
    quantize_arguments: tuple[str, ...]
    paged_context_fmha: Literal["fp8-weights", "never"]
    needs_calibration: bool = False
    compute_capabilities: dict[Line, tuple[ComputeCapability, ...]]
    source: Source


class KnownFailure(Entry):
    """A combination that the tables allow and that was reported to fail."""

    id: str
    formats: tuple[str, ...]
    kv_cache: tuple[str, ...]
    compute_capabilities: tuple[ComputeCapability, ...]
    since: Line | None = None
    until: Line | None = None
    message: str
    source: Source


class SourceCheckpoint(Entry):
    """A kind of checkpoint that is already quantized and that a converter takes as it is."""

    id: str
    method: str
    """quantization_config.quant_method of config.json."""
    quant_algo: str
    bits: int
    as_format: str
    """Format whose GPUs and bytes it has."""
    commands: tuple[str, ...]
    forbids: tuple[Literal["desc_act"], ...] = ()
    """Settings of the source that the converter refuses when they are true."""
    since: Line | None = None
    until: Line | None = None
    source: Source


class FamilyEntry(Entry):
    """Models that one script converts."""

    name: str
    architectures: Annotated[tuple[str, ...], Field(min_length=1)]
    command: dict[Line, str | None]
    """Command that converts it, by line; null: converted by a script whose flags the catalog does not hold."""
    refused: str = ""
    """Why it is not converted, where there is more to say than that the flags are not held."""
    arguments: tuple[str, ...] = ()
    """Words that its conversion needs beside those of every model of the command."""
    conversion_needs_gpu: bool = False
    unconverted_formats: dict[str, str] = {}
    """Formats that the command has flags for and does not make of this family, with the reason."""
    unconverted_kv_caches: dict[str, str] = {}
    """The same of KV caches."""
    undivided: dict[Literal["tensor", "pipeline"], str] = {}
    """What no model of the family is divided by, with the reason."""
    copied_kv_heads: Literal["all", "one"] = "all"
    """Which K and V heads ranks may share by copies: all, or only where the model has a single one."""
    divided_embedding: bool = False
    """Whether tensor parallelism divides the embedding table as it does the output layer."""
    padded_vocabulary: bool = True
    """Whether a vocabulary that tensor parallelism does not divide is padded."""
    free_head_size: bool = True
    """Whether the head size may be another than hidden size / heads."""
    most_tokens: Annotated[int, Field(gt=0)] | None = None
    """Longest sequence that the release documents for it."""
    positions: Literal["rotary", "learned", "alibi"]
    mixture_of_experts: bool = False
    quantization_formats: tuple[str, ...] = ()
    """Formats of quantize.py that the release's matrix lists for it."""
    since: Line | None = None
    until: Line | None = None
    source: Source


class PlaceholderEntry(Entry):
    name: str
    required: bool = False
    since: Line | None = None
    until: Line | None = None


class TemplateEntry(Entry):
    """The placeholders of one Triton model's config.pbtxt."""

    model: str
    placeholders: tuple[PlaceholderEntry, ...]
    source: Source


class TensorEntry(Entry):
    name: str
    type: str
    required: bool = False
    since: Line | None = None
    until: Line | None = None


class RequestEntry(Entry):
    """The fields of requests to one Triton model and of its answers."""

    model: str
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    source: Source


class DefectEntry(Entry):
    """What a release does that a person would not expect, and what the operator does about it."""

    id: str
    text: str
    since: Line | None = None
    until: Line | None = None
    source: Source


FactValue = bool | int | tuple[int, ...] | tuple[ComputeCapability, ...]


class FactEntry(Entry):
    """How the engine behaves where the planner must know, by line."""

    name: Literal[
        "head_sizes",
        "uneven_pipeline_stages",
        "kv_head_duplication",
        "gpus_per_node",
        "image_compute_capabilities",
        "beta_compute_capabilities",
    ]
    values: dict[Line, FactValue]
    source: Source


class ImageEntry(Entry):
    """A Triton image with the toolchain."""

    triton: str
    reference: str
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """None: not known; resolve it in the registry you pull from."""


class ReleaseEntry(Entry):
    release: str
    line: Line
    status: Status
    """incomplete: not enough is known to build with it. no-engines: the release has no engine flow any more."""
    pattern: str | None = None
    """Further names that the entry speaks for, as a regular expression of the whole name."""
    reason: str = ""
    """Why it is not supported."""
    instead: str | None = None
    """Release to use in its place."""
    images: tuple[ImageEntry, ...] = ()
    """Best first."""
    tensorrt: str | None = None
    cuda: str | None = None
    driver: str | None = None
    """Driver that the image's release notes list."""
    python: str | None = None
    image_bytes: int | None = None
    source: Source


SECTIONS: dict[str, tuple[str, type[Entry]]] = {
    "releases": ("release", ReleaseEntry),
    "commands": ("command", CommandEntry),
    "formats": ("name", FormatEntry),
    "kv_cache": ("name", KvCacheEntry),
    "known_failures": ("id", KnownFailure),
    "source_checkpoints": ("id", SourceCheckpoint),
    "families": ("name", FamilyEntry),
    "templates": ("model", TemplateEntry),
    "requests": ("model", RequestEntry),
    "defects": ("id", DefectEntry),
    "facts": ("name", FactEntry),
    "gpus": ("name", Gpu),
}
"""Section, the field that names an entry in it, and what an entry is."""
