"""What `why-rebuild` compares: an artifact, or those of an LLMEngine by target, each from a file or from a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..api.engineartifact import ArtifactType, Inputs
from ..api.stored import read_stored
from ..planning.keys import artifact_name
from .errors import CliError
from .files import read_documents, said

if TYPE_CHECKING:
    from .rebuild_cluster import LiveEngine, Namespace

_KINDS = {
    **dict.fromkeys(("llmengine", "llmengines", "llme"), "LLMEngine"),
    **dict.fromkeys(("engineartifact", "engineartifacts", "eart"), "EngineArtifact"),
}
_REFERENCE = re.compile(r"^([a-z]+)(?:\.llmengine\.dev)?/([a-z0-9.-]+)$")


@dataclass(frozen=True)
class Part:
    """One artifact, there or to come."""

    type: ArtifactType
    inputs: Inputs
    known: bool = True
    """Whether everything is that its name follows from."""

    @cached_property
    def name(self) -> str | None:
        return artifact_name(self.type, self.inputs) if self.known else None


@dataclass(frozen=True)
class Side:
    """What one word of the command line stands for."""

    word: str
    parts: Part | Mapping[str, Sequence[Part]]
    """The artifact, or those of each target of an LLMEngine, in the order of the way."""
    ready: frozenset[str] = frozenset()
    """Names of artifacts that the cluster has."""


@dataclass(frozen=True)
class _Manifest:
    """A file with an LLMEngine; which artifacts it means depends on what it is compared with."""

    word: str


def read_sides(words: tuple[str, str], namespace: str | None, catalog_files: Iterable[str]) -> tuple[Side, Side]:
    """What the words stand for, the earlier one first: a manifest is what would be applied to the LLMEngine of a
    cluster, in whichever order they are given. Raises CliError."""
    cluster: Namespace | None = None
    found: list[Side | _Manifest | LiveEngine] = []
    for word in words:
        reference = _REFERENCE.match(word)
        if reference is None or reference[1] not in _KINDS:
            found.append(_from_file(word))
            continue
        from .rebuild_cluster import Namespace

        cluster = cluster or Namespace(namespace)
        engine = _KINDS[reference[1]] == "LLMEngine"
        found.append(cluster.engine(word, reference[2]) if engine else cluster.artifact(word, reference[2]))
    if isinstance(found[0], _Manifest) and not isinstance(found[1], _Manifest):
        found.reverse()
    live = found[0] if not isinstance(found[0], Side | _Manifest) else None
    before, after = (_side(one, live, catalog_files) for one in found)
    if isinstance(before.parts, Part) != isinstance(after.parts, Part):
        raise CliError(f"{_kind(before)} and {_kind(after)}: compare two artifacts, or two LLMEngines")
    return before, after


def _side(found: Side | _Manifest | LiveEngine, live: LiveEngine | None, catalog_files: Iterable[str]) -> Side:
    if isinstance(found, Side):
        return found
    if isinstance(found, _Manifest):
        from .rebuild_applied import applied

        return applied(found.word, live, catalog_files)
    return found.side


def _kind(side: Side) -> str:
    return f"{side.word} is {'an artifact' if isinstance(side.parts, Part) else 'an LLMEngine'}"


def _from_file(path: str) -> Side | _Manifest:
    documents = read_documents(path)
    if any(document.get("kind") == "LLMEngine" for document in documents):
        return _Manifest(path)
    if len(documents) != 1:
        raise CliError(f"{path} holds {len(documents)} documents, and no LLMEngine; give one")
    return Side(path, part_of(documents[0], path))


def part_of(document: Mapping[str, Any], word: str) -> Part:
    """The artifact that an EngineArtifact or a manifest.json of the store describes. Raises CliError."""
    spec = document.get("spec")
    holder = spec if isinstance(spec, Mapping) else document
    type_ = holder.get("type")
    if type_ not in ("Model", "Checkpoint", "Engine") or "inputs" not in holder:
        raise CliError(f"{word} is no EngineArtifact, no manifest.json and no LLMEngine: it has no type and inputs")
    try:
        return Part(type_, read_stored(Inputs, holder["inputs"]))
    except ValidationError as error:
        first = error.errors()[0]
        raise CliError(f"{word}: inputs.{'.'.join(map(str, first['loc']))}: {said(first)}") from None
