"""Writing what differs and nothing else, against a server that may have its own mind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest

from trtllm_operator.kube.apply import Applier
from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.resource import CONFIG_MAP, DEPLOYMENT, Obj, Resource

ANNOTATION = "example.dev/applied"


class Server:
    """Merges what is applied into one object, then changes it as `mutate` says, as an admission webhook may."""

    def __init__(self, mutate: Callable[[Obj], None] = lambda obj: None) -> None:
        self.obj: Obj = {"metadata": {"namespace": "ns", "name": "a", "uid": "u"}}
        self.mutate = mutate
        self.writes = 0
        self.version = 1

    async def apply(self, resource: Resource, obj: Obj, *, subresource: str = "", force: bool = True) -> Obj:
        before = copy.deepcopy(self.obj)
        for field, value in obj.items():
            merged = isinstance(value, dict) and field != "status"
            self.obj[field] = self.obj.get(field, {}) | value if merged else value
        self.mutate(self.obj)
        self.writes += 1
        if self.obj != before:
            self.version += 1
        self.obj["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.obj)

    def touch(self) -> Obj:
        """Somebody else writes a field nobody here cares about."""
        self.version += 1
        self.obj["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.obj)


def applier(server: Server) -> tuple[Applier, Cache]:
    cache = Cache([CONFIG_MAP])
    return Applier(cast(Client, server), cache, [CONFIG_MAP, DEPLOYMENT], hash_annotation=ANNOTATION), cache


def config_map(**data: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "a"}, "data": data}


async def test_written_once_then_left_alone() -> None:
    server = Server()
    apply, cache = applier(server)
    for _ in range(3):
        written = await apply.apply(config_map(x="1"))
    assert server.writes == 1
    assert written["data"] == {"x": "1"}
    assert cache.get(CONFIG_MAP, "ns", "a") == written


async def test_a_field_that_is_no_longer_wanted_is_noticed() -> None:
    server = Server()
    apply, _ = applier(server)
    await apply.apply(config_map(x="1", y="2"))
    await apply.apply(config_map(x="1"))
    assert server.writes == 2, "the rest still contains all that is wanted, but y must go"


async def test_a_restarted_operator_writes_nothing() -> None:
    server = Server()
    first, cache = applier(server)
    await first.apply(config_map(x="1"))
    again = Applier(cast(Client, server), cache, [CONFIG_MAP], hash_annotation=ANNOTATION)
    await again.apply(config_map(x="1"))
    assert server.writes == 1


async def test_tampering_is_undone() -> None:
    server = Server()
    apply, cache = applier(server)
    await apply.apply(config_map(x="1"))
    server.obj["data"]["x"] = "tampered"
    cache.put(CONFIG_MAP, server.touch())
    await apply.apply(config_map(x="1"))
    assert server.writes == 2
    assert server.obj["data"] == {"x": "1"}


async def test_a_server_that_changes_it_back_is_not_fought(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(mutate=lambda obj: obj["data"].update(x="forced"))
    apply, cache = applier(server)
    for _ in range(5):
        await apply.apply(config_map(x="1"))
        cache.put(CONFIG_MAP, server.touch())
    assert server.writes == 1
    assert "data.x is 'forced' although '1' was applied" in caplog.text
    await apply.apply(config_map(x="2"))
    assert server.writes == 2, "a new wish is tried"


async def test_status_is_exactly_what_was_said_last() -> None:
    server = Server()
    apply, cache = applier(server)
    live = await apply.apply(config_map(x="1"))
    live = await apply.apply_status(live, {"a": 1, "b": 2})
    live = await apply.apply_status(live, {"a": 1, "b": 2})
    assert server.writes == 2
    live = await apply.apply_status(live, {"a": 1})
    assert server.writes == 3
    assert live["status"] == {"a": 1}
    assert cache.get(CONFIG_MAP, "ns", "a") == live


async def test_a_kind_that_was_not_announced_is_an_error_in_the_program() -> None:
    apply, _ = applier(Server())
    with pytest.raises(KeyError):
        await apply.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": "a"}})
