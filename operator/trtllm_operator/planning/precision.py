"""What precision a spec comes down to for a model and a release."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..api.llmengine import LLMEngineSpec
from ..catalog import Format, KvCacheFormat, Release
from ..catalog.schema import SourceCheckpoint
from .model import ModelFacts
from .model_config import DTYPE_BYTES


@dataclass(frozen=True)
class ResolvedPrecision:
    """Types of the weights, the activations and the KV cache of one engine."""

    dtype: str
    format: Format | None
    """Format of the weights, for bytes and supported GPUs; None: the release has none of that name."""
    source: SourceCheckpoint | None
    """Set when the checkpoint comes quantized and the converter takes it as it is."""
    kv_cache: KvCacheFormat | None
    """None: the cache has the type of the activations."""

    @property
    def quant_algo(self) -> str | None:
        if self.source is not None:
            return self.source.quant_algo
        return self.format.quant_algo if self.format else None

    @property
    def kv_cache_bits(self) -> int:
        return self.kv_cache.bits if self.kv_cache else 8 * DTYPE_BYTES[self.dtype]

    @property
    def paged_context_fmha(self) -> bool:
        """Whether the engine has paged context FMHA, which KV reuse and chunked context need."""
        if self.kv_cache is None:
            return True
        if self.kv_cache.paged_context_fmha == "never":
            return False
        return self.format is not None and self.format.paged_context_fmha_with_fp8_kv_cache

    @property
    def fp8_context_fmha(self) -> bool:
        return self.kv_cache is not None and self.paged_context_fmha


def resolve(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> ResolvedPrecision:
    """Types as the converter will choose them: auto takes the checkpoint's own, and float16 for a float32 source."""
    dtype: str = spec.precision.dtype
    if dtype == "auto":
        dtype = "float16" if facts.dtype == "float32" else facts.dtype
    source = source_checkpoint(facts, release) if spec.precision.quantization == "none" else None
    name = source.as_format if source else spec.precision.quantization
    return ResolvedPrecision(
        dtype=dtype,
        format=_grouped(release.formats.get(name), spec.precision.group_size),
        source=source,
        kv_cache=release.kv_cache_formats.get(spec.precision.kv_cache),
    )


def _grouped(format_: Format | None, group_size: int) -> Format | None:
    """The format with the group size that the spec asks for, where it has a choice of them."""
    flag = "--awq_block_size"
    if format_ is None or flag not in format_.arguments or format_.group_size == group_size:
        return format_
    at = format_.arguments.index(flag) + 1
    arguments = (*format_.arguments[:at], str(group_size), *format_.arguments[at + 1 :])
    return replace(format_, group_size=group_size, arguments=arguments)


def source_checkpoint(facts: ModelFacts, release: Release) -> SourceCheckpoint | None:
    """The kind of quantized checkpoint that the model's converter in this release takes as it is, if it is one."""
    if facts.quantization is None:
        return None
    family = release.family_of(facts.architecture)
    return next(
        (
            kind
            for kind in release.source_checkpoints
            if kind.method == facts.quantization
            and (facts.quantization_bits in (None, kind.bits))
            and family is not None
            and family.command in kind.commands
            and not (facts.quantization_desc_act and "desc_act" in kind.forbids)
        ),
        None,
    )
