"""Reads the catalogue's files, validates them and resolves releases."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from . import schema
from .gpus import Gpu, parse_product
from .history import Entry, at, covers
from .release import Command, Family, Flag, Format, KvCacheFormat, Placeholder, Release

EntryT = TypeVar("EntryT", bound=Entry)

# The safe loader in C, where PyYAML was built with it: it takes a tenth of the time.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CatalogError(ValueError):
    """A file of the catalogue is not what the schema demands. One line: which file, which field, what is wrong."""


class UnknownRelease(LookupError):  # noqa: N818
    """The catalogue has no such release."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"release {name!r} is not in the catalogue; it has {', '.join(self.known)}")


class Catalog:
    """All releases and GPUs. Files are validated on load; a release is resolved when it is asked for."""

    def __init__(
        self,
        *,
        releases: Iterable[schema.ReleaseEntry],
        commands: Iterable[schema.CommandEntry],
        formats: schema.FormatsFile,
        families: schema.FamiliesFile,
        templates: schema.TemplatesFile,
        engine: schema.EngineFile,
        defects: schema.DefectsFile,
        gpus: schema.GpusFile,
    ) -> None:
        self._releases = {entry.release: entry for entry in releases}
        self._commands = tuple(commands)
        self._formats = formats
        self._families = families
        self._templates = templates
        self._engine = engine
        self._defects = defects
        self.gpus: tuple[Gpu, ...] = gpus.gpus
        self._resolved: dict[str, Release] = {}

    @property
    def release_names(self) -> tuple[str, ...]:
        """Known releases, newest first."""
        return tuple(sorted(self._releases, key=_release_order, reverse=True))

    def release(self, name: str) -> Release:
        """The release of that name. Raises UnknownRelease, which lists those there are."""
        if name not in self._releases:
            raise UnknownRelease(name, self.release_names)
        if name not in self._resolved:
            self._resolved[name] = self._resolve(self._releases[name])
        return self._resolved[name]

    def gpu(self, product: str) -> Gpu | None:
        """The GPU that a product label names, by its whole name; None when the catalogue does not have it."""
        return self._gpu_by_product.get(parse_product(product).name)

    @cached_property
    def _gpu_by_product(self) -> dict[str, Gpu]:
        return {product: gpu for gpu in self.gpus for product in gpu.products}

    def _resolve(self, entry: schema.ReleaseEntry) -> Release:
        line = entry.line
        engine = self._engine
        return Release(
            name=entry.release,
            line=line,
            status=entry.status,
            reason=entry.reason,
            images=entry.images,
            tensorrt=entry.tensorrt,
            cuda=entry.cuda,
            driver=entry.driver,
            python=entry.python,
            image_bytes=entry.image_bytes,
            compute_capabilities=at(engine.image_compute_capabilities.values, line) or (),
            beta_compute_capabilities=at(engine.beta_compute_capabilities.values, line) or (),
            head_sizes=at(engine.head_sizes.values, line) or (),
            uneven_pipeline_stages=bool(at(engine.uneven_pipeline_stages.values, line)),
            kv_head_duplication=bool(at(engine.kv_head_duplication.values, line)),
            gpus_per_node=at(engine.gpus_per_node.values, line) or 8,
            commands={c.command: _command(c, line) for c in self._commands if covers(line, c.since, c.until)},
            formats={f.name: _format(f, line) for f in self._formats.formats},
            kv_cache_formats={f.name: _kv_format(f, line) for f in self._formats.kv_cache},
            known_failures=tuple(k for k in self._formats.known_failures if covers(line, k.since, k.until)),
            source_checkpoints=tuple(c for c in self._formats.source_checkpoints if covers(line, c.since, c.until)),
            families={f.name: _family(f, line) for f in self._families.families if covers(line, f.since, f.until)},
            templates={
                model: tuple(Placeholder(p.name, p.required) for p in entries if covers(line, p.since, p.until))
                for model, entries in self._templates.models.items()
            },
            defects=tuple(d for d in self._defects.defects if covers(line, d.since, d.until)),
            source=entry.source,
        )


def load_catalog() -> Catalog:
    """The catalogue that the package carries. Raises CatalogError when one of its files is not valid."""
    data = files(__package__) / "data"
    return Catalog(
        releases=[_read(schema.ReleaseEntry, f.name, f.read_text()) for f in _yaml_files(data / "releases")],
        commands=[_read(schema.CommandEntry, f.name, f.read_text()) for f in _yaml_files(data / "commands")],
        formats=_read_file(schema.FormatsFile, data, "formats.yaml"),
        families=_read_file(schema.FamiliesFile, data, "families.yaml"),
        templates=_read_file(schema.TemplatesFile, data, "templates.yaml"),
        engine=_read_file(schema.EngineFile, data, "engine.yaml"),
        defects=_read_file(schema.DefectsFile, data, "defects.yaml"),
        gpus=_read_file(schema.GpusFile, data, "gpus.yaml"),
    )


def _yaml_files(folder: Any) -> list[Any]:
    return sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)


def _read_file(kind: type[EntryT], data: Any, name: str) -> EntryT:
    return _read(kind, name, (data / name).read_text())


def _read(kind: type[EntryT], name: str, text: str) -> EntryT:
    try:
        return kind.model_validate(yaml.load(text, Loader=_SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        raise CatalogError(f"catalogue file {name} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CatalogError(f"catalogue file {name}, {where or 'top level'}: {first['msg']}") from None


def _release_order(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key of a release name: by numbers where there are numbers (0.9 before 0.21, 1.3.0rc9 before 1.3.0rc20)."""
    parts = name.replace("rc", ".rc.").replace("post", ".post.").split(".")
    return tuple((int(part), "") if part.isdecimal() else (-1 if part == "rc" else 0, part) for part in parts)


def _command(entry: schema.CommandEntry, line: str) -> Command:
    flags = {f.name: _flag(f, line) for f in entry.flags if covers(line, f.since, f.until)}
    return Command(entry.command, at(entry.program, line), entry.needs_gpu, flags, entry.source)


def _flag(entry: schema.FlagEntry, line: str) -> Flag:
    type_ = at(entry.type, line) if isinstance(entry.type, dict) else entry.type
    if type_ is None:
        raise CatalogError(f"flag {entry.name} has no type in line {line}")
    choices = at(entry.choices, line) if isinstance(entry.choices, dict) else entry.choices
    default = at(entry.default, line) if isinstance(entry.default, dict) else entry.default
    return Flag(entry.name, type_, choices or (), default, entry.aliases, entry.note)


def _format(entry: schema.FormatEntry, line: str) -> Format:
    return Format(
        name=entry.name,
        quant_algo=entry.quant_algo,
        weight_bits=entry.weight_bits,
        group_size=entry.group_size,
        scale_bytes_per_group=entry.scale_bytes_per_group,
        scale_bytes_per_output_channel=entry.scale_bytes_per_output_channel,
        tool=entry.tool,
        arguments=entry.arguments,
        families=entry.families,
        paged_context_fmha_with_fp8_kv_cache=entry.paged_context_fmha_with_fp8_kv_cache,
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
        positions=entry.positions,
        mixture_of_experts=entry.mixture_of_experts,
        quantization_formats=entry.quantization_formats,
        source=entry.source,
    )
