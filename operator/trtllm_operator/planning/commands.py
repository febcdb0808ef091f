"""Effective command lines of an artifact: every flag that matters is passed, so that no default of a release decides.

`{parent}` and `{output}` stand for the mounted directories of the artifact it is made from and
of what is made. A flag is passed only if the release has it, and its value is checked against the release's choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..api.engineartifact import Expectation
from ..api.llmengine import LLMEngineSpec
from ..catalog import Command, Family, Release
from ..catalog.schema import ConversionEntry
from .model import ModelFacts
from .precision import ResolvedPrecision, resolve

Arguments = Iterable[tuple[str, str | int | None]]
"""Flags with their values; None for a flag that takes none."""


CALIBRATION_TEXTS = "texts-1"
"""The texts that come with the operator, by their version: others get another name, and so another key."""


class CommandUnknown(ValueError):  # noqa: N818
    """The catalog does not know how the release does what is asked. One line."""


@dataclass(frozen=True)
class Step:
    """One step of a build in the toolchain image."""

    command: tuple[str, ...]
    needs_gpu: bool


def reads_texts(command: Iterable[str]) -> bool:
    """Whether a checkpoint's command line reads calibration texts."""
    return any("{calibration}" in word for word in command)


def checkpoint_step(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> Step:
    """Conversion or quantization, whichever the precision takes. Raises CommandUnknown."""
    precision = resolve(spec, facts, release)
    if _quantizes(precision, release):
        tool = _command(release, "quantize")
        line, needs_gpu = _quantize(spec, precision, tool), tool.needs_gpu
    else:
        family = _family(facts, release)
        tool = _converter(family, release)
        line, needs_gpu = _convert(spec, facts, precision, tool, family), tool.needs_gpu or family.conversion_needs_gpu
    calibrates = precision.kv_cache is not None and precision.kv_cache.needs_calibration
    return Step(line, needs_gpu=needs_gpu or calibrates)


def source_memory_percent(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> int:
    """Host memory that making the checkpoint takes for the model, of the source's bytes."""
    family = release.family_of(facts.architecture)
    command = release.commands.get(family.command) if family is not None and family.command else None
    precision = resolve(spec, facts, release)
    quantizes = precision.format is not None and _quantizes(precision, release)
    conversion = ConversionEntry() if command is None or quantizes else command.conversion
    return conversion.host_memory_percent


def build_command(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> tuple[str, ...]:
    """Command line of trtllm-build. Raises CommandUnknown."""
    command = _command(release, "trtllm-build")
    precision = resolve(spec, facts, release)
    budgets = spec.budgets
    paged_cache = "--kv_cache_type" if "--kv_cache_type" in command.flags else "--paged_kv_cache"
    extra = {flag.name: flag.value for flag in sorted(spec.build.extra_flags, key=lambda f: f.name)}
    return _line(
        command,
        _with_extra(
            extra,
            ("--checkpoint_dir", "{parent}"),
            ("--output_dir", "{output}"),
            ("--max_batch_size", budgets.max_batch_size),
            ("--max_input_len", budgets.max_input_len),
            ("--max_seq_len", budgets.max_seq_len),
            ("--max_num_tokens", budgets.max_num_tokens),
            ("--max_beam_width", budgets.max_beam_width),
            (paged_cache, "paged" if paged_cache == "--kv_cache_type" else "enable"),
            ("--tokens_per_block", tokens_per_block(release)),
            ("--remove_input_padding", "enable"),
            ("--context_fmha", "enable"),
            ("--use_paged_context_fmha", _word(precision.paged_context_fmha)),
            ("--use_fp8_context_fmha", _word(precision.fp8_context_fmha)),
            ("--gpt_attention_plugin", "auto"),
            ("--gemm_plugin", "auto"),
            ("--nccl_plugin", "auto"),
            ("--moe_plugin", "auto"),
            ("--reduce_fusion", "disable"),
            ("--multiple_profiles", "disable"),
            ("--workers", 1),
            ("--log_level", "info"),
        ),
        optional=frozenset({"--use_fp8_context_fmha", "--moe_plugin", "--reduce_fusion"}),
    )


def trial_command(expected: Expectation, release: Release) -> tuple[str, ...]:
    """Command that loads a finished engine and generates one token with the model's tokenizer (`{model}`); empty where
    the release has none that is known, or an engine needs more GPUs than a build has."""
    command = release.commands.get("run")
    if command is None or command.program is None or expected.tensor_parallel * expected.pipeline_parallel > 1:
        return ()
    arguments: Arguments = [
        ("--engine_dir", "{output}"),
        ("--tokenizer_dir", "{model}"),
        ("--max_output_len", 1),
        ("--input_text", "Hello"),
        ("--log_level", "info"),
    ]
    return _line(command, arguments, optional=frozenset())


def expectation(spec: LLMEngineSpec, facts: ModelFacts, release: Release, *, engine: bool = True) -> Expectation:
    """What verification must find: in the engine, or with `engine=False` in the checkpoint, which has no limits yet."""
    precision = resolve(spec, facts, release)
    budgets = spec.budgets if engine else None
    return Expectation(
        release=release.name,
        tensor_parallel=spec.parallelism.tensor,
        pipeline_parallel=spec.parallelism.pipeline,
        dtype=precision.dtype,
        quant_algo=precision.quant_algo,
        kv_cache_quant_algo=precision.kv_cache.quant_algo if precision.kv_cache else None,
        max_batch_size=budgets.max_batch_size if budgets else None,
        max_input_len=budgets.max_input_len if budgets else None,
        max_seq_len=budgets.max_seq_len if budgets else None,
        max_num_tokens=budgets.max_num_tokens if budgets else None,
        max_beam_width=budgets.max_beam_width if budgets else None,
    )


def tokens_per_block(release: Release) -> int:
    """Tokens of one KV-cache block: the release's own size, passed explicitly."""
    command = release.commands.get("trtllm-build")
    flag = command.flags.get("--tokens_per_block") if command else None
    return flag.default if flag is not None and isinstance(flag.default, int) else 64


def _quantizes(precision: ResolvedPrecision, release: Release) -> bool:
    """Whether quantize.py makes the checkpoint, and not the model's converter."""
    if precision.format is None:
        raise CommandUnknown(f"release {release.name} has no such quantization")
    return precision.format.tool == "quantize" and precision.source is None


def _family(facts: ModelFacts, release: Release) -> Family:
    family = release.family_of(facts.architecture)
    if family is None:
        raise CommandUnknown(f"release {release.name} converts no {facts.architecture}")
    return family


def _converter(family: Family, release: Release) -> Command:
    if family.command is None:
        why = family.refused or "the catalog does not hold its converter's flags"
        raise CommandUnknown(f"{family.name} models are not converted with release {release.name}: {why}")
    return _command(release, family.command)


def _command(release: Release, name: str) -> Command:
    command = release.commands.get(name)
    if command is None or not release.builds_engines:
        raise CommandUnknown(f"release {release.name} has no {name}")
    if command.program is None:
        raise CommandUnknown(f"the catalog does not know where {name} is in the image of release {release.name}")
    return command


def _convert(
    spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision, command: Command, family: Family
) -> tuple[str, ...]:
    parallelism, conversion = spec.parallelism, command.conversion
    arguments: list[tuple[str, str | int | None]] = [
        (conversion.model_flag, "{parent}"),
        (conversion.output_flag, "{output}"),
        *_pairs(command, (*conversion.always, *family.arguments)),
        ("--dtype", precision.dtype),
        (conversion.tensor_flag, parallelism.tensor),
    ]
    if conversion.pipeline_flag is not None:
        arguments.append((conversion.pipeline_flag, parallelism.pipeline))
    elif parallelism.pipeline > 1:
        raise CommandUnknown(f"{command.name} knows no pipeline stages")
    if facts.num_experts:
        arguments += [("--moe_tp_size", parallelism.tensor), ("--moe_ep_size", 1)]
    if precision.format is not None and precision.source is None:
        words = conversion.format_arguments.get(precision.format.name, precision.format.arguments)
        reason = family.unconverted_formats.get(precision.format.name)
        arguments += _made(command, words, precision.format.name, family, reason)
    if precision.kv_cache is not None:
        words, reason = precision.kv_cache.convert_arguments, family.unconverted_kv_caches.get(precision.kv_cache.name)
        arguments += _made(command, words, f"KV cache {precision.kv_cache.name}", family, reason)
        if precision.kv_cache.needs_calibration:
            arguments += [pair for pair in _calibration(spec) if pair[0] in command.flags]
    arguments += [("--load_model_on_cpu", None), ("--workers", 1)]
    return _line(command, arguments, optional=frozenset({"--load_model_on_cpu", "--workers"}))


def _made(
    command: Command, words: tuple[str, ...], what: str, family: Family, reason: str | None
) -> list[tuple[str, str | int | None]]:
    """The flags that make `what` of a model. Raises CommandUnknown where there are none, or they are known to fail."""
    missing = next((word for word in words if word.startswith("--") and word not in command.flags), None)
    if reason is None and missing is not None:
        reason = f"it has no flag {missing} in this release"
    if reason is not None:
        raise CommandUnknown(f"{command.name} makes no {what} of {family.name} models: {reason}")
    return _pairs(command, words)


def _quantize(spec: LLMEngineSpec, precision: ResolvedPrecision, command: Command) -> tuple[str, ...]:
    arguments: list[tuple[str, str | int | None]] = [
        ("--model_dir", "{parent}"),
        ("--output_dir", "{output}"),
        ("--dtype", precision.dtype),
        ("--tp_size", spec.parallelism.tensor),
        ("--pp_size", spec.parallelism.pipeline),
        *_pairs(command, precision.format.arguments if precision.format else ()),
        *_pairs(command, precision.kv_cache.quantize_arguments if precision.kv_cache else ()),
        *_calibration(spec),
        ("--batch_size", 1),
        ("--device", "cuda"),
    ]
    return _line(command, arguments, optional=frozenset({"--device"}))


def _calibration(spec: LLMEngineSpec) -> list[tuple[str, str | int | None]]:
    calibration = spec.precision.calibration
    return [
        ("--calib_dataset", "{calibration}" if calibration.dataset else f"{{calibration}}/{CALIBRATION_TEXTS}"),
        ("--calib_size", calibration.samples),
        ("--calib_max_seq_length", calibration.max_seq_len),
    ]


def _with_extra(extra: Mapping[str, str | None], *arguments: tuple[str, str | int | None]) -> Arguments:
    """The arguments with the user's own flags in place of those of the same name, and after them."""
    return list({**dict(arguments), **extra}.items())


def _pairs(command: Command, words: tuple[str, ...]) -> list[tuple[str, str | int | None]]:
    """Words of a command line as flags with their values, by whether the flag takes one."""
    pairs: list[tuple[str, str | int | None]] = []
    rest = iter(words)
    for word in rest:
        flag = command.flags.get(word)
        pairs.append((word, None if flag is not None and flag.type == "switch" else next(rest, None)))
    return pairs


def _word(on: bool) -> str:
    return "enable" if on else "disable"


def _line(command: Command, arguments: Arguments, *, optional: frozenset[str]) -> tuple[str, ...]:
    """The command line, checked against the release's flags; an `optional` flag is left out when there is none."""
    words = list(command.program or ())
    for name, value in arguments:
        flag = command.flags.get(name)
        if flag is None:
            if name in optional:
                continue
            raise CommandUnknown(f"{command.name} has no flag {name} in this release")
        words.append(name)
        if value is not None:
            if flag.choices and str(value) not in flag.choices:
                raise CommandUnknown(f"{command.name} {name} takes {', '.join(flag.choices)}, not {value}")
            words.append(str(value))
    return tuple(words)
