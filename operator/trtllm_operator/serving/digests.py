"""The digests of what a server reads, in its Deployment's Pod template.

A revision is rendered before its engine is built, so they are not part of it. They are put in once, when the Deployment
is made, and stay: a Deployment that serves is not rolled because its engine was built again meanwhile, or because an
earlier version made it without them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..artifacts.jobs import manifest_digests
from ..objects import Obj
from .revision import Revision

_KEY = "digests"


def pinned(revision: Revision, live: Obj | None, artifacts: Mapping[str, Obj]) -> Revision:
    """The revision with the digests that its Deployment has or, where `live` is None, shall have.

    `artifacts` by name. Where a server does not answer that should, the newest digests are taken: what it read was
    damaged and is built again.
    """
    read = [artifacts[a.name] for a in revision.artifacts if a.spec.type != "Checkpoint" and a.name in artifacts]
    newest = manifest_digests(read)
    if live is None:
        return _with(revision, newest)
    known = _digests(live["spec"]["template"])
    if known is None:
        return revision
    return _with(revision, newest if newest and not _all_answer(live) else known)


def _all_answer(live: Obj) -> bool:
    status = live.get("status") or {}
    return bool(status.get("availableReplicas", 0) >= live["spec"].get("replicas", 1))


def _digests(template: Mapping[str, Any]) -> Mapping[str, str] | None:
    """As a live template has them: none where an earlier version or a person wrote it."""
    spec = template["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        try:
            return dict(json.loads(container["command"][-1])[_KEY])
        except (KeyError, IndexError, TypeError, ValueError):
            continue
    return None


def _with(revision: Revision, digests: Mapping[str, str]) -> Revision:
    """In the arguments of the container that reads the store: the server, or of a bucket the step before it."""
    if not digests:
        return revision
    spec = revision.template["spec"]
    kind = "initContainers" if spec.get("initContainers") else "containers"
    first, *others = spec[kind]
    arguments = {**json.loads(first["command"][-1]), _KEY: dict(digests)}
    reader = {**first, "command": [*first["command"][:-1], json.dumps(arguments, sort_keys=True)]}
    return replace(revision, template={**revision.template, "spec": {**spec, kind: [reader, *others]}})
