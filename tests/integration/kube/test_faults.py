"""An operator on the host when the way to the API server, or the server itself, is in trouble."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.faults import Fault, FaultProxy
from tests.integration.kube.operator_process import OperatorProcess
from tests.integration.kube.sample_operator import Options
from tests.integration.kube.waiting import eventually
from tests.integration.kube.world import World

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def operator(world: World, proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[OperatorProcess]:
    """At work on one Widget; lists only when a watch broke, gives up on a call after one second."""
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    setup = Options(group=world.group, namespace=world.namespace, call_timeout_seconds=1)
    await world.make("w", count=2)
    async with OperatorProcess(kubeconfig, setup, tmp_path / "log") as operator:
        await world.made("w", 2)
        await operator.settled()
        yield operator


async def busy_gap(world: World) -> dict[str, str]:
    """What happens while the operator cannot see it; the children there should be afterwards."""
    await world.make("w", count=3, color="blue")
    await world.delete_child("w-0")
    await world.make("new", count=1, color="green")
    return {"w-0": "blue", "w-1": "blue", "w-2": "blue", "new-0": "green"}


async def test_c107_what_no_watch_reported_is_found(world: World, proxy: FaultProxy, operator: OperatorProcess) -> None:
    proxy.set(Fault.GONE)

    async def refused() -> bool:
        return proxy.answers[Fault.GONE] > 0

    await eventually(refused, "a watch to be answered 410")
    await world.delete_child("w-0")
    await world.delete_child("w-1")
    proxy.set(Fault.NONE)
    await world.shows({"w-0": "red", "w-1": "red"}, seconds=10)


async def test_dropped_watches_lose_nothing(world: World, proxy: FaultProxy, operator: OperatorProcess) -> None:
    proxy.drop_watches()
    expected = await busy_gap(world)
    await world.shows(expected, seconds=10)


async def test_cut_connections_lose_nothing(world: World, proxy: FaultProxy, operator: OperatorProcess) -> None:
    proxy.set(Fault.KILL)
    expected = await busy_gap(world)

    async def cut() -> bool:
        return proxy.answers[Fault.KILL] > 0

    await eventually(cut, "a request to be cut")
    proxy.set(Fault.NONE)
    await world.shows(expected, seconds=15)


async def test_stalled_connections_lose_nothing(world: World, proxy: FaultProxy, operator: OperatorProcess) -> None:
    await world.make("w", count=2, color="blue")
    proxy.set(Fault.STALL)
    expected = await busy_gap(world)
    await asyncio.sleep(2)  # longer than the operator waits for an answer
    proxy.set(Fault.NONE)
    await world.shows(expected, seconds=15)


async def test_in_a_storm_of_429_everyone_waits_together(
    world: World, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    proxy.set(Fault.OVERLOADED)
    for number in range(30):
        await world.make(f"many-{number}")

    async def refused_twice() -> bool:
        return await operator.calls(code="429") >= 2

    await eventually(refused_twice, "the operator to try again", seconds=10)
    wasted = await operator.calls(code="429")
    assert wasted <= 20, "30 objects waited: they must not all have tried on their own"
    proxy.set(Fault.NONE)
    await world.shows({"w-0": "red", "w-1": "red"} | {f"many-{n}-0": "red" for n in range(30)}, seconds=15)


async def test_a_server_that_answers_500_to_everything_does_not_end_the_operator(
    world: World, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    proxy.set(Fault.INTERNAL)
    proxy.drop_watches()
    expected = await busy_gap(world)

    async def refused() -> bool:
        return proxy.answers[Fault.INTERNAL] >= 16  # four watches, each tried four times

    await eventually(refused, "some requests to be answered 500")
    proxy.set(Fault.NONE)
    await world.shows(expected, seconds=20)


async def test_a_leader_that_cannot_prove_its_lease_ends(world: World, proxy: FaultProxy, tmp_path: Path) -> None:
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    setup = Options(group=world.group, namespace=world.namespace, lease_seconds=15)
    async with OperatorProcess(kubeconfig, setup, tmp_path / "log") as operator:
        await world.make("w")
        await world.made("w", 1)
        proxy.set(Fault.STALL)
        begun = time.monotonic()
        assert await operator.ended() == 1
        assert time.monotonic() - begun < setup.lease_seconds, "another one may be at work by now"
        assert "could not be renewed for 10 s" in operator.log.read_text()
