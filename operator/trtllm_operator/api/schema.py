"""pydantic models to Kubernetes structural schemas.

A structural schema is OpenAPI 3.0 without references, unions and null. What cannot be said in it raises `SchemaError`
here rather than a condition on the CRD later.

pydantic's defaults stay out of the schema: a default there is written into every stored object, so that what Git holds
and what the cluster holds differ. They are told in the description instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from .descriptions import describe

Schema = dict[str, Any]

_KEPT = frozenset(
    {"type", "format", "description", "enum", "items", "properties", "required", "additionalProperties", "anyOf"}
    | {"pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_DROPPED = frozenset({"title", "default", "examples"})
_INT32_MAX = 2**31 - 1


class SchemaError(TypeError):
    """A model says what a structural schema cannot; the message begins with the path of the field."""


def structural(model: type[BaseModel], *, tell_defaults: bool = True) -> Schema:
    """Structural schema of `model`; with `tell_defaults`, descriptions end in the field's default value."""
    describe(model)
    root = model.model_json_schema(by_alias=True, mode="validation", ref_template="{model}")
    return _Converter(root.pop("$defs", {}), tell_defaults).convert(root, (model.__name__,), ())


class _Converter:
    def __init__(self, definitions: Mapping[str, Schema], tell_defaults: bool) -> None:
        self._definitions = definitions
        self._tell_defaults = tell_defaults

    def convert(self, source: Schema, path: tuple[str, ...], models: tuple[str, ...]) -> Schema:
        """`path` names the field in errors; `models` are the models it is inside of, to notice recursion."""
        schema, models = self._flattened(source, path, models)
        if self._tell_defaults:
            _tell_default(schema)
        _translate_keywords(schema)
        if unsupported := {k for k in schema if k not in _KEPT | _DROPPED and not k.startswith("x-kubernetes-")}:
            raise SchemaError(f"{'.'.join(path)}: a structural schema cannot say {', '.join(sorted(unsupported))}")
        if "properties" in schema:
            properties = schema["properties"].items()
            schema["properties"] = {k: self.convert(v, (*path, k), models) for k, v in properties}
        if isinstance(schema.get("additionalProperties"), dict):
            schema["additionalProperties"] = self.convert(schema["additionalProperties"], (*path, "*"), models)
        if "items" in schema:
            schema["items"] = self.convert(schema["items"], (*path, "[]"), models)
        if "type" not in schema and "x-kubernetes-int-or-string" not in schema:
            raise SchemaError(f"{'.'.join(path)}: has no type")
        return {k: v for k, v in schema.items() if k not in _DROPPED}

    def _flattened(
        self, source: Schema, path: tuple[str, ...], models: tuple[str, ...]
    ) -> tuple[Schema, tuple[str, ...]]:
        """References inlined and `X | None` reduced to X; what the field says wins over what its type says."""
        schema = dict(source)
        rules = list(schema.pop("x-kubernetes-validations", []))
        while "$ref" in schema or "anyOf" in schema:
            if name := schema.pop("$ref", None):
                if name in models:
                    raise SchemaError(f"{'.'.join(path)}: {name} is recursive")
                models = (*models, name)
                inner = dict(self._definitions[name])
            else:
                arms = [arm for arm in schema.pop("anyOf") if arm.get("type") != "null"]
                if len(arms) != 1:
                    raise SchemaError(f"{'.'.join(path)}: a union of {len(arms)} types is not structural")
                inner = dict(arms[0])
            rules += [rule for rule in inner.pop("x-kubernetes-validations", []) if rule not in rules]
            schema = {**inner, **schema}
        if rules:
            schema["x-kubernetes-validations"] = rules
        return schema, models


def _tell_default(schema: Schema) -> None:
    default = schema.get("default")
    if isinstance(default, str | int) and default != "":
        text = _yaml_scalar(default)
        schema["description"] = f"{schema.get('description', '').rstrip()} Default: {text}.".lstrip()


def _yaml_scalar(value: str | int) -> str:
    """A scalar as YAML shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _translate_keywords(schema: Schema) -> None:
    """JSON Schema of 2020 to OpenAPI 3.0 and the Kubernetes extensions, in place."""
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in schema:
            schema[bound.lower()] = schema[f"exclusive{bound}"]
            schema[f"exclusive{bound}"] = True
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("type") == "integer" and "enum" not in schema:
        schema.setdefault("format", "int32" if schema.get("maximum", _INT32_MAX + 1) <= _INT32_MAX else "int64")
    if schema.get("type") == "array":
        if schema.pop("uniqueItems", False):
            schema["x-kubernetes-list-type"] = "set"
        schema.setdefault("x-kubernetes-list-type", "atomic")
    if "properties" in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.pop("additionalProperties", None)
    if "description" in schema:
        schema["description"] = re.sub(r"\s+", " ", schema["description"]).strip()
