"""An operator on the host, as a process, against a real API server: at work, at rest, restarted and taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.faults import FaultProxy
from tests.integration.kube.operator_process import OperatorProcess
from tests.integration.kube.sample_operator import Options
from tests.integration.kube.waiting import eventually
from tests.integration.kube.world import World
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.resource import CONFIG_MAP, LEASE

pytestmark = pytest.mark.apiserver


def options(world: World, **changes: object) -> Options:
    return Options(group=world.group, namespace=world.namespace, **changes)  # type: ignore[arg-type]


async def test_changes_reach_reconcile_and_kopf_writes_nothing(world: World, proxy: FaultProxy, tmp_path: Path) -> None:
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    await world.make("early", count=1)
    async with OperatorProcess(kubeconfig, options(world), tmp_path / "log") as operator:
        await world.shows({"early-0": "red"})
        await world.make("late", count=2)
        await world.shows({"early-0": "red", "late-0": "red", "late-1": "red"})
        await world.make("late", count=1, color="blue")
        await world.shows({"early-0": "red", "late-0": "blue"})
        await world.made("late", 1)
        await world.delete_child("late-0")
        await world.shows({"early-0": "red", "late-0": "blue"})
        await operator.settled()
        assert sum(proxy.writes.values()) == await operator.writes(), "kopf wrote something"
        widget = await world.get("late")
        assert not widget["metadata"].get("annotations")
        assert not widget["metadata"].get("finalizers")


async def test_tampering_with_a_child_is_undone(
    world: World, client: Client, apiserver: ApiServer, tmp_path: Path
) -> None:
    await world.make("w")
    async with OperatorProcess(apiserver.kubeconfig, options(world), tmp_path / "log"):
        await world.shows({"w-0": "red"})
        child = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": world.namespace, "name": "w-0"},
            "data": {"color": "tampered"},
        }
        await client.apply(CONFIG_MAP, child)
        await world.shows({"w-0": "red"})


async def test_at_rest_only_the_lease_is_written(world: World, proxy: FaultProxy, tmp_path: Path) -> None:
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    for number in range(5):
        await world.make(f"w{number}")
    async with OperatorProcess(
        kubeconfig, options(world, lease_seconds=3, resync_seconds=1), tmp_path / "log"
    ) as operator:
        await world.made("w4", 1)
        await operator.settled()
        proxy.writes.clear()
        rounds = await operator.metric("llmengine_operator_resync_rounds_total")

        async def resynced_twice() -> bool:
            return await operator.metric("llmengine_operator_resync_rounds_total") >= rounds + 2

        await eventually(resynced_twice, "two more rounds of lists")
        path = LEASE.path(world.namespace, "sample-operator")
        assert set(proxy.writes) == {("PUT", path)}


async def test_a_restart_writes_nothing(world: World, apiserver: ApiServer, tmp_path: Path) -> None:
    for number in range(5):
        await world.make(f"w{number}")
    async with OperatorProcess(apiserver.kubeconfig, options(world), tmp_path / "first") as operator:
        await world.made("w4", 1)
        await operator.terminate()
    async with OperatorProcess(apiserver.kubeconfig, options(world), tmp_path / "second") as operator:
        await operator.ready()
        await operator.settled()
        passes = await operator.metric("llmengine_operator_passes_total", result="success")
        assert passes >= 5, "every object is looked at after a start"
        assert await operator.writes() == 0


async def test_sigterm_ends_it_soon_and_cleanly(world: World, apiserver: ApiServer, tmp_path: Path) -> None:
    await world.make("w")
    setup = options(world, lease_seconds=15)
    async with OperatorProcess(apiserver.kubeconfig, setup, tmp_path / "log") as operator:
        await world.made("w", 1)
        code, seconds = await operator.terminate()
    assert code == 0
    assert seconds < 2
    lease = await world.client.get(LEASE, world.namespace, "sample-operator")
    assert lease["spec"].get("holderIdentity", "") == "", "the next one should not have to wait"


async def test_a_killed_leader_is_followed(world: World, apiserver: ApiServer, tmp_path: Path) -> None:
    first = OperatorProcess(apiserver.kubeconfig, options(world, lease_seconds=3, identity="one"), tmp_path / "one")
    second = OperatorProcess(apiserver.kubeconfig, options(world, lease_seconds=3, identity="two"), tmp_path / "two")
    async with first as leader:
        await eventually(leader.is_leader, "the first to lead")
        async with second as standby:
            await standby.ready()
            assert not await standby.is_leader()
            leader.kill()
            await eventually(standby.is_leader, "the second to take over", seconds=10)
            await world.make("w")
            await world.made("w", 1)


async def test_c103_a_standby_is_ready_and_a_leader_that_goes_in_order_is_followed_at_once(
    world: World, apiserver: ApiServer, tmp_path: Path
) -> None:
    first = OperatorProcess(apiserver.kubeconfig, options(world, lease_seconds=6, identity="one"), tmp_path / "one")
    second = OperatorProcess(apiserver.kubeconfig, options(world, lease_seconds=6, identity="two"), tmp_path / "two")
    async with first as leader:
        await eventually(leader.is_leader, "the first to lead")
        async with second as standby:
            await standby.ready()
            code, _ = await leader.terminate()
            assert code == 0
            await eventually(standby.is_leader, "the second to take over", seconds=4)


@pytest.mark.parametrize("cluster_wide", [True, False])
async def test_a_kind_defined_later_is_served_from_then_on(
    client: Client, namespace: str, apiserver: ApiServer, tmp_path: Path, cluster_wide: bool
) -> None:
    world = World(client, namespace)
    setup = options(world, cluster_wide=cluster_wide)
    async with OperatorProcess(apiserver.kubeconfig, setup, tmp_path / "log") as operator:
        await operator.says("is its CustomResourceDefinition installed?")
        await world.install()
        await operator.ready()
        await world.make("w")
        await world.made("w", 1)


@pytest.mark.parametrize("cluster_wide", [True, False])
async def test_a_kind_taken_away_and_defined_again_is_served_again(
    world: World, apiserver: ApiServer, tmp_path: Path, cluster_wide: bool
) -> None:
    await world.make("w")
    setup = options(world, cluster_wide=cluster_wide)
    async with OperatorProcess(apiserver.kubeconfig, setup, tmp_path / "log") as operator:
        await world.made("w", 1)
        await world.uninstall()
        await eventually(operator.forgot(world.widget), "the operator to notice that all Widgets are gone")
        await world.install()
        await eventually(world.is_served, "the API server to serve the kind again")
        for name in ("first", "second"):
            await world.make(name)
            await world.made(name, 1)
