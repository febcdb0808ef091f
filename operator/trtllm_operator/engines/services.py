"""Which Service is a target's."""

from __future__ import annotations

from ..objects import TARGET, label
from ..serving.names import service_name
from .snapshot import EngineSnapshot


def service_of(seen: EngineSnapshot, target: str) -> str:
    """Name of a target's Service: of the one that it has, whatever it is called, as clients know it by that; where that
    was deleted while it served, the same name again."""
    own = sorted(name for name, service in seen.services.items() if label(service, TARGET) == target)
    if own:
        return own[0]
    known = (seen.engine.get("status") or {}).get("targets") or ()
    served = (t.get("service") for t in known if t.get("name") == target and t.get("servedRevision"))
    return next(filter(None, served), None) or service_name(seen.engine["metadata"]["name"], target)
