"""The log of what runs and the Events of what does not: asked seldom, and never needed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from trtllm_operator.artifacts.plan import Observations, Snapshot, plan
from trtllm_operator.engines.plan import plan as engine_plan
from trtllm_operator.engines.snapshot import EngineSnapshot
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import POD
from trtllm_operator.objects import REVISION, label
from trtllm_operator.reconcile.observe import observe_engine
from trtllm_operator.reconcile.reader import Reader
from trtllm_operator.reconcile.watches import LLM_ENGINE
from trtllm_operator.serving.kv_cache import difference

from ..artifacts.test_plan import POLICY, snapshot
from ..artifacts.world import CONFIG, RUNNER, complete, ended, job, pod, running, stamp
from ..engines.simulation import CATALOG, engine
from ..engines.simulation import World as SimulatedWorld


@dataclass
class Api:
    """What the reader asks, and what it is answered."""

    log: str | ApiError = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def logs(self, namespace: str, name: str, container: str, **limits: int) -> str:
        self.asked.append(f"log of {container} in {name}")
        if isinstance(self.log, ApiError):
            raise self.log
        return self.log

    async def list(self, _resource: object, **selection: str) -> list[dict[str, Any]]:
        self.asked.append(selection["field_selector"])
        return self.events


class World:
    def __init__(self, **answers: Any) -> None:
        self.api, self.seconds = Api(**answers), 0.0
        self.reader = Reader(cast("Client", self.api), clock=lambda: self.seconds)

    def listen(self, seen: Snapshot) -> Observations:
        return asyncio.run(self.reader.read_attempt(seen)).observations


def running_build() -> Snapshot:
    busy = pod(1, initContainerStatuses=[ended("stage", 0), running("build")])
    busy["metadata"] |= {"uid": "uid-pod-1", "namespace": "team"}
    return snapshot(jobs=(job(1, POLICY),), pods=(busy,))


def without_pod(seconds_ago: int) -> Snapshot:
    lonely = job(1, POLICY)
    lonely["metadata"]["creationTimestamp"] = stamp(seconds_ago)
    return snapshot(jobs=(lonely,))


def test_the_log_of_what_runs_is_read_at_most_every_thirty_seconds() -> None:
    world = World(log="first")
    assert world.listen(running_build()).log == "first"
    world.api.log, world.seconds = "second", 29
    assert world.listen(running_build()).log == "first", "what was read stands until the next look"
    world.seconds = 30
    assert world.listen(running_build()).log == "second"
    assert world.api.asked == ["log of build in engine-1-1-abc"] * 2


def test_a_container_that_has_just_begun_has_nothing_to_say_yet_and_the_next_is_read_anew() -> None:
    world = World(log="stage")
    begun = running_build()
    begun.pods[0]["status"]["initContainerStatuses"][1]["state"]["running"]["startedAt"] = stamp(2)
    assert world.listen(begun) == Observations()
    assert plan(begun).again_seconds == 5
    assert world.api.asked == []
    begun.pods[0]["status"]["initContainerStatuses"][1]["state"]["running"]["startedAt"] = stamp(6)
    world.listen(begun)
    begun.pods[0]["status"]["initContainerStatuses"] = [ended("stage", 0), ended("build", 0)]
    begun.pods[0]["status"]["containerStatuses"] = [running("publish")]
    world.seconds = 1
    world.listen(begun)
    assert world.api.asked == ["log of build in engine-1-1-abc", "log of publish in engine-1-1-abc"]


def test_what_has_ended_is_not_read() -> None:
    world = World()
    world.listen(snapshot(jobs=(job(1, POLICY, complete()),)))
    world.listen(snapshot())
    assert world.api.asked == []


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_log_that_cannot_be_read_is_no_failure(status: int) -> None:
    world = World(log=ApiError(status, "BadRequest", "container is waiting to start", call="logs"))
    assert world.listen(running_build()) == Observations()


@pytest.mark.parametrize("status", [0, 500, 502, 504])
def test_a_kubelet_that_cannot_be_asked_keeps_no_build_from_being_looked_at(status: int) -> None:
    world = World(log="step 7 of 9")
    world.listen(running_build())
    world.api.log, world.seconds = ApiError(status, "", "dial tcp 10.0.0.7:10250: i/o timeout", call="logs"), 30
    assert world.listen(running_build()).log == "step 7 of 9", "what was said stands"
    world.seconds = 31
    world.listen(running_build())
    assert len(world.api.asked) == 2, "it is asked no more often for that"
    assert World(log=world.api.log).listen(running_build()) == Observations()


def test_an_api_server_that_asks_for_a_pause_gets_it() -> None:
    world = World(log=ApiError(429, "TooManyRequests", "slow down", call="logs"))
    with pytest.raises(ApiError):
        world.listen(running_build())


def test_a_job_without_a_pod_is_asked_why_once_it_is_late() -> None:
    world = World(
        events=[{"message": "old", "lastTimestamp": "1"}, {"message": "exceeded quota", "lastTimestamp": "2"}]
    )
    assert world.listen(without_pod(5)).job_events is None
    assert world.api.asked == []
    world.seconds = 30
    assert world.listen(without_pod(40)).job_events == "exceeded quota"
    assert world.api.asked == ["involvedObject.uid=uid-job-1,reason=FailedCreate"]


class TestServers:
    """Report C11: the share of memory for the KV cache was set, and the runtime took another."""

    LINE = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 119.52 GiB for max tokens in paged KV cache ({}).\n"

    def served(self, *, restarts: int = 0, ready: bool = True) -> EngineSnapshot:
        """Two servers of one revision, as they are seen."""
        world = SimulatedWorld()
        world.put(engine())
        world.run_everything()
        found = world.get(LLM_ENGINE, "smol")
        assert found is not None
        pods = [dict(p) for p in world.find(POD) if label(p, REVISION)]
        for one in pods:
            one["status"] = {"containerStatuses": [{"name": "triton", "ready": ready, "restartCount": restarts}]}
        seen = observe_engine(found, world.cache, catalog=CATALOG, config=CONFIG, runner=RUNNER, now=world.now)
        return replace(seen, pods=tuple(pods))

    def hear(self, world: World, seen: EngineSnapshot) -> dict[str, int]:
        return dict(asyncio.run(world.reader.read_kv_cache_tokens(seen)).kv_cache_tokens)

    def test_c11_one_server_of_each_revision_is_asked_once_a_start(self) -> None:
        world = World(log=f"loading\n{self.LINE.format(979_109)}ready")
        for _ in range(3):
            assert set(self.hear(world, self.served()).values()) == {979_109}
            world.seconds += 3600
        assert len(world.api.asked) == 2, "two generations"
        self.hear(world, self.served(restarts=1))
        assert len(world.api.asked) == 4

    def test_c11_of_several_ranks_the_smallest_pool_counts(self) -> None:
        world = World(log=self.LINE.format(2000) + self.LINE.format(1984))
        assert set(self.hear(world, self.served()).values()) == {1984}

    def test_c11_a_server_that_is_not_ready_is_not_asked(self) -> None:
        world = World(log=self.LINE.format(1))
        assert self.hear(world, self.served(ready=False)) == {}
        assert world.api.asked == []

    @pytest.mark.parametrize("log", ["nothing of the kind", ApiError(500, "InternalError", "kubelet is away")])
    def test_c11_what_cannot_be_read_is_asked_for_again_later(self, log: str | ApiError) -> None:
        world = World(log=log)
        seen = self.served()
        assert self.hear(world, seen) == {}
        assert self.hear(world, seen) == {}
        assert len(world.api.asked) == 2, "not at once"
        world.seconds += 31
        world.api.log = self.LINE.format(64)
        assert set(self.hear(world, seen).values()) == {64}

    def test_c11_a_pool_that_differs_from_the_plan_is_a_warning_of_the_target(self) -> None:
        seen = self.served()
        before = engine_plan(seen).status
        planned = {t["servedRevision"]: t["plan"]["kvCacheTokens"] for t in before["targets"]}
        as_planned = engine_plan(replace(seen, kv_cache_tokens=planned)).status
        assert [t["kvCacheTokens"] for t in as_planned["targets"]] == list(planned.values())
        assert not any(t["plan"].get("warnings") for t in as_planned["targets"])
        taken = {revision: tokens * 9 // 5 for revision, tokens in planned.items()}
        other = engine_plan(replace(seen, kv_cache_tokens=taken)).status
        for target in other["targets"]:
            (warning,) = target["plan"]["warnings"]
            found, wanted = taken[target["servedRevision"]], planned[target["servedRevision"]]
            assert f"holds {found:,} tokens where {wanted:,} were planned (+80 %)" in warning
        assert {c["type"]: c["status"] for c in other["conditions"]}["Ready"] == "True", "nothing else follows from it"
        restarted = replace(seen, engine={**seen.engine, "status": other})
        assert engine_plan(restarted).status == other, "it is remembered after a restart of the operator"


def test_c11_the_reported_numbers() -> None:
    """GH200, 132.8 GiB free after loading: half was asked for, and 119.5 GiB taken, which is the default of 0.9."""
    assert round(0.9 * 132.8, 1) == 119.5
    half, taken = (int(gib * 2**30) // 131_072 for gib in (0.5 * 132.8, 119.5))
    assert "(+80 %)" in str(difference(half, taken))
    assert difference(half, half * 6 // 5) is None
    assert "(-21 %)" in str(difference(100, 79))
    assert difference(None, 5) is None
    assert difference(5, None) is None
