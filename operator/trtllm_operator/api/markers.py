"""What a JSON schema cannot say: annotations that `crd.structural` turns into Kubernetes schema extensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

ModelT = TypeVar("ModelT", bound=BaseModel)

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


class Object(BaseModel):
    """Base of every API object: camelCase on the wire, immutable, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
    )

    def dump(self) -> dict[str, Any]:
        """The object as Kubernetes stores it: camelCase keys, absent instead of null."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


def problems(error: ValidationError) -> str:
    """What is wrong with an object, field by field, in one line."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


class Status(Object):
    """Base of statuses, which are read leniently: a newer operator may have written fields this one does not know."""

    model_config = ConfigDict(extra="ignore")


@dataclass(frozen=True)
class Cel:
    """A CEL validation rule, for `Annotated[T, Cel(...)]` or as the decorator of an `Object` class.

    As a decorator it is seen by `schema.structural` alone, which builds the class anew.
    """

    rule: str
    message: str
    field_path: str | None = None

    def dump(self) -> dict[str, Any]:
        out = {"rule": self.rule, "message": self.message}
        return {**out, "fieldPath": self.field_path} if self.field_path else out

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        schema = dict(handler(core))
        return {**schema, "x-kubernetes-validations": [*schema.get("x-kubernetes-validations", []), self.dump()]}

    def __call__(self, cls: type[ModelT]) -> type[ModelT]:
        extra = cls.model_config.get("json_schema_extra")
        known = extra if isinstance(extra, dict) else {}
        rules: Any = known.get("x-kubernetes-validations", [])
        cls.model_config["json_schema_extra"] = {**known, "x-kubernetes-validations": [self.dump(), *rules]}
        return cls


@dataclass(frozen=True)
class Extension:
    """Any `x-kubernetes-*` keyword."""

    name: str
    value: Any

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(core), f"x-kubernetes-{self.name}": self.value}


@dataclass(frozen=True)
class ListMap:
    """A list of objects merged by one key."""

    key: str

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {
            **handler(core),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [self.key],
        }


Quantity = Annotated[
    str,
    BeforeValidator(str),
    Field(pattern=QUANTITY_PATTERN, max_length=32),
    Extension("int-or-string", True),
    Cel(
        "isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0",
        message="must be a quantity that is not negative, such as 2, 500m or 16Gi",
    ),
]
"""A Kubernetes resource quantity: `2`, `500m`, `16Gi`."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
"""The name of an object in the same namespace."""

DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
ShortString = Annotated[str, Field(max_length=253)]
