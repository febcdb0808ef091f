"""Whether the API server knows the fields that this operator writes and reads.

A CustomResourceDefinition of another version than the operator's drops fields without a word: what a user asks for is
not there, and a status never fills.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import Resource

log = logging.getLogger(__name__)

Schema = Mapping[str, Any]
#: Fields that a message lists; of more their number is said.
_LISTED = 5
_OPEN = "x-kubernetes-preserve-unknown-fields"
_KINDS = "x-kubernetes-group-version-kind"


def lacking(wanted: Schema, served: Schema, path: str = "") -> Iterator[str]:
    """Paths of the fields, and values of enumerations (`path=value`), that `wanted` has and `served` has not."""
    if served.get(_OPEN):
        return
    for value in wanted.get("enum") or ():
        if "enum" in served and value not in served["enum"]:
            yield f"{path}={value}"
    known: Mapping[str, Schema] = served.get("properties") or {}
    for name, schema in (wanted.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        if name not in known:
            yield here
        else:
            yield from lacking(schema, known[name], here)
    for inner, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(wanted.get(inner), Mapping) and isinstance(served.get(inner), Mapping):
            yield from lacking(wanted[inner], served[inner], f"{path}{mark}")


async def outdated(client: Client, wanted: Mapping[Resource, Schema]) -> str:
    """What is wrong with the definitions on the server, "" where nothing is or nothing can be known (yet): a kind that
    is not served is waited for elsewhere. `wanted` holds the schema of each kind as this operator was written for it.
    """
    problems = []
    for resource, schema in wanted.items():
        try:
            served = _served(await client.open_api(resource), resource)
        except ApiError as error:
            if not error.is_not_found:
                log.warning("cannot compare the definition of %s: %s", resource, error)
            continue
        # Of these, the API server publishes a schema of its own.
        fields = {name: s for name, s in schema["properties"].items() if name not in ("apiVersion", "kind", "metadata")}
        if served is not None and (missing := list(lacking({"properties": fields}, served))):
            more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
            problems.append(f"{resource} has no {', '.join(missing[:_LISTED])}{more}")
    if not problems:
        return ""
    return (
        f"the CustomResourceDefinitions on the server are not those of this version: {'; '.join(problems)}. Such "
        "fields would be lost: apply the CustomResourceDefinitions of this version, then start it again"
    )


def _served(document: Schema, resource: Resource) -> Schema | None:
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    schemas: Mapping[str, Schema] = (document.get("components") or {}).get("schemas") or {}
    return next((s for s in schemas.values() if wanted in (s.get(_KINDS) or ())), None)
