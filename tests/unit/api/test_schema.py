"""pydantic models to structural schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, create_model

from trtllm_operator.api.markers import Cel, ListMap, Object, Quantity
from trtllm_operator.api.schema import SchemaError, structural


class Inner(Object):
    """An inner object."""

    size: int = 3
    """How many."""


class Twig(Object):
    leaf: Twig | None = None


def property_of(annotation: Any, default: Any = ...) -> dict[str, object]:
    """Schema of a field of that type."""
    model = create_model("M", __base__=Object, some_field=(annotation, default))
    return dict(structural(model)["properties"]["someField"])


def test_an_optional_field_is_absent_rather_than_null() -> None:
    assert property_of(Annotated[str | None, Field(max_length=5)], None) == {"type": "string", "maxLength": 5}


def test_a_nested_model_is_inlined_without_its_default() -> None:
    said = property_of(Inner, Inner())
    assert said["description"] == "An inner object."
    assert "default" not in said, "a default in the schema is written into every stored object"


def test_a_default_is_told_in_the_description() -> None:
    class Tells(Object):
        count: int = 3
        """How many."""
        flag: bool = False
        """Whether."""
        nothing: str | None = None
        """Maybe."""

    properties = structural(Tells)["properties"]
    assert [p["description"] for p in properties.values()] == [
        "How many. Default: 3.",
        "Whether. Default: false.",
        "Maybe.",
    ]
    assert structural(Tells, tell_defaults=False)["properties"]["count"]["description"] == "How many."


def test_the_description_of_a_field_wins_over_that_of_its_type() -> None:
    class Outer(Object):
        inner: Inner
        """Here and now."""

    assert structural(Outer)["properties"]["inner"]["description"] == "Here and now."


def test_a_literal_is_an_enum_even_with_one_value() -> None:
    assert property_of(Literal["S3"]) == {"type": "string", "enum": ["S3"]}


def test_exclusive_bounds_are_flags_as_openapi_3_has_them() -> None:
    said = property_of(Annotated[int, Field(gt=0, lt=10)])
    assert said == {"type": "integer", "format": "int32", "minimum": 0, "exclusiveMinimum": True} | {
        "maximum": 10,
        "exclusiveMaximum": True,
    }


def test_an_integer_without_a_small_maximum_has_64_bits() -> None:
    assert property_of(Annotated[int, Field(ge=0)])["format"] == "int64"


def test_a_quantity_is_an_integer_or_a_string() -> None:
    said = property_of(Quantity)
    assert said["x-kubernetes-int-or-string"] is True
    assert said["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in said


def test_a_list_is_atomic_unless_it_says_otherwise() -> None:
    assert property_of(tuple[str, ...])["x-kubernetes-list-type"] == "atomic"
    assert property_of(set[str])["x-kubernetes-list-type"] == "set"
    merged = property_of(Annotated[tuple[Inner, ...], ListMap("size")])
    assert (merged["x-kubernetes-list-type"], merged["x-kubernetes-list-map-keys"]) == ("map", ["size"])


def test_rules_of_the_field_and_of_its_model_are_both_kept() -> None:
    @Cel("self.size > 1", message="too small")
    class Ruled(Object):
        size: int

    class Outer(Object):
        inner: Annotated[Ruled | None, Cel("self == oldSelf", message="immutable")] = None

    rules = structural(Outer)["properties"]["inner"]["x-kubernetes-validations"]
    assert {rule["message"] for rule in rules} == {"too small", "immutable"}


def test_a_model_inherits_the_rules_of_its_base() -> None:
    @Cel("self.size > 1", message="too small")
    class Base(Object):
        size: int

    @Cel("self.size < 9", message="too big")
    class Derived(Base):
        pass

    assert [r["message"] for r in structural(Derived)["x-kubernetes-validations"]] == ["too big", "too small"]
    assert [r["message"] for r in structural(Base)["x-kubernetes-validations"]] == ["too small"]


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (int | str, r"M\.someField: a union of 2 types"),
        (tuple[int, str], r"M\.someField: a structural schema cannot say prefixItems"),
        (dict[Annotated[str, Field(pattern="^a")], int], r"M\.someField: .*patternProperties"),
        (object, r"M\.someField: has no type"),
        (Twig, r"Twig is recursive"),
    ],
    ids=["union", "tuple", "constrained keys", "anything", "recursion"],
)
def test_what_a_structural_schema_cannot_say_is_refused_by_the_name_of_the_field(
    annotation: object, complaint: str
) -> None:
    with pytest.raises(SchemaError, match=complaint):
        property_of(annotation)
