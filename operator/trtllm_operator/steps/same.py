"""Whether what a store holds under an artifact's name is that artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..runner.manifest import corrupted
from .store import Published

_GPU_DEFAULTS = {"cpuArchitecture": "amd64", "resource": "nvidia.com/gpu"}
_S3_DEFAULTS = {"prefix": "", "region": "us-east-1"}


def same(published: Published, spec: Mapping[str, Any]) -> Published:
    """`published`, which says of itself what `spec` names: {"artifact", "type", "inputs"}. What another operator has
    published may write its inputs down otherwise; then the name has to be their hash. Raises StepError
    ArtifactCorrupted."""
    found, artifact, type_ = published.manifest, spec["artifact"], spec["type"]
    wrong = next((field for field in ("artifact", "type") if found.get(field) != spec[field]), None)
    if wrong is None and found.get("inputs") != spec["inputs"] and _name(type_, found.get("inputs")) != artifact:
        wrong = "inputs"
    if wrong:
        said = json.dumps(found.get(wrong))[:200]
        raise corrupted(artifact, f"the store holds something else as {artifact}: its manifest says {wrong} {said}")
    return published


def _name(type_: str, inputs: Any) -> str | None:
    """As `planning.keys.artifact_name` makes it of inputs of key schema 1; the planner's models load too slowly."""
    if not isinstance(inputs, dict) or inputs.get("keySchema", 1) != 1:
        return None
    canonical = {"keySchema": 1, **_without_defaults(inputs)}
    text = json.dumps({"inputs": canonical, "type": type_}, sort_keys=True, separators=(",", ":"))
    return f"{type_.lower()}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _without_defaults(inputs: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field, value in inputs.items():
        if value is None or value == []:
            continue
        if field == "gpu" and isinstance(value, dict):
            value = _less(value, _GPU_DEFAULTS)
        elif field in ("storage", "model") and isinstance(value, dict) and isinstance(value.get("s3"), dict):
            value = {**value, "s3": _less(value["s3"], _S3_DEFAULTS)}
        out[field] = value
    return out


def _less(value: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in value.items() if v is not None and defaults.get(k) != v}
