"""Two replicas: the leader hangs at a write until the other one has taken over and done all the work, and then goes on.

Its write, decided on long before, reaches the server last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.replica import Replica
from tests.integration.chaos.world import FIRST, World
from tests.integration.faults import Trap
from tests.integration.kube.waiting import eventually
from trtllm_operator.kube.resource import JOB

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
TAKE_OVER_SECONDS = 60


async def leads(replica: Replica) -> bool:
    return replica.process is not None and await replica.process.is_leader()


def hang_at(
    leader: Replica, number: int, until: Callable[[], Awaitable[object]], *, after: bool, path: str, method: str
) -> None:
    """Sets the trap; sprung, it ends when the other replica leads and has come as far as `until` says."""

    async def act() -> bool:
        assert leader.process is not None
        leader.process.freeze()
        try:
            await until()
        finally:
            leader.process.thaw()
        return True

    leader.proxy.trap = Trap(number, after, act, method=method, path=path)


async def who_leads(world: World) -> tuple[Replica, Replica]:
    """The leader and the other one."""

    async def somebody_leads() -> Replica | None:
        leading = [r for r in world.replicas if await leads(r)]
        return leading[0] if leading else None

    leader = await eventually(somebody_leads, "a leader")
    assert leader is not None
    (other,) = (r for r in world.replicas if r is not leader)
    return leader, other


async def has_changed_hands(world: World, leader: Replica, other: Replica) -> None:
    async def missing() -> str | None:
        return None if other.writes and leader.exits else "the leader has not ended"

    await world.eventually(missing, "the other replica to take over and the first to end")
    assert leader.exits == [1], "a leader that has lost its Lease ends"


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
        leader, other = await who_leads(world)
        method = "POST" if path == "/jobs" else "PATCH"
        hang_at(leader, number, world.ready, after=after, path=path, method=method)
        await world.apply(budgets=FIRST)
        await has_changed_hands(world, leader, other)
        await world.ready()
        await world.check()
        assert set(await world.attempts()) == {f"{name}-1" for name in await world.artifacts()}, "one attempt for each"
        await world.delete()
        await world.gone()


@pytest.mark.parametrize(
    ("method", "path", "after"),
    [
        pytest.param("POST", "/jobs", False, id="the Job is made late"),
        pytest.param("POST", "/jobs", True, id="its being made is told late", marks=pytest.mark.soak),
        pytest.param("PATCH", "-collect", False, id="it is let begin late"),
    ],
)
async def test_c102_a_removal_that_comes_late_leaves_the_files_that_were_built_since(
    make_world: MakeWorld, method: str, path: str, after: bool
) -> None:
    async with make_world("late", replicas=2) as world:
        leader, other = await who_leads(world)
        await world.apply(budgets=FIRST)
        await world.ready()
        built = set(await world.artifacts())

        async def removed_and_built_anew() -> None:
            await world.gone()
            await world.apply(budgets=FIRST)
            await world.ready()

        before = sum(w.startswith(method) and w.endswith(path) for w in leader.proxy.numbered)
        hang_at(leader, before + 1, removed_and_built_anew, after=after, path=path, method=method)
        await world.delete()
        await has_changed_hands(world, leader, other)
        await asyncio.wait_for(leader.proxy.sprung.wait(), TAKE_OVER_SECONDS)

        async def left() -> str | None:
            names = [j["metadata"]["name"] for j in await world.objects(JOB)]
            return ", ".join(n for n in names if n.endswith("-collect")) or None

        await world.eventually(left, "what came late to go with its owner")
        await world.ready()
        await world.check()
        assert set(await world.artifacts()) == built
        assert world.workshop.collected == dict.fromkeys(built, 1), "the files of each were removed once, and are there"
        made = {name: world.kubelets.made[world.namespace, f"{name}-collect"] for name in built}
        assert made == dict.fromkeys(built, 1), "what came late did not begin, however fast it went"
        await world.delete()
        await world.gone()
