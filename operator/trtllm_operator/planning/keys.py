"""Names of artifacts: a hash of everything their content depends on, in one canonical form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..api.engineartifact import ArtifactType, Inputs
from ..api.stored import read_stored

KEY_DIGITS = 20
"""80 bits: of a billion artifacts, two share a name with a probability below one in a million."""


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no blanks and ASCII only: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_inputs(inputs: Inputs) -> dict[str, Any]:
    """What is hashed: the inputs as the API stores them. An absent field and one that says its default are the same."""
    return inputs.model_dump(by_alias=True, exclude_defaults=True, mode="json") | {"keySchema": inputs.key_schema}


def artifact_name(type_: ArtifactType, inputs: Inputs) -> str:
    """`engine-` and 20 hex digits of the SHA-256 of type and inputs: a DNS label of at most 31 characters."""
    text = canonical_json({"type": type_, "inputs": canonical_inputs(inputs)})
    return f"{type_.lower()}-{hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]}"


@dataclass(frozen=True)
class Mismatch:
    """An EngineArtifact that is not what its name says, or of which that cannot be told."""

    why: str
    later: bool = False
    """A later version of the operator may have made it: it is for that one to judge."""

    @property
    def advice(self) -> str:
        return "Upgrade the operator, or delete the artifact" if self.later else "Delete it, and it is made anew"


def name_mismatch(name: str, spec: Mapping[str, Any]) -> Mismatch | None:
    """From its spec as stored; None where it is what its name says."""
    try:
        type_: ArtifactType = spec["type"]
        inputs = read_stored(Inputs, spec["inputs"])
    except (KeyError, TypeError, ValidationError) as error:
        return Mismatch(f"its inputs cannot be read by this version of the operator: {_first_line(error)}", later=True)
    wanted = artifact_name(type_, inputs)
    if wanted == name:
        return None
    return Mismatch(f"its name is not the hash of its type and inputs, {wanted}: the operator did not make it")


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{error!r}"


@dataclass(frozen=True)
class Difference:
    """One input in which two artifacts differ."""

    input: str
    """Path of the field, or the flag of the command line."""
    before: str
    after: str


def differences(before: Inputs, after: Inputs) -> tuple[Difference, ...]:
    """Every input that makes the keys of two artifacts differ: fields by their path, the command line by its flags."""
    old, new = canonical_inputs(before), canonical_inputs(after)
    fields = _differing(_flat({**old, "command": None}), _flat({**new, "command": None}))
    return (*fields, *_differing(_flags(before.command), _flags(after.command)))


def _differing(old: dict[str, str], new: dict[str, str]) -> tuple[Difference, ...]:
    names = dict.fromkeys((*old, *new))
    pairs = ((name, old.get(name, "(absent)"), new.get(name, "(absent)")) for name in names)
    return tuple(Difference(*pair) for pair in pairs if pair[1] != pair[2])


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in _flat(item, f"{path}.{key}" if path else key).items()}
    return {} if value is None else {path: str(value)}


def _flags(command: tuple[str, ...]) -> dict[str, str]:
    """Flags with the words after them; the words before the first flag are the program."""
    found: dict[str, list[str]] = {"program": []}
    current = "program"
    for word in command:
        if word.startswith("--"):
            current = word
            found[current] = []
        else:
            found[current].append(word)
    return {flag: " ".join(words) or "(given)" for flag, words in found.items() if flag != "program" or words}
