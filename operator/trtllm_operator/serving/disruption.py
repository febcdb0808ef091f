"""How many servers of a target a drain may evict at a time."""

from __future__ import annotations

from typing import Any

from ..objects import ENGINE, MANAGED, REVISION, TARGET, Obj, owner_reference

SMALLEST = 2
"""Servers that a budget is made for: of one it could only block a drain for ever, or allow what there is without it."""


def disruption_budget(owner: Obj, name: str, target: str, revision: str) -> dict[str, Any]:
    """One of the servers of the revision that serves at a time, and always one that is not ready."""
    meta = owner["metadata"]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {MANAGED: "true", ENGINE: meta["name"], TARGET: target},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {REVISION: revision}},
        },
    }
