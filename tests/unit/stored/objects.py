"""The objects that an earlier version of the operator wrote, see `record.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtllm_operator.kube.resource import Obj

from ..engines.simulation import World

MAPS = ("nodeSelector", "failureCounts", "facts")
EARLIER = Path(__file__).with_name("7c359be.jsonl")


def recorded() -> list[Obj]:
    return [json.loads(line) for line in EARLIER.read_text().splitlines()]


def world_of(objects: list[Obj]) -> World:
    """A cluster that holds exactly these, at the moment they were recorded; what is Ready is in its store."""
    world = World()
    for obj in objects:
        world.take(obj)
    world.published |= {
        o["metadata"]["name"] for o in objects if o["kind"] == "EngineArtifact" and o["status"]["phase"] == "Ready"
    }
    return world


def with_unknown_fields(value: Any) -> Any:
    """The same with a field that nobody knows in every object of it but maps."""
    if isinstance(value, list):
        return [with_unknown_fields(item) for item in value]
    if not isinstance(value, dict):
        return value
    known = {k: v if k in MAPS else with_unknown_fields(v) for k, v in value.items()}
    return {"ofALaterVersion": {"a": 1}, **known}
