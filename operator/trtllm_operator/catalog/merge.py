"""Puts the catalog's files together: later files add entries and correct fields of entries that are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from .schema import SECTIONS

Sections = dict[str, dict[str, dict[str, Any]]]
"""Section -> name of the entry -> its fields, not yet validated."""

# The safe loader in C, where PyYAML was built with it: it takes a tenth of the time.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CatalogError(ValueError):
    """A file of the catalog is not what the schema demands. One line: which file, which field, what is wrong."""


def merge(files: Iterable[tuple[str, str]]) -> Sections:
    """Entries of all files, given as names and texts. Raises CatalogError."""
    sections: Sections = {name: {} for name in SECTIONS}
    for name, text in files:
        for section, entries in _read(name, text).items():
            key = SECTIONS[section][0]
            for entry in entries:
                if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
                    raise CatalogError(f"catalog file {name}: an entry of {section} has no {key} that is a text")
                known = sections[section].get(entry[key], {})
                sections[section][entry[key]] = _corrected(known, entry)
    return sections


def _read(name: str, text: str) -> dict[str, list[Any]]:
    try:
        found = yaml.load(text, Loader=_SafeLoader)  # noqa: S506
    except yaml.YAMLError as error:
        raise CatalogError(f"catalog file {name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise CatalogError(f"catalog file {name} holds no sections; there are {', '.join(SECTIONS)}")
    for section, entries in found.items():
        if section not in SECTIONS:
            raise CatalogError(f"catalog file {name}: no section {section!r}; there are {', '.join(SECTIONS)}")
        if not isinstance(entries, list):
            raise CatalogError(f"catalog file {name}: section {section} is not a list of entries")
    return found


def _corrected(known: Any, given: Any) -> Any:
    """`given` over `known`: maps field by field, lists of named entries entry by entry, anything else as a whole."""
    if isinstance(known, dict) and isinstance(given, dict):
        return known | {key: _corrected(known.get(key), value) for key, value in given.items()}
    if _named(known) and _named(given):
        entries = {entry["name"]: entry for entry in known}
        for entry in given:
            entries[entry["name"]] = _corrected(entries.get(entry["name"]), entry)
        return list(entries.values())
    return given


def _named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) and "name" in e for e in value)
