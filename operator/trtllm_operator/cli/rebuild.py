"""`why-rebuild`: the inputs in which two artifacts differ, or those of two LLMEngines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ..api.engineartifact import ArtifactType
from ..planning.keys import Difference, differences
from .errors import CliError
from .rebuild_sides import Part, Side, read_sides
from .render import Output, line, structured, table

_UNKNOWN = "not known yet"
_ORDER = ("Model", "Checkpoint", "Engine")


@dataclass(frozen=True)
class _Change:
    """One artifact before and after, for the targets that it is of."""

    targets: tuple[str, ...]
    before: Part | None
    after: Part | None
    there: bool
    """The cluster has the later one."""

    @property
    def type(self) -> ArtifactType:
        part = self.after or self.before
        assert part is not None  # it is one of at least one side
        return part.type

    @property
    def differences(self) -> tuple[Difference, ...]:
        return differences(self.before.inputs, self.after.inputs) if self.before and self.after else ()

    @property
    def same(self) -> bool:
        return self.before is not None and self.after is not None and not self.differences

    @property
    def rebuild(self) -> bool:
        return self.after is not None and not self.same and not self.there

    @property
    def said(self) -> str:
        if self.same:
            return "the same"
        if self.after is None:
            return "no longer needed"
        return f"{self.after.name or _UNKNOWN}{', is there' if self.there else ''}"


def why_rebuild(before: str, after: str, namespace: str | None, catalog_files: Iterable[str], output: Output) -> int:
    """Print what differs between two artifacts, or between the artifacts of two LLMEngines."""
    old, new = read_sides((before, after), namespace, catalog_files)
    if isinstance(old.parts, Part) and isinstance(new.parts, Part):
        _show_artifacts(old, new, old.parts, new.parts, output)
    elif isinstance(old.parts, Mapping) and isinstance(new.parts, Mapping):
        _show_engines(old, new, _changes(old.parts, new.parts, old.ready | new.ready), output)
    return 0


def _show_artifacts(old: Side, new: Side, before: Part, after: Part, output: Output) -> None:
    if before.type != after.type:
        raise CliError(f"{old.word} is a {before.type} and {new.word} a {after.type}: compare two of one type")
    found = differences(before.inputs, after.inputs)
    if output != "table":
        said = {"before": before.name, "after": after.name, "rebuild": bool(found), "differences": _objects(found)}
        structured(said, output)
    elif not found:
        line(f"the same artifact: {before.name}")
    else:
        line(f"{before.name} -> {after.name}")
        _print(found)


def _show_engines(old: Side, new: Side, changes: Sequence[_Change], output: Output) -> None:
    rebuilt = [change for change in changes if change.rebuild]
    if output != "table":
        said = [
            {
                "type": change.type,
                "targets": list(change.targets),
                "before": change.before.name if change.before else None,
                "after": change.after.name if change.after else None,
                "rebuild": change.rebuild,
                "differences": _objects(change.differences),
            }
            for change in changes
        ]
        structured({"before": old.word, "after": new.word, "rebuild": bool(rebuilt), "artifacts": said}, output)
        return
    line(f"{old.word} -> {new.word}: {_summary(rebuilt)}", "bold")
    table(
        ("  ARTIFACT", "FOR", "BEFORE", "AFTER"),
        [
            (f"  {c.type}", ", ".join(c.targets), (c.before.name or _UNKNOWN) if c.before else "-", c.said)
            for c in changes
        ],
    )
    alike: dict[tuple[ArtifactType, tuple[Difference, ...]], list[str]] = {}
    for change in changes:
        alike.setdefault((change.type, change.differences), []).extend(change.targets)
    for (type_, found), targets in alike.items():
        if found:
            line()
            line(f"{type_} for {', '.join(targets)}", "bold")
            _print(found)


def _summary(rebuilt: Sequence[_Change]) -> str:
    if not rebuilt:
        return "nothing is built"
    return f"{len(rebuilt)} {'artifact is' if len(rebuilt) == 1 else 'artifacts are'} built"


def _changes(
    before: Mapping[str, Sequence[Part]], after: Mapping[str, Sequence[Part]], ready: frozenset[str]
) -> list[_Change]:
    """In the order of the way; what several targets share, once."""
    found: dict[tuple[Part | None, Part | None], list[str]] = {}
    for target in dict.fromkeys((*before, *after)):
        for pair in zip_longest(before.get(target, ()), after.get(target, ())):
            found.setdefault(pair, []).append(target)
    changes = [
        _Change(tuple(targets), old, new, there=new is not None and new.name in ready)
        for (old, new), targets in found.items()
    ]
    return sorted(changes, key=lambda change: _ORDER.index(change.type))


def _print(found: Iterable[Difference]) -> None:
    table(("  INPUT", "BEFORE", "AFTER"), [(f"  {d.input}", d.before, d.after) for d in found])


def _objects(found: Iterable[Difference]) -> list[dict[str, str]]:
    return [{"input": d.input, "before": d.before, "after": d.after} for d in found]
