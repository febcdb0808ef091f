"""A whole history: built, served, changed, rebuilt, deleted. However the operator dies on the way, it ends the same."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.integration.chaos.world import FIRST, SECOND, World


@dataclass(frozen=True)
class Ending:
    served: dict[str, Any]
    """The world while the changed LLMEngine serves."""
    writes: tuple[str, ...]
    """All that the operator wrote, method and path."""
    seconds: float


async def live(world: World) -> Ending:
    """From the first `apply` to nothing being left."""
    began = time.monotonic()
    await world.apply(budgets=FIRST)
    await world.ready()
    await world.check()
    await world.apply(budgets=SECOND)
    await world.ready()
    await world.check()
    served = await world.summary()
    await world.delete()
    await world.gone()
    await world.check()
    return Ending(served, tuple(world.replica.proxy.numbered), time.monotonic() - began)
