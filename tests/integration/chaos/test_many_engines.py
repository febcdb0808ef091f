"""Many LLMEngines that share models, checkpoints and engines, and few GPUs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.kubelet import Kubelets, Machine, a100, h100
from tests.integration.chaos.world import FIRST
from trtllm_operator.kube.resource import JOB
from trtllm_operator.objects import ARTIFACT, ATTEMPT, label

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

TARGETS = [
    {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}, "replicas": 0},
    {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 0},
]
"""No servers, which would keep the GPUs that builds wait for."""
GPUS = 2
"""Of each node."""
WORKERS = 8
"""Keys that the operator works on at once: how far one may get ahead of those before it."""


@pytest.fixture
def machines() -> list[Machine]:
    return [Machine("cpu"), a100(GPUS), h100(GPUS)]


def spec(number: int, repositories: int, budgets: int) -> dict[str, Any]:
    """Of the LLMEngine of that number: each pair of repository and budget is asked for by several."""
    length = 1088 + 64 * (number % budgets)
    model = {"huggingFace": {"repo": f"made/up-{number % repositories}", "revision": "main"}}
    return {"model": model, "budgets": {**FIRST, "maxSeqLen": length}, "targets": TARGETS}


@pytest.mark.parametrize(
    ("engines", "repositories", "budgets"),
    [(12, 2, 3), pytest.param(50, 5, 8, marks=pytest.mark.soak)],
)
async def test_many_keys_and_few_gpus(
    make_world: MakeWorld, kubelets: Kubelets, engines: int, repositories: int, budgets: int
) -> None:
    names = [f"engine-{number:02}" for number in range(engines)]
    async with make_world("many") as world:
        began = time.monotonic()
        for number, name in enumerate(names):
            await world.apply(name, **spec(number, repositories, budgets))
        limit = 120 + 6 * engines
        await asyncio.gather(*(world.ready(name, seconds=limit) for name in names))
        seconds = time.monotonic() - began
        await world.check()

        pairs = {(n % repositories, n % budgets) for n in range(engines)}
        kinds = [name.partition("-")[0] for name in world.workshop.builds]
        assert kinds.count("model") == repositories
        assert kinds.count("checkpoint") == repositories
        assert kinds.count("engine") == 2 * len(pairs), "one for each key and GPU class, however many ask for it"
        assert all(count == 1 for count in kubelets.started.values()), "each key had one Pod"

        jobs = [j for j in await world.objects(JOB) if label(j, ATTEMPT)]
        made = {label(j, ARTIFACT) or "": j["metadata"]["creationTimestamp"] for j in jobs}
        began_order = [made[name] for _, name in kubelets.order]
        late = max(sum(other > mine for other in began_order[:at]) for at, mine in enumerate(began_order))
        assert late <= WORKERS, f"a build began after {late} that were asked for later"
        await world.at_rest()
        print(
            f"{engines} LLMEngines, {len(world.workshop.builds)} keys, {2 * GPUS} GPUs: Ready after {seconds:.0f} s, "
            f"{world.replica.writes} writes; no build began after more than {late} that were asked for later"
        )

        half = names[::2]
        await asyncio.gather(*(world.delete(name) for name in half))
        await asyncio.gather(*(world.ready(name) for name in names[1::2]))
        await world.check()
        await asyncio.gather(*(world.delete(name) for name in names[1::2]))
        await world.gone(seconds=limit)
