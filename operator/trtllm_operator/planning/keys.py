"""Names of artefacts: a hash of everything their content depends on, in one canonical form."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..api.engineartifact import ArtifactType, Inputs

KEY_DIGITS = 20
"""80 bits: of a billion artefacts, two share a name with a probability below one in a million."""


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
