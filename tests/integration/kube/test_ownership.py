"""What belongs to others is left to them, and what is orphaned survives that."""

from __future__ import annotations

import json

import aiohttp
import pytest

from trtllm_operator.kube.apply import Applier
from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.encoding import ascii_json, go_json
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.ownership import NameTakenError
from trtllm_operator.kube.resource import CONFIG_MAP, CONTROLLER_REVISION, JOB, SERVICE, Obj, Resource
from trtllm_operator.objects import sorted_fields

pytestmark = pytest.mark.apiserver
RESOURCES = [SERVICE, CONFIG_MAP, JOB, CONTROLLER_REVISION]
OWNER = "example.dev/owner"
UID = "11111111-1111-1111-1111-111111111111"
HOSTILE = {
    "z": {"b": "a < b && c > d", "a": "\u2028\u2029"},
    "a": "façade \U0001f600 \x07\x7f",
    "n": 12345678901,
    "d": "\ud800",
}


def reference(uid: str = UID, name: str = "ours") -> Obj:
    return {"apiVersion": "example.dev/v1", "kind": "Widget", "name": name, "uid": uid, "controller": True}


def service(namespace: str, selector: str = "ours", **meta: object) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "web", "labels": {OWNER: "ours"}, **meta},
        "spec": {"selector": {"app": selector}, "ports": [{"port": 80, "protocol": "TCP"}]},
    }


def ours(namespace: str) -> Obj:
    return service(namespace, ownerReferences=[reference()])


def applier(client: Client, *known: Obj) -> Applier:
    cache = Cache(RESOURCES)
    for obj in known:
        cache.put(SERVICE, obj)
    return Applier(client, cache, RESOURCES, hash_annotation="example.dev/applied", identity=(OWNER,))


@pytest.mark.parametrize(
    ("meta", "whose"),
    [
        ({"labels": {"app": "shop"}}, "was not made by this operator"),
        ({"labels": {}}, "was not made by this operator"),
        ({"ownerReferences": [reference("2" * 8, "theirs")]}, r"belongs to Widget theirs \(uid 22222222\)"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
async def test_a_name_that_is_taken_is_left_alone(
    client: Client, other: Client, namespace: str, meta: dict[str, object], whose: str, known: bool
) -> None:
    theirs = await other.create(SERVICE, service(namespace, "theirs", **meta))
    mine = applier(client, *([theirs] if known else []))
    with pytest.raises(NameTakenError, match=f"Service web exists and {whose}"):
        await mine.apply(ours(namespace))
    written = client.writes()
    with pytest.raises(NameTakenError):
        await mine.apply(ours(namespace))
    assert client.writes() == written, "a name that is known to be taken is not tried again by a write"
    assert await other.get(SERVICE, namespace, "web") == theirs

    await other.delete(SERVICE, theirs)
    if not known:
        applied = await mine.apply(ours(namespace))
        assert applied["spec"]["selector"] == {"app": "ours"}, "a name that is free again is used"


async def test_what_others_create_meanwhile_is_not_taken_over(client: Client, other: Client, namespace: str) -> None:
    """A Service without a selector has no field that an apply could conflict over."""
    bare = {"ports": [{"port": 80, "protocol": "TCP"}]}
    theirs = await other.apply(SERVICE, {**service(namespace, labels={}), "spec": bare})
    with pytest.raises(NameTakenError):
        await applier(client).apply(ours(namespace))
    assert await other.get(SERVICE, namespace, "web") == theirs


async def test_a_job_or_config_map_of_somebody_else_is_no_success(
    client: Client, other: Client, namespace: str
) -> None:
    meta = {"namespace": namespace, "name": "web"}
    await other.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "theirs"}})
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "labels": {OWNER: "ours"}}}
    with pytest.raises(NameTakenError, match="ConfigMap web exists"):
        await applier(client).create(wanted)


async def test_an_orphan_of_ours_is_taken_back(client: Client, other: Client, namespace: str) -> None:
    await other.create(SERVICE, service(namespace, "earlier"))
    live = await applier(client).apply(ours(namespace))
    assert [r["uid"] for r in live["metadata"]["ownerReferences"]] == [UID]
    assert live["spec"]["selector"] == {"app": "ours"}


async def test_what_is_applied_is_the_object_that_was_seen(client: Client, other: Client, namespace: str) -> None:
    """Another one of the name, which came after the cache's last word, is not written to."""
    seen = await other.create(SERVICE, ours(namespace))
    await other.delete(SERVICE, seen)
    theirs = await other.create(SERVICE, service(namespace, "theirs", labels={}))
    with pytest.raises(ApiError) as refused:
        await applier(client, seen).apply(service(namespace, "changed", ownerReferences=[reference()]))
    assert refused.value.is_conflict
    assert await other.get(SERVICE, namespace, "web") == theirs


def revision(namespace: str, data: Obj) -> Obj:
    meta = {"namespace": namespace, "name": "r", "labels": {OWNER: "ours"}, "ownerReferences": [reference()]}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "revision": 1, "data": data}


async def patch_as_the_garbage_collector(client: Client, resource: Resource, obj: Obj) -> Obj:
    """Its patch of what an owner leaves behind (pkg/controller/garbagecollector/patch.go)."""
    meta = obj["metadata"]
    patch = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": UID}], "uid": meta["uid"]}}
    kind = "application/strategic-merge-patch+json"
    async with aiohttp.ClientSession() as session:
        path = client.config.server + resource.path(meta["namespace"], meta["name"])
        answer = await session.patch(
            path, data=go_json(patch), headers={"Content-Type": kind}, ssl=client.config.ssl_context or True
        )
        body: Obj = json.loads(await answer.text())
        if answer.status >= 400:
            raise ApiError.from_status(answer.status, body)
        return body


async def test_a_revision_can_be_orphaned_and_is_taken_back(client: Client, namespace: str) -> None:
    made = await client.create(CONTROLLER_REVISION, revision(namespace, sorted_fields(HOSTILE)))
    orphan = await patch_as_the_garbage_collector(client, CONTROLLER_REVISION, made)
    assert not orphan["metadata"].get("ownerReferences")
    again = await applier(client).adopt(orphan, reference())
    assert [r["uid"] for r in again["metadata"]["ownerReferences"]] == [UID]
    assert again["data"] == made["data"]


async def test_an_earlier_version_s_revision_is_orphaned_by_the_operator(client: Client, namespace: str) -> None:
    """The garbage collector cannot: what it encodes again are other bytes."""
    wanted = revision(namespace, HOSTILE)
    body = ascii_json(wanted)
    made = await client._json(
        "create", "POST", CONTROLLER_REVISION, CONTROLLER_REVISION.path(namespace), body=wanted, encode=lambda _: body
    )
    with pytest.raises(ApiError, match="field is immutable"):
        await patch_as_the_garbage_collector(client, CONTROLLER_REVISION, made)
    orphan = await applier(client).disown(made)
    assert not orphan["metadata"].get("ownerReferences")
    assert orphan["data"] == made["data"]
    again = await applier(client).adopt(orphan, reference())
    assert [r["uid"] for r in again["metadata"]["ownerReferences"]] == [UID]
