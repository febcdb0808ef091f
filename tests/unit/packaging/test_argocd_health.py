"""Argo CD's health of the resources, by the script it would run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lupa import lua51

SCRIPT = (Path(__file__).parents[3] / "manifests/argocd/llmengine-health.lua").read_text()


def health(status: dict[str, Any] | None, generation: int = 2) -> tuple[str, str]:
    """Argo CD runs the script in Lua 5.1 with the object as `obj`."""
    lua = lua51.LuaRuntime()
    obj: dict[str, Any] = {"metadata": {"generation": generation}}
    if status is not None:
        obj["status"] = status
    lua.globals().obj = lua.table_from(obj, recursive=True)
    said = lua.execute(SCRIPT)
    return said.status, said.message


def conditions(**status: str) -> list[dict[str, str]]:
    return [{"type": type_, "status": value, "message": f"{type_} says so"} for type_, value in status.items()]


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (None, ("Progressing", "Waiting for the operator")),
        ({"observedGeneration": -1}, ("Progressing", "Waiting for the operator")),
        (
            {"observedGeneration": 1, "conditions": conditions(Ready="True")},
            ("Progressing", "Waiting for the operator"),
        ),
        ({"observedGeneration": 2}, ("Progressing", "Waiting for the operator")),
        ({"observedGeneration": 2, "conditions": conditions(Ready="True")}, ("Healthy", "Ready says so")),
        ({"observedGeneration": 2, "conditions": conditions(Ready="False")}, ("Progressing", "Ready says so")),
        (
            {"observedGeneration": 2, "conditions": conditions(Ready="False", Reconciling="True")},
            ("Progressing", "Reconciling says so"),
        ),
        (
            {"observedGeneration": 2, "conditions": conditions(Ready="True", Reconciling="True")},
            ("Progressing", "Reconciling says so"),
        ),
        (
            {"observedGeneration": 2, "conditions": conditions(Ready="False", Stalled="True")},
            ("Degraded", "Stalled says so"),
        ),
        (
            {"observedGeneration": 2, "conditions": conditions(Ready="True", Stalled="False")},
            ("Healthy", "Ready says so"),
        ),
    ],
    ids=[
        "no status",
        "never looked at",
        "changed since",
        "no conditions",
        "ready",
        "not ready",
        "reconciling",
        "ready and reconciling",
        "stalled",
        "not stalled",
    ],
)
def test_health_follows_the_conditions(status: dict[str, Any] | None, wanted: tuple[str, str]) -> None:
    assert health(status) == wanted
