"""Resolves the catalog's histories to the values of one release."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from . import schema
from .history import at, covers
from .merge import CatalogError
from .release import Command, Family, Field, Flag, Format, KvCacheFormat, Placeholder, Release

Section = Callable[[str, Any], Iterable[Any]]


class _Dated(Protocol):
    @property
    def since(self) -> str | None: ...
    @property
    def until(self) -> str | None: ...


def resolve_release(entry: schema.ReleaseEntry, section: Section, name: str) -> Release:
    """The release as the planner sees it. `name` is the one asked for, which a pattern may cover."""
    line = entry.line

    def has(dated: _Dated) -> bool:
        return covers(line, dated.since, dated.until)

    facts: dict[str, Any] = {fact.name: at(fact.values, line) for fact in section("facts", schema.FactEntry)}
    try:
        return Release(
            name=name,
            line=line,
            status=entry.status,
            reason=entry.reason,
            instead=entry.instead,
            images=entry.images,
            tensorrt=entry.tensorrt,
            cuda=entry.cuda,
            driver=entry.driver,
            python=entry.python,
            image_bytes=entry.image_bytes,
            compute_capabilities=facts["image_compute_capabilities"],
            beta_compute_capabilities=facts["beta_compute_capabilities"],
            head_sizes=facts["head_sizes"],
            uneven_pipeline_stages=facts["uneven_pipeline_stages"],
            kv_head_duplication=facts["kv_head_duplication"],
            gpus_per_node=facts["gpus_per_node"],
            commands={c.command: _command(c, line) for c in section("commands", schema.CommandEntry) if has(c)},
            formats={f.name: _format(f, line) for f in section("formats", schema.FormatEntry)},
            kv_cache_formats={f.name: _kv_format(f, line) for f in section("kv_cache", schema.KvCacheEntry)},
            known_failures=tuple(filter(has, section("known_failures", schema.KnownFailure))),
            source_checkpoints=tuple(filter(has, section("source_checkpoints", schema.SourceCheckpoint))),
            families={f.name: _family(f, line) for f in section("families", schema.FamilyEntry) if has(f)},
            templates={
                template.model: tuple(Placeholder(p.name, p.required) for p in template.placeholders if has(p))
                for template in section("templates", schema.TemplateEntry)
            },
            request_fields={
                request.model: tuple(Field(f.name, f.type, f.required) for f in request.inputs if has(f))
                for request in section("requests", schema.RequestEntry)
            },
            response_fields={
                request.model: tuple(Field(f.name, f.type, f.required) for f in request.outputs if has(f))
                for request in section("requests", schema.RequestEntry)
            },
            defects=tuple(filter(has, section("defects", schema.DefectEntry))),
            source=entry.source,
        )
    except KeyError as error:
        raise CatalogError(f"the catalog has no fact {error.args[0]}") from None


def _command(entry: schema.CommandEntry, line: str) -> Command:
    flags = {f.name: _flag(f, line) for f in entry.flags if covers(line, f.since, f.until)}
    return Command(entry.command, at(entry.program, line), entry.needs_gpu, flags, entry.conversion, entry.source)


def _flag(entry: schema.FlagEntry, line: str) -> Flag:
    type_ = at(entry.type, line) if isinstance(entry.type, dict) else entry.type
    if type_ is None:
        raise CatalogError(f"flag {entry.name} has no type in line {line}")
    choices = at(entry.choices, line) if isinstance(entry.choices, dict) else entry.choices
    default = at(entry.default, line) if isinstance(entry.default, dict) else entry.default
    return Flag(entry.name, type_, choices or (), default, entry.aliases, entry.note, entry.extra)


def _format(entry: schema.FormatEntry, line: str) -> Format:
    return Format(
        name=entry.name,
        quant_algo=entry.quant_algo,
        weight_bits=entry.weight_bits,
        group_size=entry.group_size,
        group_sizes=entry.group_sizes,
        scale_bytes_per_group=entry.scale_bytes_per_group,
        scale_bytes_per_output_channel=entry.scale_bytes_per_output_channel,
        tool=entry.tool,
        arguments=entry.arguments,
        families=entry.families,
        paged_context_fmha_with_fp8_kv_cache=bool(at(entry.paged_context_fmha_with_fp8_kv_cache, line)),
        compute_capabilities=at(entry.compute_capabilities, line) or (),
        unproven=entry.unproven,
        source=entry.source,
    )


def _kv_format(entry: schema.KvCacheEntry, line: str) -> KvCacheFormat:
    return KvCacheFormat(
        name=entry.name,
        quant_algo=entry.quant_algo,
        bits=entry.bits,
        convert_arguments=entry.convert_arguments,
        quantize_arguments=entry.quantize_arguments,
        paged_context_fmha=entry.paged_context_fmha,
        needs_calibration=entry.needs_calibration,
        compute_capabilities=at(entry.compute_capabilities, line) or (),
        source=entry.source,
    )


def _family(entry: schema.FamilyEntry, line: str) -> Family:
    return Family(
        name=entry.name,
        architectures=entry.architectures,
        command=at(entry.command, line),
        refused=entry.refused,
        arguments=entry.arguments,
        conversion_needs_gpu=entry.conversion_needs_gpu,
        unconverted_formats=entry.unconverted_formats,
        unconverted_kv_caches=entry.unconverted_kv_caches,
        undivided=entry.undivided,
        copied_kv_heads=entry.copied_kv_heads,
        divided_embedding=entry.divided_embedding,
        padded_vocabulary=entry.padded_vocabulary,
        free_head_size=entry.free_head_size,
        most_tokens=entry.most_tokens,
        positions=entry.positions,
        mixture_of_experts=entry.mixture_of_experts,
        quantization_formats=entry.quantization_formats,
        source=entry.source,
    )
