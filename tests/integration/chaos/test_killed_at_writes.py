"""The operator is killed with SIGKILL at a write, before or after the server has it, and starts again."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.integration.chaos.conftest import MakeWorld
from tests.integration.chaos.history import Ending, live

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

SEED = 20260701
CHOSEN = 3
"""Writes in the middle at which the fast test kills, beside the first and the last."""
AT_ONCE = 6
MANY = 25
"""Lives, where each comes no further than a write: what a life finds done already, it does not write."""


async def undisturbed(make_world: MakeWorld) -> Ending:
    async with make_world("calm") as world:
        return await live(world)


async def killed(make_world: MakeWorld, number: int, *, after: bool, expected: Ending) -> str:
    """What the operator was killed at."""
    async with make_world(f"write-{number}-{'after' if after else 'before'}") as world:
        world.replica.dies_at(number, after=after)
        ending = await live(world)
        what = ending.writes[number - 1].replace(world.namespace, "NAMESPACE")
        said = f"write {number}, killed {'after' if after else 'before'} {what}"
        assert world.replica.lives > 1, f"{said}: it was not killed"
        assert ending.served == expected.served, f"{said}: it ends otherwise than when nothing happens"
    return said


async def test_a_history_without_disturbance_writes_nothing_at_rest(make_world: MakeWorld) -> None:
    async with make_world("rest") as world:
        await world.apply()
        await world.ready()
        await world.check()
        await world.at_rest()
        await world.delete()
        await world.gone()


async def test_killed_at_some_writes_it_ends_the_same(make_world: MakeWorld) -> None:
    expected = await undisturbed(make_world)
    count = len(expected.writes)
    middle = random.Random(SEED).sample(range(2, count), CHOSEN)  # noqa: S311 (chosen once, not secret)
    await asyncio.gather(
        *(
            killed(make_world, number, after=after, expected=expected)
            for number, after in [(1, False), (1, True), *((n, bool(n % 2)) for n in middle)]
        )
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_killed_at_each_of_its_writes_in_one_history(make_world: MakeWorld) -> None:
    expected = await undisturbed(make_world)
    async with make_world("each-write") as world:
        world.limit_seconds = 900
        world.replica.dies_at_every_write()
        ending = await live(world)
        print(f"{world.replica.lives} lives, {len(ending.writes)} writes, {ending.seconds:.0f} s")
        assert world.replica.lives > MANY
        assert ending.served == expected.served, "it ends otherwise than when nothing happens"


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_killed_at_every_write_it_ends_the_same(make_world: MakeWorld) -> None:
    expected = await undisturbed(make_world)
    print(f"{len(expected.writes)} writes in {expected.seconds:.0f} s when nothing happens")
    free = asyncio.Semaphore(AT_ONCE)
    wrong: list[str] = []

    async def one(number: int, after: bool) -> None:
        async with free:
            try:
                said = await killed(make_world, number, after=after, expected=expected)
            except AssertionError as error:
                wrong.append(str(error))
                said = f"WRONG {error}"
            print(said.replace("\n", " ")[:400], flush=True)

    await asyncio.gather(*(one(n, after) for n in range(1, len(expected.writes) + 1) for after in (False, True)))
    assert not wrong, f"{len(wrong)} of {2 * len(expected.writes)} histories: " + "\n".join(wrong)
