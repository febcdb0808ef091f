"""A Secret that is missing, then wrong, then right: whatever waits for it goes on by itself, whoever has led since."""

from __future__ import annotations

import json

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.world import FIRST, World
from tests.unit.engines.simulation import GATED, TOKEN
from trtllm_operator.kube.resource import SECRET
from trtllm_operator.reconcile.watches import LLM_ENGINE

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
WITHIN_SECONDS = 60
"""Of a change of the Secret."""


async def put_token(world: World, value: str) -> None:
    meta = {"namespace": world.namespace, "name": TOKEN}
    await world.client.apply(
        SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": value}}
    )


async def stalled(world: World, reason: str, words: str = "") -> None:
    async def missing() -> str | None:
        found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
        conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
        told = conditions.get("Stalled", {"reason": None, "message": ""})
        return None if told["reason"] == reason and words in told["message"] else str(conditions)

    await world.eventually(missing, f"it to stall for {reason}", seconds=WITHIN_SECONDS)


async def test_c94_what_a_secret_was_to_blame_for_goes_on_once_it_is_right(make_world: MakeWorld) -> None:
    async with make_world("secret") as world:
        world.workshop.accepted = {"inspect": ("t-half", "t-right"), "fetch": ("t-right",)}
        await world.apply(budgets=FIRST, model=GATED)
        await stalled(world, "SecretMissing", f"Secret {TOKEN} does not exist")
        await world.at_rest()

        await put_token(world, "t-wrong")
        await stalled(world, "DownloadRefused")
        await world.at_rest()

        await put_token(world, "t-half")
        await world.replica.restart()
        await stalled(world, "DownloadRefused", "Model model-")
        await world.at_rest()

        await put_token(world, "t-right")

        async def published() -> str | None:
            models = [a for n, a in (await world.artifacts()).items() if n.startswith("model-")]
            return None if models and models[0]["status"]["phase"] == "Ready" else str(models)

        await world.eventually(published, "the model to be published", seconds=WITHIN_SECONDS)
        await world.ready()
        await world.check()
        (model,) = (n for n in await world.artifacts() if n.startswith("model-"))
        assert [n for n in await world.attempts() if n.startswith("model-")] == [f"{model}-1", f"{model}-2"]
        written = json.dumps([await world.artifacts(), await world.client.get(LLM_ENGINE, world.namespace, "smol")])
        for token in ("t-wrong", "t-half", "t-right"):
            assert token not in written
            assert token not in world.replica.said()
        await world.delete()
        await world.gone()
