"""What the catalogue's files may hold: the schema they are validated against when they are loaded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .gpus import ComputeCapability, Gpu
from .history import Entry, Line

FlagType = Literal["int", "float", "text", "path", "switch", "word", "plugin"]
Scalar = bool | int | float | str | None
Tool = Literal["convert", "quantize"]
FlagName = Annotated[str, Field(pattern=r"^--?[a-z][a-z0-9_]*$")]


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
    note: str = ""


class CommandEntry(Entry):
    command: str
    program: dict[Line, tuple[str, ...] | None]
    """How it is called in the image; null: not known where the image has it."""
    needs_gpu: bool
    since: Line | None = None
    until: Line | None = None
    flags: tuple[FlagEntry, ...]
    source: str


class FormatEntry(Entry):
    """A format of the weights."""

    name: str
    quant_algo: str | None
    """As the checkpoint's and the engine's config.json name it."""
    weight_bits: Annotated[int, Field(gt=0)] | None
    """Of a quantised element; null: not quantised."""
    group_size: Annotated[int, Field(gt=0)] | None = None
    scale_bytes_per_group: Annotated[int, Field(ge=0)] = 2
    scale_bytes_per_output_channel: Annotated[int, Field(ge=0)] = 0
    tool: Tool
    arguments: tuple[str, ...]
    families: tuple[str, ...] = ()
    """Families it is limited to; empty: those whose entry names it, or all when the tool is convert."""
    paged_context_fmha_with_fp8_kv_cache: bool = False
    compute_capabilities: dict[Line, tuple[ComputeCapability, ...]]
    unproven: tuple[ComputeCapability, ...] = ()
    source: str


class KvCacheEntry(Entry):
    name: str
    quant_algo: str
    bits: int
    convert_arguments: tuple[str, ...]
    quantize_arguments: tuple[str, ...]
    paged_context_fmha: Literal["fp8-weights", "never"]
    needs_calibration: bool = False
    compute_capabilities: dict[Line, tuple[ComputeCapability, ...]]
    source: str


class KnownFailure(Entry):
    """A combination that the tables allow and that was reported to fail."""

    formats: tuple[str, ...]
    kv_cache: tuple[str, ...]
    compute_capabilities: tuple[ComputeCapability, ...]
    since: Line | None = None
    until: Line | None = None
    message: str
    source: str


class SourceCheckpoint(Entry):
    """A kind of checkpoint that is already quantised and that a converter takes as it is."""

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
    source: str


class FormatsFile(Entry):
    formats: tuple[FormatEntry, ...]
    kv_cache: tuple[KvCacheEntry, ...]
    known_failures: tuple[KnownFailure, ...] = ()
    source_checkpoints: tuple[SourceCheckpoint, ...] = ()


class FamilyEntry(Entry):
    name: str
    architectures: Annotated[tuple[str, ...], Field(min_length=1)]
    command: dict[Line, str | None]
    """Command that converts it, by line; null: converted by a script whose flags the catalogue does not hold."""
    positions: Literal["rotary", "learned", "alibi"]
    mixture_of_experts: bool = False
    quantization_formats: tuple[str, ...] = ()
    """Formats of quantize.py that the release's matrix lists for it."""
    since: Line | None = None
    until: Line | None = None
    source: str


class FamiliesFile(Entry):
    families: tuple[FamilyEntry, ...]


class PlaceholderEntry(Entry):
    name: str
    required: bool = False
    since: Line | None = None
    until: Line | None = None


class TemplatesFile(Entry):
    source: str
    models: dict[str, tuple[PlaceholderEntry, ...]]


class DefectEntry(Entry):
    id: str
    text: str
    since: Line | None = None
    until: Line | None = None
    source: str


class DefectsFile(Entry):
    defects: tuple[DefectEntry, ...]


class NumbersHistory(Entry):
    values: dict[Line, tuple[int, ...]]
    source: str


class FlagHistory(Entry):
    values: dict[Line, bool]
    source: str


class NumberHistory(Entry):
    values: dict[Line, int]
    source: str


class CapabilityHistory(Entry):
    values: dict[Line, tuple[ComputeCapability, ...]]
    source: str


class EngineFile(Entry):
    head_sizes: NumbersHistory
    uneven_pipeline_stages: FlagHistory
    kv_head_duplication: FlagHistory
    gpus_per_node: NumberHistory
    image_compute_capabilities: CapabilityHistory
    beta_compute_capabilities: CapabilityHistory


class ImageEntry(Entry):
    triton: str
    name: str
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """None: not known; resolve it in the registry you pull from."""


class ReleaseEntry(Entry):
    release: str
    line: Line
    status: Literal["supported", "incomplete", "no-engines"]
    """incomplete: not enough is known to build with it. no-engines: the release has no engine flow any more."""
    reason: str = ""
    """Why it is not supported."""
    images: tuple[ImageEntry, ...] = ()
    """Best first."""
    tensorrt: str | None = None
    cuda: str | None = None
    driver: str | None = None
    """Driver that the image's release notes list."""
    python: str | None = None
    image_bytes: int | None = None
    source: str


class GpusFile(Entry):
    gpus: tuple[Gpu, ...]
