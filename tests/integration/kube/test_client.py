"""The client against a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.kube.world import World
from trtllm_operator.kube.client import Call, Client
from trtllm_operator.kube.diff import canonical_quantity
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.kubeconfig import ClusterConfig
from trtllm_operator.kube.resource import CONFIG_MAP, NAMESPACE, SECRET, Obj, Resource

pytestmark = pytest.mark.apiserver
QUOTA = Resource("", "v1", "resourcequotas", "ResourceQuota")


def config_map(namespace: str, name: str = "a", **data: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": data,
    }


def version(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])


async def test_applying_the_same_again_changes_nothing(client: Client, namespace: str) -> None:
    first = await client.apply(CONFIG_MAP, config_map(namespace, x="1"))
    again = await client.apply(CONFIG_MAP, config_map(namespace, x="1"))
    assert version(first) == version(again)


async def test_a_field_left_out_of_the_next_apply_goes_and_other_peoples_fields_stay(
    client: Client, other: Client, namespace: str
) -> None:
    await client.apply(CONFIG_MAP, config_map(namespace, x="1", y="2"))
    await other.apply(CONFIG_MAP, config_map(namespace, theirs="3"))
    left = await client.apply(CONFIG_MAP, config_map(namespace, x="1"))
    assert left["data"] == {"x": "1", "theirs": "3"}


async def test_without_force_a_conflict_names_the_other_manager_and_the_field(
    client: Client, other: Client, namespace: str
) -> None:
    await other.apply(CONFIG_MAP, config_map(namespace, x="theirs"))
    with pytest.raises(ApiError, match=r"somebody.*\.data\.x") as refused:
        await client.apply(CONFIG_MAP, config_map(namespace, x="ours"), force=False)
    assert refused.value.is_conflict
    assert (await client.apply(CONFIG_MAP, config_map(namespace, x="ours")))["data"] == {"x": "ours"}


async def test_an_undeclared_field_is_a_permanent_error_and_stops_nobody(client: Client, world: World) -> None:
    for _ in range(5):
        with pytest.raises(ApiError, match="field not declared in schema") as refused:
            await client.apply(
                world.widget,
                {
                    "apiVersion": world.widget.api_version,
                    "kind": "Widget",
                    "metadata": {"namespace": world.namespace, "name": "a"},
                    "spec": {"weight": "red"},
                },
            )
        assert refused.value.is_permanent
    assert client.pause.is_open


async def test_a_value_out_of_range_is_a_permanent_error(world: World) -> None:
    with pytest.raises(ApiError, match=r"spec.count.*should be less than or equal to 5") as refused:
        await world.make("a", count=6)
    assert refused.value.is_permanent


async def test_status_is_written_apart_from_the_rest(client: Client, world: World) -> None:
    widget = await world.make("a")
    body: dict[str, Any] = {
        "apiVersion": widget["apiVersion"],
        "kind": "Widget",
        "metadata": {"namespace": world.namespace, "name": "a"},
        "status": {"made": 3},
    }
    written = await client.apply(world.widget, body, subresource="status")
    assert written["status"] == {"made": 3}
    assert written["metadata"]["generation"] == widget["metadata"]["generation"]
    body["metadata"]["name"] = "gone"
    with pytest.raises(ApiError) as refused:
        await client.apply(world.widget, body, subresource="status")
    assert refused.value.is_not_found, "a status must not bring back what it was about"


async def test_creating_what_exists_is_told_from_other_conflicts(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(ApiError) as refused:
        await client.create(CONFIG_MAP, config_map(namespace))
    assert refused.value.is_already_exists


async def test_only_the_very_object_seen_is_deleted(client: Client, namespace: str) -> None:
    seen = await client.create(CONFIG_MAP, config_map(namespace))
    assert await client.delete(CONFIG_MAP, seen)
    assert not await client.delete(CONFIG_MAP, seen), "it is gone already"
    successor = await client.create(CONFIG_MAP, config_map(namespace))
    assert not await client.delete(CONFIG_MAP, seen), "another object has its name now"
    changed = await client.apply(CONFIG_MAP, config_map(namespace, x="1"))
    with pytest.raises(ApiError) as refused:
        await client.delete(CONFIG_MAP, successor, exact_version=True)
    assert refused.value.is_conflict
    assert await client.delete(CONFIG_MAP, changed, exact_version=True)


async def test_a_list_of_many_pages_is_of_one_moment(client: Client, namespace: str) -> None:
    for number in range(7):
        await client.create(CONFIG_MAP, config_map(namespace, f"map-{number}"))
    names: list[str] = []
    versions: set[int] = set()
    async for page in client.pages(CONFIG_MAP, namespace=namespace, limit=3):
        if not names:
            await client.create(CONFIG_MAP, config_map(namespace, "map-late"))
        names += [obj["metadata"]["name"] for obj in page.items]
        versions.add(page.resource_version)
        assert all((obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap") for obj in page.items)
    assert names == [f"map-{number}" for number in range(7)]
    assert len(versions) == 1
    assert client.calls[Call("list", "configmaps", 200)] == 3


async def test_a_kind_that_is_not_served_is_not_found(client: Client) -> None:
    with pytest.raises(ApiError, match="404") as refused:
        await client.list(Resource("nowhere.example.dev", "v1", "things", "Thing"))
    assert refused.value.is_not_found


async def test_logs_of_a_pod_that_does_not_exist_are_not_found(client: Client, namespace: str) -> None:
    with pytest.raises(ApiError, match='pods "gone" not found') as refused:
        await client.logs(namespace, "gone", "main", tail_lines=10)
    assert refused.value.is_not_found


async def test_a_namespace_that_is_going_away_is_known(client: Client, namespace: str) -> None:
    await client.delete(NAMESPACE, await client.get(NAMESPACE, "", namespace))
    with pytest.raises(ApiError) as refused:
        await client.create(CONFIG_MAP, config_map(namespace))
    assert refused.value.is_namespace_terminating


async def test_a_server_that_is_not_there_is_said_with_its_address() -> None:
    client = Client(ClusterConfig("http://127.0.0.1:9", True, lambda: ""), field_manager="test")
    try:
        with pytest.raises(ApiError, match=r"http://127.0.0.1:9") as refused:
            await client.get(NAMESPACE, "", "default")
        assert refused.value.is_overload
        assert not client.pause.is_open
    finally:
        await client.close()


async def test_a_server_nobody_vouches_for_is_refused(client: Client, tmp_path: Path) -> None:
    untrusting = Client(ClusterConfig(client.config.server, True, lambda: ""), field_manager="test")
    try:
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            await untrusting.get(NAMESPACE, "", "default")
    finally:
        await untrusting.close()


async def test_quantities_come_back_as_we_write_them(client: Client, namespace: str) -> None:
    """The API server's own canonical form is the reference for ours."""
    written = ["1000m", "1500m", "0.5", "1024Mi", "1.5Gi", "0.5Gi", "1023Ki", "1000000", "129e6", "12E2", "1E"]
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": namespace, "name": "quantities"},
        "spec": {"hard": {f"requests.example.dev/q{index}": text for index, text in enumerate(written)}},
    }
    hard = (await client.apply(QUOTA, quota))["spec"]["hard"]
    back = [hard[f"requests.example.dev/q{index}"] for index in range(len(written))]
    assert back == [canonical_quantity(text) for text in written]


async def test_a_version_tells_a_change_and_is_asked_for_without_the_content(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Obj] = []
    asked = client._json

    async def listening(*call: Any, **request: Any) -> Obj:
        answers.append(await asked(*call, **request))
        return answers[-1]

    monkeypatch.setattr(client, "_json", listening)
    assert await client.version(SECRET, namespace, "token") is None
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "token"}}
    created = await client.create(SECRET, secret | {"stringData": {"token": "one"}})
    answers.clear()
    first = await client.version(SECRET, namespace, "token")
    assert [(a["kind"], "data" in a) for a in answers] == [("PartialObjectMetadata", False)]
    assert first == await client.version(SECRET, namespace, "token")
    await client.apply(SECRET, secret | {"stringData": {"token": "two"}})
    second = await client.version(SECRET, namespace, "token")
    await client.delete(SECRET, created)
    await client.create(SECRET, secret | {"stringData": {"token": "two"}})
    third = await client.version(SECRET, namespace, "token")
    assert len({first, second, third}) == 3
