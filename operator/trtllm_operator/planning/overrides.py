"""The spec as one target has it."""

from __future__ import annotations

from typing import TypeVar

from ..api.llmengine import LLMEngineSpec, Target
from ..api.markers import Object

ObjectT = TypeVar("ObjectT", bound=Object)


def effective_spec(spec: LLMEngineSpec, target: Target) -> LLMEngineSpec:
    """`spec` with what the target says otherwise put in its place; without overrides, it equals `spec`."""
    changed = {
        "precision": _merged(spec.precision, target.precision),
        "parallelism": _merged(spec.parallelism, target.parallelism),
        "budgets": _merged(spec.budgets, target.budgets),
        "serving": _merged(spec.serving, target.serving),
    }
    return spec.model_copy(update=changed)


def _merged(base: ObjectT, override: Object | None) -> ObjectT:
    """`base` with every field that `override` gives."""
    if override is None:
        return base
    said = {name: getattr(override, name) for name in type(override).model_fields}
    return base.model_copy(update={name: value for name, value in said.items() if value not in (None, ())})
