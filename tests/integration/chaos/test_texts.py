"""A user's calibration texts that change where they lie: what is built from them is always what its key says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.world import FIRST, SECOND, World
from trtllm_operator.kube.resource import Obj
from trtllm_operator.objects import RETRY
from trtllm_operator.reconcile.watches import LLM_ENGINE
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import calibration_texts as texts

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}


def write(world: World, path: str, content: str) -> str:
    """The digest that the directory has then."""
    directory = world.workshop.claim / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "rows.jsonl").write_text(content)
    try:
        found = texts.digest({"claimName": "texts", "path": path, "root": str(world.workshop.claim)})
    except StepError:
        return ""
    return str(found["digest"])


def calibrated(path: str, **more: Any) -> dict[str, Any]:
    dataset = {"persistentVolumeClaim": {"claimName": "texts", "path": path}}
    return {"targets": [H100], "precision": {"quantization": "fp8", "calibration": {"dataset": dataset, **more}}}


async def checkpoints(world: World) -> dict[str, Obj]:
    """By the digest of their texts and the number of samples."""
    found = [a for name, a in (await world.artifacts()).items() if name.startswith("checkpoint-")]
    words = {a["metadata"]["name"]: a["spec"]["inputs"]["command"] for a in found}
    return {
        f"{a['spec']['inputs']['calibration']['digest']} {command[command.index('--calib_size') + 1]}": a
        for a in found
        if (command := words[a["metadata"]["name"]])
    }


async def test_what_is_built_is_from_the_texts_that_its_key_names(make_world: MakeWorld) -> None:
    async with make_world("texts") as world:
        bad = write(world, "chat", '{"text": "Good day"}\n{"body": "Good night"}\n')
        assert bad == ""
        await world.apply(budgets=FIRST, **calibrated("chat"))

        async def stalled() -> str | None:
            found = await world.client.get(LLM_ENGINE, world.namespace, "smol")
            said = [c["message"] for c in found.get("status", {}).get("conditions", ()) if c["type"] == "Stalled"]
            return said[0] if said else None

        async def refused() -> str | None:
            said = await stalled() or ""
            return None if "rows.jsonl line 2: no text under `text`; its keys are body" in said else said

        await world.eventually(refused, "the row to be named")
        assert await world.artifacts() == {}
        first = write(world, "chat", '{"text": "Good day"}\n')
        live = await world.client.get(LLM_ENGINE, world.namespace, "smol")
        annotated = {**live, "metadata": {**live["metadata"], "annotations": {RETRY: "1"}}}
        await world.client.replace(LLM_ENGINE, annotated)
        await world.eventually(stalled, "another inspection")
        await world.ready()
        assert set(await checkpoints(world)) == {f"{first} 512"}

        second = write(world, "chat", '{"text": "Good night"}\n')
        await world.apply(budgets=SECOND, **calibrated("chat"))
        await world.ready()
        assert set(await checkpoints(world)) == {f"{first} 512"}, "what is built already stays"

        await world.apply(budgets=SECOND, **calibrated("chat", samples=64))
        await world.ready()
        made = await checkpoints(world)
        assert made[f"{second} 64"]["status"]["phase"] == "Ready"
        # The one of the texts that are gone could not be made; nothing needs it, and it goes soon.
        for name, attempts in [(a["metadata"]["name"], a["status"].get("attempts")) for a in made.values()]:
            if attempts:
                assert [a["reason"] for a in attempts] == ["CalibrationChanged"]
                assert world.workshop.builds[name] == 0
        await world.check()

        async def collected() -> str | None:
            left = len(await world.artifacts())
            return None if left == 5 else f"{left} artifacts"

        await world.eventually(collected, "one model, and of two revisions a checkpoint and an engine each")
        await world.at_rest()
        await world.delete()
        await world.gone()
