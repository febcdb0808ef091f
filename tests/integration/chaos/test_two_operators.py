"""Two replicas: the leader hangs at a write until the other one has taken over and done all the work, and then goes on.

Its write, decided on long before, reaches the server last.
"""

from __future__ import annotations

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.replica import Replica
from tests.integration.chaos.world import FIRST, World
from tests.integration.faults import Trap
from tests.integration.kube.waiting import eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
TAKE_OVER_SECONDS = 60


async def leads(replica: Replica) -> bool:
    return replica.process is not None and await replica.process.is_leader()


def hang_until_all_is_done(world: World, leader: Replica, number: int, *, after: bool, path: str) -> None:
    """Sets the trap; sprung, it ends when the other replica leads and the LLMEngine is Ready."""

    async def act() -> bool:
        assert leader.process is not None
        leader.process.freeze()
        try:
            await world.ready()
        finally:
            leader.process.thaw()
        return True

    leader.proxy.trap = Trap(number, after, act, method="POST" if path == "/jobs" else "PATCH", path=path)


@pytest.mark.parametrize(
    ("number", "after", "path"),
    [
        pytest.param(4, False, "/jobs", id="an engine's Job, made late"),
        *(
            pytest.param(*case, marks=pytest.mark.soak, id=f"{case[2]} {case[0]} {'after' if case[1] else 'before'}")
            for case in [
                (1, False, "/jobs"),
                (2, False, "/jobs"),
                (2, True, "/jobs"),
                (3, True, "/jobs"),
                (5, False, "/jobs"),
                (1, False, "/status"),
                (9, False, "/status"),
                (20, True, "/status"),
                (30, False, "/status"),
            ]
        ),
    ],
)
async def test_c102_a_leader_that_wakes_up_late_does_no_harm(
    make_world: MakeWorld, number: int, after: bool, path: str
) -> None:
    async with make_world("fight", replicas=2) as world:

        async def somebody_leads() -> Replica | None:
            leading = [r for r in world.replicas if await leads(r)]
            return leading[0] if leading else None

        leader = await eventually(somebody_leads, "a leader")
        assert leader is not None
        (other,) = (r for r in world.replicas if r is not leader)
        hang_until_all_is_done(world, leader, number, after=after, path=path)
        await world.apply(budgets=FIRST)

        async def taken_over() -> str | None:
            return None if other.writes and leader.exits else "the leader has not ended"

        await world.eventually(taken_over, "the other replica to take over and the first to end")
        assert leader.exits == [1], "a leader that has lost its Lease ends"
        await world.ready()
        await world.check()
        assert set(await world.attempts()) == {f"{name}-1" for name in await world.artifacts()}, "one attempt for each"
        await world.delete()
        await world.gone()
