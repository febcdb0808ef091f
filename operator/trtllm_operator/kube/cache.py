"""Objects as last seen, found by name, label and owner. Never goes back in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from trtllm_operator.kube.resource import Obj, ObjectKey, Resource, key_of, version_of

#: Deletions remembered, so that an older answer still on its way cannot bring an object back.
_REMEMBERED_DELETIONS = 10_000
_Ref = tuple[Resource, ObjectKey]


class Change(NamedTuple):
    """What the cache learned about one object: `old` is None where it is new, `new` where it is gone."""

    resource: Resource
    old: Obj | None
    new: Obj | None


class Cache:
    """The objects of the given resources as last seen by a watch, a list or an answer to a write.

    What it returns is the stored dict itself: shared, to be read and never changed. `indexed_labels` are found
    without looking at every object. `pruned` names, by resource, dotted paths nobody here reads
    ("status.images"), which are not kept; `reduced` has functions for what paths cannot say. managedFields are never
    kept. A change of nothing that is kept is no change.
    """

    def __init__(
        self,
        resources: Iterable[Resource],
        *,
        indexed_labels: Iterable[str] = (),
        pruned: Mapping[Resource, Iterable[str]] | None = None,
        reduced: Mapping[Resource, Callable[[Obj], Obj]] | None = None,
    ) -> None:
        self._objects: dict[Resource, dict[ObjectKey, Obj]] = {resource: {} for resource in resources}
        self._indexed = tuple(indexed_labels)
        self._pruned = {r: tuple(tuple(path.split(".")) for path in paths) for r, paths in (pruned or {}).items()}
        self._reduced = dict(reduced or {})
        self._by_label: defaultdict[tuple[Resource, str, str], dict[ObjectKey, None]] = defaultdict(dict)
        self._by_owner: defaultdict[str, dict[_Ref, None]] = defaultdict(dict)
        self._deleted: dict[str, int] = {}
        self._listeners: list[Callable[[Change], None]] = []

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after every change, whoever brought it (a watch, a list, a write of our own)."""
        self._listeners.append(listener)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources held here."""
        return tuple(self._objects)

    def get(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        """One object, if it is known."""
        return self._objects[resource].get(ObjectKey(namespace, name))

    def find(self, resource: Resource, *, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[Obj]:
        """Objects that carry all of `labels`, in one namespace or in all, ordered by namespace and name."""
        labels = labels or {}
        objects = self._objects[resource]
        indexed = next((label for label in labels if label in self._indexed), None)
        keys: Iterable[ObjectKey] = objects
        if indexed:
            keys = self._by_label.get((resource, indexed, labels[indexed]), ())
        return [
            objects[key]
            for key in sorted(keys)
            if (not namespace or key.namespace == namespace) and _carries(objects[key], labels)
        ]

    def owned_by(self, uid: str, resource: Resource | None = None) -> list[Obj]:
        """Objects with an owner reference to `uid`, of one resource or of all, in a stable order."""
        refs = [ref for ref in self._by_owner.get(uid, ()) if resource in (None, ref[0])]
        return [self._objects[held][key] for held, key in sorted(refs, key=lambda ref: (str(ref[0]), ref[1]))]

    def newest(self, resource: Resource) -> int:
        """The highest resourceVersion among the objects known; 0 where there are none."""
        return max((version_of(obj) for obj in self._objects[resource].values()), default=0)

    def size(self, resource: Resource) -> int:
        """How many objects of the resource are known."""
        return len(self._objects[resource])

    def put(self, resource: Resource, obj: Obj) -> Change | None:
        """Take in an object as seen; None where that is nothing new or older than what is known."""
        key, version, uid = key_of(obj), version_of(obj), obj["metadata"]["uid"]
        old = self._objects[resource].get(key)
        if (old and version_of(old) >= version) or self._deleted.get(uid, -1) >= version:
            return None
        if old:
            self._forget(resource, key, old)
        new = self._slim(resource, obj)
        self._objects[resource][key] = new
        for ref in self._label_refs(resource, new):
            self._by_label[ref][key] = None
        for owner in _owners(new):
            self._by_owner[owner][resource, key] = None
        if old and _same(old, new):
            return None
        return self._tell(Change(resource, old, new))

    def remove(self, resource: Resource, key: ObjectKey, uid: str, version: int) -> Change | None:
        """The object was gone at `version`; None where that is nothing new, or one was seen after that."""
        old = self._objects[resource].get(key)
        self._remember_deletion(uid, version)
        if not old or old["metadata"]["uid"] != uid or version_of(old) > version:
            return None
        self._forget(resource, key, old)
        return self._tell(Change(resource, old, None))

    def remove_unlisted(
        self, resource: Resource, listed: set[str], version: int, *, namespace: str = ""
    ) -> list[Change]:
        """All objects seen no later than `version` whose uid is not in a list of that version are gone."""
        gone = [
            (key, obj["metadata"]["uid"])
            for key, obj in self._objects[resource].items()
            if obj["metadata"]["uid"] not in listed
            and version_of(obj) <= version
            and (not namespace or key.namespace == namespace)
        ]
        return [change for key, uid in gone if (change := self.remove(resource, key, uid, version))]

    def _tell(self, change: Change) -> Change:
        for listener in self._listeners:
            listener(change)
        return change

    def _remember_deletion(self, uid: str, version: int) -> None:
        self._deleted[uid] = max(version, self._deleted.pop(uid, -1))
        if len(self._deleted) > _REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]

    def _forget(self, resource: Resource, key: ObjectKey, obj: Obj) -> None:
        del self._objects[resource][key]
        for ref in self._label_refs(resource, obj):
            self._by_label[ref].pop(key, None)
            if not self._by_label[ref]:
                del self._by_label[ref]
        for owner in _owners(obj):
            self._by_owner[owner].pop((resource, key), None)
            if not self._by_owner[owner]:
                del self._by_owner[owner]

    def _label_refs(self, resource: Resource, obj: Obj) -> Iterator[tuple[Resource, str, str]]:
        labels = obj["metadata"].get("labels") or {}
        return ((resource, label, labels[label]) for label in self._indexed if label in labels)

    def _slim(self, resource: Resource, obj: Obj) -> Obj:
        reduce = self._reduced.get(resource)
        slim: Obj = {"apiVersion": resource.api_version, "kind": resource.kind} | (reduce(obj) if reduce else obj)
        slim["metadata"] = {field: value for field, value in slim["metadata"].items() if field != "managedFields"}
        for path in self._pruned.get(resource, ()):
            slim = _without(slim, path)
        return slim


def _carries(obj: Obj, labels: Mapping[str, str]) -> bool:
    have = obj["metadata"].get("labels") or {}
    return all(have.get(label) == value for label, value in labels.items())


def _same(old: Obj, new: Obj) -> bool:
    """Whether the two differ in nothing but their version."""
    version = {"resourceVersion": None}
    return old | {"metadata": old["metadata"] | version} == new | {"metadata": new["metadata"] | version}


def _owners(obj: Obj) -> list[str]:
    return [ref["uid"] for ref in obj["metadata"].get("ownerReferences", ())]


def _without(obj: Obj, path: tuple[str, ...]) -> Obj:
    """`obj` without what is at `path`, sharing everything else."""
    head, *rest = path
    if head not in obj:
        return obj
    if not rest:
        return {field: value for field, value in obj.items() if field != head}
    return obj | {head: _without(obj[head], tuple(rest))} if isinstance(obj[head], dict) else obj
