"""What the objects of a namespace share: the runner's ConfigMaps, removed when nothing can need them any more."""

from __future__ import annotations

from dataclasses import dataclass

from ..objects import RUNNER_PREFIX, Obj
from ..serving.revision import is_readable, read_revision


@dataclass(frozen=True)
class SharedSnapshot:
    config_maps: tuple[Obj, ...]
    artifacts: tuple[Obj, ...]
    revisions: tuple[Obj, ...]


def unneeded(seen: SharedSnapshot) -> tuple[Obj, ...]:
    """Runner ConfigMaps that no revision mounts; none while there are artifacts, whose Jobs may mount any,
    or revisions that a later version of the operator wrote."""
    if seen.artifacts:
        return ()
    if not all(is_readable(r) for r in seen.revisions):
        return ()
    mounted = {read_revision(r).runner_config_map for r in seen.revisions}
    runners = (c for c in seen.config_maps if c["metadata"]["name"].startswith(RUNNER_PREFIX))
    return tuple(c for c in runners if c["metadata"]["name"] not in mounted)
