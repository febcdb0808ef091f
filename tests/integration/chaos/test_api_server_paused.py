"""The API server hangs in the middle of a build: nothing answers and nothing is refused, and then it goes on."""

from __future__ import annotations

import asyncio

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.history import live
from tests.integration.faults import Trap

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

LEASE_DEADLINE_SECONDS = 10
"""How long the operator works on without a proven renewal."""


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.soak)])
async def test_a_build_goes_on_after_the_api_server_hung(
    make_world: MakeWorld, controlled: ApiServer, seconds: int
) -> None:
    async def hang() -> bool:
        controlled.freeze()
        try:
            await asyncio.sleep(seconds)
        finally:
            controlled.thaw()
        return True

    async with make_world("paused") as world:
        world.replica.proxy.trap = Trap(4, after=False, act=hang, method="POST", path="/jobs")
        try:
            await live(world)
        finally:
            controlled.thaw()
        lives = world.replica.lives
    if seconds > LEASE_DEADLINE_SECONDS:
        assert lives > 1, "an operator that cannot prove its Lease must end: another one may be at work"
    else:
        assert lives == 1, "a short pause is waited for"
