"""The catalog: its files read, merged and validated, and its releases resolved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from . import schema
from .gpus import Gpu, parse_product
from .history import Entry
from .merge import CatalogError, Sections, merge
from .release import Release
from .resolve import resolve_release

EntryT = TypeVar("EntryT", bound=Entry)


class UnknownRelease(LookupError):  # noqa: N818
    """The catalog has no such release."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"release {name!r} is not in the catalog; it has {', '.join(self.known)}")


class Catalog:
    """All releases and GPUs. Entries are validated on load; a release is resolved when it is asked for."""

    def __init__(self, sections: Sections) -> None:
        self._entries = {name: _validated(name, entries) for name, entries in sections.items()}
        self._resolved: dict[str, Release] = {}

    @property
    def release_names(self) -> tuple[str, ...]:
        """Known releases, newest first."""
        return tuple(sorted(self._entries["releases"], key=release_order, reverse=True))

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(self.section("gpus", Gpu))

    def section(self, name: str, kind: type[EntryT]) -> Iterable[EntryT]:
        """The entries of one section."""
        return cast("Iterable[EntryT]", self._entries[name].values())

    def release(self, name: str) -> Release:
        """The release of that name. Raises UnknownRelease, which lists those there are."""
        if name not in self._resolved:
            self._resolved[name] = resolve_release(self._release_entry(name), self.section, name)
        return self._resolved[name]

    def gpu(self, product: str) -> Gpu | None:
        """The GPU that a product label names, by its whole name; None when the catalog does not have it."""
        return self._gpu_by_name.get(parse_product(product).name)

    @cached_property
    def _gpu_by_name(self) -> dict[str, Gpu]:
        return {name: gpu for gpu in self.gpus for name in (gpu.name, *gpu.aliases)}

    def _release_entry(self, name: str) -> schema.ReleaseEntry:
        entries = cast("dict[str, schema.ReleaseEntry]", self._entries["releases"])
        if name in entries:
            return entries[name]
        covering = [e for e in entries.values() if e.pattern is not None and re.fullmatch(e.pattern, name)]
        if not covering:
            raise UnknownRelease(name, self.release_names)
        return covering[0]


def load_catalog(extra: Mapping[str, str] | None = None) -> Catalog:
    """The package's catalog, with the files in `extra` (name to YAML text, as a ConfigMap's data) merged over it.

    A file is a map of sections; an entry with a name that is there corrects the fields it gives, another is added.
    Raises CatalogError.
    """
    return Catalog(merge([*_packaged(), *sorted((extra or {}).items())]))


def _packaged() -> list[tuple[str, str]]:
    data = files(__package__) / "data"
    found = [*data.iterdir(), *(data / "commands").iterdir()]
    return sorted((f.name, f.read_text(encoding="utf-8")) for f in found if f.name.endswith(".yaml"))


def _validated(section: str, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
    kind = schema.SECTIONS[section][1]
    out: dict[str, Entry] = {}
    for name, fields in entries.items():
        try:
            out[name] = kind.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise CatalogError(f"catalog entry {section}/{name}, {where or 'the entry'}: {first['msg']}") from None
    return out


def release_order(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key of a release name: by numbers where there are numbers (0.9 before 0.21, 1.3.0rc9 before 1.3.0rc20)."""
    parts = name.replace("rc", ".rc.").replace("post", ".post.").split(".")
    key = tuple((int(part), "") if part.isdecimal() else (-1 if part == "rc" else 0, part) for part in parts)
    # A final release is after its candidates.
    return key if "rc" in name else (*key, (0, "final"))
