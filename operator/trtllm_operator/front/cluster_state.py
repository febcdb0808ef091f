"""From the LLMEngine's status and EndpointSlices to routes. Pure: whatever they hold is read strictly or left out."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from .backends import Backend, Limits, Routes

SERVICE_LABEL = "kubernetes.io/service-name"
GRPC_PORT_NAME = "grpc"
MAX_REASON_LENGTH = 500

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Status(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Served(_Status):
    """What a target's servers run, of `status.targets[]`."""

    name: str
    served_revision: str
    service: str
    served_model: str
    max_batch_size: Positive
    max_input_len: Positive
    max_seq_len: Positive
    weight: Positive = 1


def routes_of(engine: Mapping[str, Any] | None, slices: Iterable[Mapping[str, Any]]) -> Routes:
    """Where requests may go now: the ready servers of the revision that each target serves."""
    if engine is None:
        return Routes(reason="the LLMEngine does not exist")
    by_service: dict[str, list[Mapping[str, Any]]] = {}
    for one in slices:
        labels = _mapping(_mapping(one, "metadata"), "labels")
        by_service.setdefault(str(labels.get(SERVICE_LABEL, "")), []).append(one)
    status = _mapping(engine, "status")
    backends = []
    for target in _served(status):
        limits = Limits(target.max_batch_size, target.max_input_len, target.max_seq_len)
        addresses = {a for one in by_service.get(target.service, ()) for a in _addresses(one, target.served_revision)}
        backends += [
            Backend(a, target.name, target.served_revision, target.served_model, limits, target.weight)
            for a in sorted(addresses)
        ]
    return Routes(tuple(backends), reason=_reason(status))


def _served(status: Mapping[str, Any]) -> Iterator[Served]:
    targets = status.get("targets")
    for target in targets if isinstance(targets, list) else ():
        try:
            yield Served.model_validate(target)
        except ValidationError:
            continue  # nothing is served there yet, or an operator of another version wrote it


def _addresses(one: Mapping[str, Any], revision: str) -> Iterator[str]:
    """Of the Pods of a revision that are ready: a Service that has just moved still shows the others."""
    ports = one.get("ports")
    port = (
        next((p.get("port") for p in ports if isinstance(p, dict) and p.get("name") == GRPC_PORT_NAME), None)
        if isinstance(ports, list)
        else None
    )
    endpoints = one.get("endpoints")
    if not isinstance(port, int) or not isinstance(endpoints, list):
        return
    for endpoint in endpoints:
        conditions = _mapping(endpoint, "conditions")
        pod = _mapping(endpoint, "targetRef").get("name")
        if conditions.get("ready") is False or not isinstance(pod, str) or not pod.startswith(f"{revision}-"):
            continue
        for address in (endpoint.get("addresses") or ())[:1]:
            try:
                ip = ipaddress.ip_address(address)
            except ValueError:
                continue
            yield f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def _reason(status: Mapping[str, Any]) -> str:
    """Of the condition Ready, what a client may be told."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == "Ready":
            return f"{condition.get('reason')}: {condition.get('message')}"[:MAX_REASON_LENGTH]
    return "the operator has not looked at the LLMEngine yet"


def _mapping(parent: Any, name: str) -> Mapping[str, Any]:
    value = parent.get(name) if isinstance(parent, Mapping) else None
    return value if isinstance(value, Mapping) else {}
