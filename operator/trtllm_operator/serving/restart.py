"""Restarts that a person asks for: annotations of the LLMEngine that become annotations of the Pods.

They are no part of a revision. One that is taken away again restarts nothing: what the Pods carry stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from ..api import GROUP
from ..objects import Obj, annotation

RESTART = f"{GROUP}/restart"
"""Any new value restarts the servers of all targets."""
SURGE_SECONDS = 30
"""How long a new Pod waits for a free GPU before an old one ends for it."""


def restart_of(target: str) -> str:
    """The annotation that restarts the servers of one target."""
    return f"restart.{GROUP}/{target}"


def restart_annotations(engine: Obj, target: str, live: Obj | None) -> dict[str, str]:
    """What the Pods of a Deployment carry; `live` is the Deployment as it is."""
    carried: Obj = live["spec"]["template"].get("metadata") or {} if live else {}
    pod = {"metadata": carried}
    values = {key: annotation(engine, key) or annotation(pod, key) for key in (RESTART, restart_of(target))}
    return {key: value for key, value in values.items() if value is not None}


def surges(live: Obj | None, wanted: Mapping[str, str], left_seconds: float | None) -> bool:
    """Whether new Pods start before old ones end: from when a restart is asked for until all Pods are new, unless no
    GPU is free (`left_seconds` is 0). `wanted` are the Pods' annotations."""
    if live is None or left_seconds == 0:
        return False
    carried = (live["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    if any(carried.get(key) != value for key, value in wanted.items()):
        return True
    seen = live.get("status", {}).get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    return not in_place(live) and (is_restarting(live) or not seen)


def is_restarting(live: Obj) -> bool:
    """Whether Pods of an earlier template still run."""
    status = live.get("status", {})
    return int(status.get("replicas", 0)) > int(status.get("updatedReplicas", 0))


def in_place(live: Obj) -> bool:
    """Whether an old Pod of the Deployment ends before a new one starts."""
    update = (live["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return update.get("maxSurge") in (0, "0", "0%")


def surge_seconds(live: Obj | None, waiting_since: Iterable[datetime], now: datetime) -> float | None:
    """None where new Pods start beside old ones for now; else the seconds until old ones end first, 0 once they do.
    `waiting_since`: when the scheduler began to find no GPU for each Pod that waits."""
    if live is None or not is_restarting(live):
        return None
    if in_place(live):
        return 0
    since = min(waiting_since, default=None)
    return None if since is None else max(0.0, SURGE_SECONDS - (now - since).total_seconds())


def progress(live: Obj, left_seconds: float | None) -> str:
    """What happens while servers restart, and what comes next."""
    status, replicas = live.get("status", {}), live["spec"].get("replicas", 1)
    done = f"{status.get('updatedReplicas', 0)} of {replicas} servers are new"
    if left_seconds is None:
        return f"servers restart: {done}; each new one starts before an old one ends"
    outage = " With one server nothing answers until the new one is ready." if replicas == 1 else ""
    if left_seconds > 0:
        return (
            f"servers restart: {done}; no GPU is free for another, so in {round(left_seconds)} s an old server ends "
            f"for each new one. Free a GPU of the class to avoid that.{outage}"
        )
    return f"servers restart one after the other, as no GPU was free beside them: {done}.{outage}"
