"""A small operator on the host: for each Widget as many ConfigMaps as it asks for, and a status that counts them.

Run as `python sample_operator.py '<json of Options>'` with KUBECONFIG set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from trtllm_operator.kube.apply import Applier
from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.host import Host, run
from trtllm_operator.kube.kubeconfig import load_config
from trtllm_operator.kube.lease import LeaseSettings
from trtllm_operator.kube.resource import CONFIG_MAP, Obj, ObjectKey, Resource, controller_of, key_of
from trtllm_operator.kube.resync import Watch

MANAGED = "example.dev/managed"


def widget_resource(group: str) -> Resource:
    return Resource(group, "v1", "widgets", "Widget")


@dataclass(frozen=True)
class Options:
    group: str
    namespace: str
    cluster_wide: bool = False
    resync_seconds: float = 3600
    call_timeout_seconds: float = 15
    lease_seconds: int = 0
    identity: str = "operator"


class Widgets:
    def __init__(self, client: Client, cache: Cache, widget: Resource) -> None:
        self._cache = cache
        self._widget = widget
        self._applier = Applier(client, cache, [widget, CONFIG_MAP], hash_annotation="example.dev/applied")

    def keys(self, resource: Resource, obj: Obj, cache: Cache) -> Iterable[ObjectKey]:
        if resource == self._widget:
            yield key_of(obj)
        elif (owner := controller_of(obj)) and owner["kind"] == self._widget.kind:
            yield ObjectKey(obj["metadata"]["namespace"], owner["name"])

    async def reconcile(self, key: ObjectKey) -> float | None:
        widget = self._cache.get(self._widget, *key)
        if widget is None:
            return None
        wanted = [self._child(widget, number) for number in range(widget["spec"]["count"])]
        names = {child["metadata"]["name"] for child in wanted}
        for child in self._cache.owned_by(widget["metadata"]["uid"], CONFIG_MAP):
            if child["metadata"]["name"] not in names:
                await self._applier.delete(child)
        for child in wanted:
            await self._applier.apply(child)
        await self._applier.apply_status(widget, {"made": len(wanted)})
        return None

    def _child(self, widget: Obj, number: int) -> Obj:
        meta = widget["metadata"]
        owner = {
            "apiVersion": self._widget.api_version,
            "kind": self._widget.kind,
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "namespace": meta["namespace"],
                "name": f"{meta['name']}-{number}",
                "labels": {MANAGED: "true"},
                "ownerReferences": [owner],
            },
            "data": {"color": widget["spec"]["color"]},
        }


def main() -> int:
    options = Options(**json.loads(sys.argv[1]))
    widget = widget_resource(options.group)
    client = Client(load_config(), field_manager="sample-operator", timeout_seconds=options.call_timeout_seconds)
    cache = Cache([widget, CONFIG_MAP])
    widgets = Widgets(client, cache, widget)
    lease = LeaseSettings(options.namespace, "sample-operator", options.lease_seconds, options.identity)
    host = Host(
        client=client,
        cache=cache,
        watches=[Watch(widget), Watch(CONFIG_MAP, f"{MANAGED}=true")],
        keys=widgets.keys,
        reconcile=widgets.reconcile,
        lease=lease if options.lease_seconds else None,
        namespaces=[] if options.cluster_wide else [options.namespace],
        resync_seconds=options.resync_seconds,
        address="127.0.0.1",
        port=0,
    )
    return run(host)


if __name__ == "__main__":
    raise SystemExit(main())
