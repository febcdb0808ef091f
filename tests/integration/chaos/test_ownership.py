"""Names that meet and LLMEngines that leave their servers behind, on a real API server with its garbage collector."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.world import FIRST, World
from trtllm_operator.kube.encoding import ascii_json
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, SERVICE, Obj
from trtllm_operator.objects import ENGINE, REVISION, label
from trtllm_operator.reconcile.watches import LLM_ENGINE

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]


def target(name: str) -> dict[str, Any]:
    return {"name": name, "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}


async def test_two_engines_whose_names_meet_share_nothing(make_world: MakeWorld) -> None:
    async with make_world("meet") as world:
        await world.apply("web", targets=[target("x-h100")])
        await world.apply("web-x", targets=[target("h100")], budgets={**FIRST, "maxBatchSize": 4})
        await world.ready("web")
        await world.ready("web-x")
        services = {label(s, ENGINE): s for s in await world.objects(SERVICE)}
        assert {s["metadata"]["name"] for s in services.values()} == {"web--x-h100", "web-x--h100"}
        for name, service in services.items():
            selected = service["spec"]["selector"][REVISION]
            deployment = await world.client.get(DEPLOYMENT, world.namespace, selected)
            assert label(deployment, ENGINE) == name, "each Service selects servers of its own LLMEngine"
        await world.at_rest()


async def test_a_service_of_somebody_else_is_left_alone_and_said(make_world: MakeWorld) -> None:
    async with make_world("taken") as world:
        meta = {"name": "smol--h100", "namespace": world.namespace}
        bare = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 80}]}}
        theirs = await world.client.create(SERVICE, bare)
        await world.apply(targets=[target("h100")])

        async def not_said() -> str | None:
            found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
            conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
            stalled = conditions.get("Stalled", {})
            if stalled.get("reason") == "NameTaken" and "Service smol--h100 exists" in stalled["message"]:
                return None
            return f"the conditions are {conditions}"

        await world.eventually(not_said, "the name to be said to be taken")
        assert await world.client.get(SERVICE, world.namespace, "smol--h100") == theirs
        await world.client.delete(SERVICE, theirs)
        await world.eventually(lambda: _says_ready(world), "the name to be used once it is free")


async def _says_ready(world: World) -> str | None:
    found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
    ready = next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
    return None if ready["status"] == "True" else str(ready)


async def test_an_orphaned_engine_goes_and_what_it_leaves_is_taken_back(make_world: MakeWorld) -> None:
    async with make_world("orphan") as world:
        await world.apply()
        await world.ready()
        await _add_revision_of_earlier_version(world)
        before = {d["metadata"]["uid"] for d in await world.objects(DEPLOYMENT)}
        engine = await world.client.get(LLM_ENGINE, world.namespace, "smol")
        await world.client.delete(LLM_ENGINE, engine, propagation="Orphan")

        async def still_there() -> str | None:
            try:
                found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
            except ApiError as error:
                if error.is_not_found:
                    return None
                raise
            return f"finalizers {found['metadata'].get('finalizers')}"

        await world.eventually(still_there, "the LLMEngine to go", seconds=60)
        left = [
            *await world.objects(SERVICE),
            *await world.objects(DEPLOYMENT),
            *await world.objects(CONTROLLER_REVISION),
        ]
        assert left
        assert not [o["metadata"]["name"] for o in left if o["metadata"].get("ownerReferences")]

        await world.apply()
        await world.ready()
        again = await world.client.get(LLM_ENGINE, world.namespace, "smol")
        assert {d["metadata"]["uid"] for d in await world.objects(DEPLOYMENT)} == before, "the same servers serve on"

        async def owned() -> str | None:
            objects: list[Obj] = []
            for kind in (SERVICE, DEPLOYMENT, CONTROLLER_REVISION):
                objects += await world.objects(kind)
            owners = {o["metadata"]["name"]: o["metadata"].get("ownerReferences") for o in objects}
            foreign = [n for n, refs in owners.items() if [r["uid"] for r in refs or ()] != [again["metadata"]["uid"]]]
            return ", ".join(foreign) or None

        await world.eventually(owned, "everything to be taken back")
        await world.check()
        await world.delete()
        await world.gone()


async def _add_revision_of_earlier_version(world: World) -> None:
    """One more revision, whose data are in the order and with the escapes of a version before."""
    known = (await world.objects(CONTROLLER_REVISION))[0]
    meta = {k: known["metadata"][k] for k in ("namespace", "labels", "ownerReferences")}
    name = f"{known['metadata']['name']}-before"
    data = {"warnings": ["a < b"], **{k: known["data"][k] for k in ("template", "plan", "artifacts")}}
    wanted = {**known, "metadata": {**meta, "name": name}, "revision": 0, "data": data}
    path = CONTROLLER_REVISION.path(world.namespace)
    await world.client._json("create", "POST", CONTROLLER_REVISION, path, body=wanted, encode=ascii_json)
