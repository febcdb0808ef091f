"""Checks of spec.build.extraFlags against the catalog's list for the release."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..api.build import ExtraFlag
from ..api.llmengine import LLMEngineSpec
from ..catalog import Flag, Release
from .check import Check, failed, passed
from .precision import ResolvedPrecision

_FLOAT_TYPES = ("float16", "bfloat16", "float32")
_OF_WEIGHTS = {"fp8": "FP8", "nvfp4": "NVFP4"}
"""Types of a GEMM plugin that need weights of the same quantization (the flag's own help)."""
_FIELDS = {
    "--max_batch_size": "spec.budgets.maxBatchSize",
    "--max_input_len": "spec.budgets.maxInputLen",
    "--max_seq_len": "spec.budgets.maxSeqLen",
    "--max_num_tokens": "spec.budgets.maxNumTokens",
    "--max_beam_width": "spec.budgets.maxBeamWidth",
    "--workers": "spec.build.workers",
    "--kv_cache_type": "nothing: the cache is paged",
}


def extra_flag_checks(spec: LLMEngineSpec, release: Release, precision: ResolvedPrecision) -> Iterator[Check]:
    """One check for each flag, and for those that exclude each other."""
    command = release.commands.get("trtllm-build")
    given = {flag.name: flag for flag in spec.build.extra_flags}
    if command is None:
        return
    allowed = sorted(flag.name for flag in command.flags.values() if flag.extra)
    for extra in given.values():
        flag = command.flags.get(extra.name)
        if flag is None:
            yield failed(
                "extra-flags", f"trtllm-build of release {release.name} has no flag {extra.name}", _allowed(allowed)
            )
        elif not flag.extra:
            field = _FIELDS.get(extra.name)
            advice = f"it is set by {field}" if field else _allowed(allowed)
            yield failed("extra-flags", f"{extra.name} cannot be given in spec.build.extraFlags", advice)
        else:
            problem = _value(extra, flag) or _type(extra, flag, precision)
            yield failed("extra-flags", *problem) if problem else passed("extra-flags", f"{_text(extra)} is allowed")
    if {"--multiple_profiles", "--opt_num_tokens"} <= set(given) and given["--multiple_profiles"].value == "enable":
        yield failed("extra-flags", "--multiple_profiles enable excludes --opt_num_tokens", "give one of them")


def _allowed(names: list[str]) -> str:
    return f"allowed are {', '.join(names)}"


def _text(extra: ExtraFlag) -> str:
    return f"{extra.name} {extra.value}" if extra.value is not None else extra.name


def _value(extra: ExtraFlag, flag: Flag) -> tuple[str, str] | None:
    """What is wrong with the value, and what would do."""
    if flag.type == "switch":
        return (f"{extra.name} takes no value, not {extra.value}", "leave value out") if extra.value else None
    if extra.value is None:
        return f"{extra.name} needs a value", _choices(flag)
    if flag.type == "int" and not re.fullmatch("[0-9]+", extra.value):
        return f"{extra.name} takes a whole number, not {extra.value}", ""
    if flag.type == "word" and extra.value not in ("enable", "disable"):
        return f"{extra.name} takes enable or disable, not {extra.value}", ""
    if flag.choices and extra.value not in flag.choices:
        return f"{extra.name} does not take {extra.value}", _choices(flag)
    return None


def _choices(flag: Flag) -> str:
    words = flag.choices or {"word": ("enable", "disable"), "int": ("a whole number",)}.get(flag.type, ())
    return f"it takes {', '.join(words)}" if words else ""


def _type(extra: ExtraFlag, flag: Flag, precision: ResolvedPrecision) -> tuple[str, str] | None:
    if flag.type != "plugin" or extra.value is None:
        return None
    if extra.value in _FLOAT_TYPES and extra.value != precision.dtype:
        return (
            f"{_text(extra)} differs from the model's type {precision.dtype}: no plugin takes both",
            f"{extra.name} auto, or precision.dtype {extra.value}",
        )
    wanted = _OF_WEIGHTS.get(extra.value)
    if wanted and precision.quant_algo != wanted:
        return f"{_text(extra)} needs weights quantized as {wanted}", f"precision.quantization {extra.value}"
    return None
