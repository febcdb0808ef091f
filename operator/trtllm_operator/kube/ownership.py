"""Whether an object that exists is the one that is wanted, or somebody else's under the same name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import Obj, controller_of


class NameTakenError(ApiError):
    """An object that is wanted has a name that somebody else's object has; that one was left as it is."""

    def __init__(self, live: Obj) -> None:
        kind, name = live["kind"], live["metadata"]["name"]
        super().__init__(
            409,
            "NameTaken",
            f"{kind} {name} exists and {belongs(live)}: it is left as it is. Rename what needs the name, or delete "
            f"the {kind}",
        )
        self.kind, self.name = kind, name

    @property
    def is_conflict(self) -> bool:
        """Looking again does not help: a person has to act."""
        return False


def own(objects: Iterable[Obj], uid: str) -> list[Obj]:
    """Those of objects with an owner's labels that are its own: it controls them, or nobody does."""
    return [obj for obj in objects if (controller_of(obj) or {"uid": uid}).get("uid") == uid]


def belongs(live: Obj) -> str:
    """Whose an object is, in words."""
    owner = controller_of(live)
    if owner is None:
        return "was not made by this operator for this purpose"
    return f"belongs to {owner.get('kind')} {owner.get('name')} (uid {owner.get('uid')})"


def content_digest(obj: Obj) -> str:
    """Of what an immutable ConfigMap holds: kept by a cache in place of the content, which may be large."""
    content = {field: obj.get(field) for field in ("immutable", "data", "binaryData")}
    kept = obj.get("contentDigest")
    return str(kept) if kept else hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_ours(live: Obj, desired: Obj, identity: Iterable[str]) -> bool:
    """Whether `live` is what `desired` means: it has the same controller, or none and the labels in `identity` that
    `desired` has. One without a controller is an orphan of ours (`kubectl delete --cascade=orphan`), or what several
    owners share: what is immutable has to have the same content, too."""
    if desired.get("immutable") and content_digest(live) != content_digest(desired):
        return False
    there, wanted = controller_of(live), controller_of(desired)
    if there is not None:
        return wanted is not None and there.get("uid") == wanted.get("uid")
    have, ours = live["metadata"].get("labels") or {}, desired["metadata"].get("labels") or {}
    telling = [label for label in identity if label in ours]
    return all(have.get(label) == ours[label] for label in telling) and bool(telling or wanted is None)
