"""Checks of what the release supports: the architecture, the GPU, the precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..api.llmengine import LLMEngineSpec
from ..catalog import Family, Release
from .check import Check, failed, passed, warned
from .commands import CommandUnknown, build_command, checkpoint_step
from .extra_flags import extra_flag_checks
from .model import ModelFacts
from .precision import ResolvedPrecision
from .target_gpu import TargetGpu, capability_order

_KV_TOLERANCE = 0.02
"""Of the elements of K and V projections: their biases, and rounding where they are fused with Q."""


def support_checks(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, precision: ResolvedPrecision, gpu: TargetGpu
) -> Iterator[Check]:
    family = release.family_of(facts.architecture)
    engines = _release(release)
    yield engines
    yield _architecture(facts, release, family)
    yield _source(spec, facts, release, precision, family)
    if engines.ok and family is not None and not family.refused:
        yield _commands(spec, facts, release)
        yield _one_model(facts)
    yield _gpu(release, gpu)
    yield _dtype(spec, facts, precision, gpu)
    yield _quantization(spec, release, precision, gpu, family)
    yield _kv_cache(spec, release, precision, gpu)
    yield from _combination(release, precision, gpu)
    yield from extra_flag_checks(spec, release, precision)
    if gpu.shared:
        yield warned(
            "shared-gpu",
            f"{gpu.product} is shared: its {gpu.memory_mib} MiB belong to all its tenants together",
            "use nodes whose GPUs are not time-sliced",
        )


def _list(values: Iterable[str]) -> str:
    return ", ".join(values) or "none"


def _either(values: Sequence[str]) -> str:
    """One or more values: a, b or c."""
    return " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))


def _release(release: Release) -> Check:
    if release.builds_engines:
        return passed("release", f"release {release.name} builds engines")
    return failed(
        "release",
        f"no engine can be built with release {release.name}: {release.reason}",
        f"use release {release.instead}" if release.instead else "",
    )


def _architecture(facts: ModelFacts, release: Release, family: Family | None) -> Check:
    if facts.encoder_decoder:
        return failed(
            "architecture", f"{facts.architecture} is an encoder-decoder model; only decoder-only ones are built"
        )
    if family is not None and family.command is None and family.refused:
        return failed(
            "architecture",
            f"release {release.name} converts {facts.architecture}, but it is not converted here: {family.refused}",
        )
    if family is not None:
        return passed("architecture", f"{facts.architecture} is converted as {family.name}")
    known = sorted(a for f in release.families.values() if f.command for a in f.architectures)
    return failed(
        "architecture", f"release {release.name} cannot convert {facts.architecture}", f"it converts {_list(known)}"
    )


def _source(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, precision: ResolvedPrecision, family: Family | None
) -> Check:
    if facts.quantization is None:
        return passed("source-checkpoint", f"the source is not quantized ({facts.dtype})")
    what = f"the source is already quantized ({_list(filter(None, (facts.quantization, facts.quantization_algo)))})"
    if spec.precision.quantization != "none":
        return failed(
            "source-checkpoint",
            f"{what}, and precision.quantization {spec.precision.quantization} would quantize it again",
            "use the unquantized model, or quantization none",
        )
    if precision.source is not None:
        return passed("source-checkpoint", f"{what}: the converter takes it as {precision.source.quant_algo}")
    command = family.command if family is not None else None
    known = list(dict.fromkeys(kind.method for kind in release.source_checkpoints if command in kind.commands))
    reason = ", with desc_act" if facts.quantization_desc_act else ""
    return failed(
        "source-checkpoint",
        f"{what}{reason}: the converter of release {release.name} is not known to take that",
        f"use the unquantized model, or one quantized with {_either(known)}" if known else "use the unquantized model",
    )


def _one_model(facts: ModelFacts) -> Check:
    """KV bytes of a token follow config.json, bytes of weights the files: both have to speak of one model."""
    heads, width = facts.num_key_value_heads, facts.hidden_size
    by_config = 2 * facts.num_layers * heads * facts.head_size * width
    in_files = facts.kv_parameter_count
    if facts.sizes_from != "tensors" or facts.kv_lora_rank is not None or not in_files:
        return passed("one-model", "nothing in the weight files speaks against config.json")
    if abs(in_files - by_config) > by_config * _KV_TOLERANCE:
        return failed(
            "one-model",
            f"config.json and the weight files are not of one model: K and V projections of {facts.num_layers} layers "
            f"with {heads} KV heads of {facts.head_size} and width {width} have {by_config:,} elements, those of the "
            f"files {in_files:,}",
            "a repository whose config.json belongs to its weights",
        )
    return passed("one-model", f"K and V projections have {in_files:,} elements, as config.json says")


def _commands(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> Check:
    try:
        step = checkpoint_step(spec, facts, release)
        build_command(spec, facts, release)
    except CommandUnknown as error:
        return failed("commands", str(error))
    gpu = "with a GPU" if step.needs_gpu else "on CPU"
    program = next((word for word in step.command if word.endswith(".py")), step.command[0])
    return passed("commands", f"{program} {gpu}, then trtllm-build")


def _gpu(release: Release, gpu: TargetGpu) -> Check:
    capability = gpu.compute_capability
    if capability in release.compute_capabilities:
        if capability in release.beta_compute_capabilities:
            return warned("gpu", f"{gpu.product} ({capability}) is beta in release {release.name}")
        return passed("gpu", f"release {release.name} supports {gpu.product} ({capability})")
    return failed(
        "gpu",
        f"release {release.name} does not support compute capability {capability} ({gpu.product})",
        f"it supports {_list(release.compute_capabilities)}",
    )


def _dtype(spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision, gpu: TargetGpu) -> Check:
    if precision.dtype == "bfloat16" and capability_order(gpu.compute_capability) < (8, 0):
        return failed(
            "dtype",
            f"bfloat16 needs compute capability 8.0, and {gpu.product} has {gpu.compute_capability}",
            "set precision.dtype float16",
        )
    if spec.precision.dtype == "auto" and precision.dtype != facts.dtype:
        return warned(
            "dtype",
            f"the source is {facts.dtype}, and the converter's auto makes {precision.dtype} of it",
            "set precision.dtype to what you want",
        )
    return passed("dtype", f"activations are {precision.dtype}")


def _quantization(
    spec: LLMEngineSpec, release: Release, precision: ResolvedPrecision, gpu: TargetGpu, family: Family | None
) -> Check:
    format_ = precision.format
    asked = spec.precision.quantization
    if format_ is None:
        return failed(
            "quantization", f"release {release.name} has no quantization {asked}", f"it has {_list(release.formats)}"
        )
    capability = gpu.compute_capability
    if asked == "none" and precision.source is None and capability not in release.compute_capabilities:
        return passed("quantization", "nothing is quantized; the release has no kernels for this GPU at all")
    if capability not in format_.compute_capabilities:
        needs = (
            f"it needs one of {_list(format_.compute_capabilities)}"
            if format_.compute_capabilities
            else f"release {release.name} has {format_.name} on no GPU"
        )
        works = [f.name for f in release.formats.values() if capability in f.compute_capabilities]
        fix = f"there use quantization {_either(works)}" if works else ""
        if precision.source is not None:  # quantization is none already
            fix = "use the unquantized model" if works else ""
        return failed(
            "quantization",
            f"{format_.name} does not work on {gpu.product} (compute capability {capability}): {needs}",
            fix,
        )
    if precision.source is None and format_.group_sizes and format_.group_size not in format_.group_sizes:
        return failed(
            "quantization",
            f"{format_.name} with groups of {format_.group_size} is calibrated and then refused by trtllm-build",
            f"precision.groupSize {_either(list(map(str, format_.group_sizes)))}, or int4_awq",
        )
    if precision.source is None and format_.tool == "quantize" and precision.dtype == "float32":
        return failed(
            "quantization",
            f"{format_.name} with dtype float32: ModelOpt writes a float16 checkpoint without saying so",
            "set precision.dtype float16 or bfloat16",
        )
    if family is not None and not _listed(format_.name, format_.tool, format_.families, family, precision):
        return warned(
            "quantization",
            f"{format_.name} of {family.name} models is not in the release's matrix",
            f"listed are {_list(family.quantization_formats)} and weight-only formats",
        )
    if capability in format_.unproven:
        return warned("quantization", f"{format_.name} on {capability} is listed by one document and not by another")
    return passed("quantization", f"{format_.name} works on {gpu.product} ({capability})")


def _listed(name: str, tool: str, families: tuple[str, ...], family: Family, precision: ResolvedPrecision) -> bool:
    if families and family.name not in families:
        return False
    return tool == "convert" or precision.source is not None or name in family.quantization_formats


def _kv_cache(spec: LLMEngineSpec, release: Release, precision: ResolvedPrecision, gpu: TargetGpu) -> Check:
    asked = spec.precision.kv_cache
    if asked == "auto":
        return passed("kv-cache", f"the KV cache is {precision.dtype}")
    if precision.kv_cache is None:
        return failed(
            "kv-cache",
            f"release {release.name} has no KV cache {asked}",
            f"it has auto, {_list(release.kv_cache_formats)}",
        )
    if gpu.compute_capability not in precision.kv_cache.compute_capabilities:
        return failed(
            "kv-cache",
            f"KV cache {asked} does not work on compute capability {gpu.compute_capability} ({gpu.product})",
            f"it works on {_list(precision.kv_cache.compute_capabilities)}; use kvCache auto",
        )
    if not precision.paged_context_fmha:
        return warned(
            "kv-cache",
            f"KV cache {asked} with these weights excludes paged context FMHA: it is built without, and so without "
            "KV-cache reuse and chunked context",
            "kvCache auto keeps them, and so does fp8 with fp8 weights",
        )
    return passed("kv-cache", f"KV cache {asked} works on {gpu.product} with paged context FMHA")


def _combination(release: Release, precision: ResolvedPrecision, gpu: TargetGpu) -> Iterator[Check]:
    for known in release.known_failures:
        if (
            precision.format is not None
            and precision.kv_cache is not None
            and precision.format.name in known.formats
            and precision.kv_cache.name in known.kv_cache
            and gpu.compute_capability in known.compute_capabilities
        ):
            yield warned("known-failure", known.message, f"see {known.source}")
