"""The log of what runs and the Events of what does not: asked seldom, and never needed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from trtllm_operator.build.plan import Said, Snapshot, plan
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.reconcile.reader import Reader

from ..build.test_plan import POLICY, snapshot
from ..build.world import complete, ended, job, pod, running, stamp


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

    def listen(self, seen: Snapshot) -> Said:
        return asyncio.run(self.reader.listen(seen)).said


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
    assert world.listen(begun) == Said()
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
    assert world.listen(running_build()) == Said()


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
