"""Public reports about operators on a real API server with its controllers, by their number."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.kubelet import Kubelets, Machine, h100
from tests.integration.chaos.world import FIRST, PLAYED, SECOND, World
from tests.integration.faults import Fault
from tests.unit.engines.simulation import engine
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import NAMESPACE, POD, Obj, Resource
from trtllm_operator.objects import ARTIFACT, ATTEMPT
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

SEED = 20261129
CYCLES, AT_ONCE, LONGEST_LIFE_SECONDS = 100, 20, 4.0


async def is_there(client: Client, resource: Resource, namespace: str, name: str) -> bool:
    try:
        await client.get(resource, namespace, name)
    except ApiError as error:
        if error.is_not_found:
            return False
        raise
    return True


async def versions(world: World) -> dict[tuple[str, str], str]:
    """The resourceVersions of all that the operator made."""
    kinds = (*PLAYED, ENGINE_ARTIFACT)
    return {
        (r.kind, o["metadata"]["name"]): o["metadata"]["resourceVersion"] for r in kinds for o in await world.objects(r)
    }


async def begun(world: World, kubelets: Kubelets, artifact: str) -> Obj:
    """The Pod of an attempt at such an artifact, once it runs."""
    found: list[Obj] = []

    async def missing() -> str | None:
        pods = await world.objects(POD, f"{ATTEMPT}")
        found[:] = [
            p
            for p in pods
            if p["metadata"]["labels"][ARTIFACT].startswith(artifact) and p.get("status", {}).get("phase") == "Running"
        ]
        return None if found else "no such Pod runs"

    await world.eventually(missing, f"a build of {artifact}")
    return found[0]


async def test_c101_c111_no_field_is_lost_the_spec_stays_and_a_second_apply_changes_nothing(
    make_world: MakeWorld,
) -> None:
    async with make_world("again") as world:
        await world.apply(budgets=FIRST)
        await world.ready()
        found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
        assert found["spec"] == engine(budgets=FIRST)["spec"]
        assert "finalizers" not in found["metadata"]
        before = await versions(world)
        await world.apply(budgets=FIRST)
        await world.at_rest()
        assert await versions(world) == before
        assert (await world.client.get(LLM_ENGINE, world.namespace, "smol"))["spec"] == found["spec"]
        said = world.replica.said()
        assert "was applied; left as it is" not in said, "the server dropped or changed a field that was written"
        assert "inconsistencies" not in said
        await world.delete()
        await world.gone()


async def test_c110_somebody_who_was_first_is_no_failure(make_world: MakeWorld) -> None:
    async with make_world("conflict") as world:
        world.replica.proxy.set(Fault.CONFLICT)
        await world.apply(budgets=FIRST)

        async def refused() -> str | None:
            count = world.replica.proxy.answers[Fault.CONFLICT]
            return None if count >= 2 else f"{count} answers"

        await world.eventually(refused, "two writes of a status to be refused")
        world.replica.proxy.set(Fault.NONE)
        await world.ready()
        await world.check()
        found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
        assert "modified" not in str(found["status"])
        assert world.replica.lives == 1
        assert set(await world.attempts()) == {f"{name}-1" for name in await world.artifacts()}, "one attempt for each"
        await world.delete()
        await world.gone()


@pytest.mark.parametrize("machines", [[Machine("cpu"), h100(1)]], ids=["one GPU"])
async def test_c88_the_only_gpu_goes_from_the_old_server_to_the_build_and_to_the_new_server(
    make_world: MakeWorld,
) -> None:
    targets = [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}]
    async with make_world("scarce") as world:
        await world.apply(budgets=FIRST, targets=targets)
        await world.ready()
        await world.apply(budgets=SECOND, targets=targets)

        async def held() -> str | None:
            found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
            ready = next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
            return None if "the 1 server that serves now holds 1" in ready["message"] else str(ready)

        await world.eventually(held, "the condition to say what holds the GPU")
        before = await world.summary()
        await world.apply(budgets=SECOND, targets=targets, rollout={"strategy": "Recreate"})
        await world.ready()
        await world.check()
        after = await world.summary()
        assert after["selected"] != before["selected"]
        assert len(after["deployments"]) == 1
        await world.delete()
        await world.gone()


async def test_c99_without_an_operator_an_llmengine_goes_and_its_artifacts_once_it_is_back(
    make_world: MakeWorld,
) -> None:
    async with make_world("gone") as world:
        await world.apply(budgets=FIRST)
        await world.ready()
        assert world.replica.process is not None
        world.replica.process.freeze()
        await world.delete()
        assert not await is_there(world.client, LLM_ENGINE, world.namespace, "smol")
        assert world.workshop.published(), "outside state is what finalizers are for"
        world.replica.process.thaw()
        await world.gone()


async def test_c99_a_namespace_goes_with_all_that_is_in_it(make_world: MakeWorld) -> None:
    world = make_world("namespace")
    world.replica.lease_namespace = "default"
    async with world:
        await world.apply(budgets=FIRST)
        await world.ready()
        found = await world.client.get(NAMESPACE, "", world.namespace)
        await world.client.delete(NAMESPACE, found)

        async def left() -> str | None:
            there = await is_there(world.client, NAMESPACE, "", world.namespace)
            return "it is there" if there else None

        await world.eventually(left, "the namespace to go")


async def test_c100_a_hundred_are_made_and_deleted_at_any_moment(make_world: MakeWorld) -> None:
    chance = random.Random(SEED)  # noqa: S311 (chosen once, not secret)
    lives = [(f"e{n}", chance.choice((FIRST, SECOND)), chance.uniform(0, LONGEST_LIFE_SECONDS)) for n in range(CYCLES)]
    async with make_world("cycles") as world:
        free = asyncio.Semaphore(AT_ONCE)

        async def cycle(name: str, budgets: dict[str, int], seconds: float) -> None:
            async with free:
                await world.apply(name, budgets=budgets)
                await asyncio.sleep(seconds)
                await world.delete(name)
                assert not await is_there(world.client, LLM_ENGINE, world.namespace, name)

        await asyncio.gather(*(cycle(*life) for life in lives))
        await world.gone()
        assert await world.client.list(LLM_ENGINE, namespace=world.namespace) == []
        assert "Traceback" not in world.replica.said()


async def test_c106_deleted_during_a_build(make_world: MakeWorld, kubelets: Kubelets) -> None:
    async with make_world("cut") as world:
        await world.apply("kept", budgets=FIRST)
        await world.ready("kept")
        shared = set(world.workshop.published())
        kubelets.holding = ("engine-",)
        await world.apply("cut", budgets=SECOND)
        building = await begun(world, kubelets, "engine-")
        await world.delete("cut")

        async def missing() -> str | None:
            pods = [
                p["metadata"]["name"]
                for p in await world.objects(POD, str(ATTEMPT))
                if p["status"]["phase"] == "Running"
            ]
            return ", ".join(pods) or None

        await world.eventually(missing, f"Pod {building['metadata']['name']} and its like to end", seconds=40)
        kubelets.holding = ()

        async def rest() -> str | None:
            names = set(await world.artifacts())
            return None if names == shared else f"{names ^ shared} differ"

        await world.eventually(rest, "what the other LLMEngine needs to be all that is left")
        assert set(world.workshop.published()) == shared
        assert world.workshop.staged() == []
        await world.check()
        await world.delete("kept")
        await world.gone()
