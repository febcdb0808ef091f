"""What a definition on the server lacks of what the operator needs."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from trtllm_operator.api.crd import crds, schema
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.served import lacking, outdated
from trtllm_operator.reconcile.watches import LLM_ENGINE


def without(whole: dict[str, Any], path: str) -> dict[str, Any]:
    """A schema without one of its fields."""
    out = copy.deepcopy(whole)
    at = out
    *way, last = path.split(".")
    for name in way:
        at = at["properties"][name.removesuffix("[]")]
        at = at["items"] if name.endswith("[]") else at
    del at["properties"][last]
    return out


@pytest.mark.parametrize("name", list(crds()))
def test_c112_the_definitions_of_this_version_lack_nothing(name: str) -> None:
    whole = schema(crds()[name])
    assert list(lacking(whole, whole)) == []


@pytest.mark.parametrize("path", ["spec.serving", "spec.budgets.maxBeamWidth", "status.targets[].servedRevision"])
def test_c112_a_field_that_an_older_definition_would_drop_is_named(path: str) -> None:
    whole = schema(crds()["llmengines.yaml"])
    assert list(lacking(whole, without(whole, path))) == [path]
    assert list(lacking(without(whole, path), whole)) == [], "a newer definition drops nothing"


def test_c112_a_value_that_an_older_definition_would_refuse_is_named() -> None:
    wanted = {"properties": {"phase": {"type": "string", "enum": ["Ready", "Failed"]}}}
    assert list(lacking(wanted, {"properties": {"phase": {"type": "string", "enum": ["Ready"]}}})) == ["phase=Failed"]


def test_c112_where_unknown_fields_are_kept_nothing_is_lost() -> None:
    wanted = {"properties": {"facts": {"type": "object", "properties": {"hidden_size": {"type": "integer"}}}}}
    served = {"properties": {"facts": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    assert list(lacking(wanted, served)) == []


class Server:
    """An API server that answers one question."""

    def __init__(self, answer: dict[str, Any] | ApiError) -> None:
        self.answer = answer

    async def open_api(self, _resource: object) -> dict[str, Any]:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        {"components": {"schemas": {}}},
        ApiError(404, "", "404 page not found"),
        ApiError(403, "Forbidden", "no"),
        ApiError(503, "", "not yet"),
    ],
)
async def test_c112_what_cannot_be_known_yet_keeps_nobody_from_working(answer: dict[str, Any] | ApiError) -> None:
    whole = schema(crds()["llmengines.yaml"])
    assert await outdated(cast("Client", Server(answer)), {LLM_ENGINE: whole}) == ""
