"""What becomes of a key whose pass failed."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.metrics import PassMetrics
from trtllm_operator.kube.pause import Pause
from trtllm_operator.kube.queue import KeyQueue
from trtllm_operator.kube.worker import Worker


class Pass:
    def __init__(self, outcome: float | Exception | None = None) -> None:
        self.outcome = outcome

    async def __call__(self, key: str) -> float | None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Setup:
    def __init__(self, outcome: float | Exception | None) -> None:
        self.queue: KeyQueue[str] = KeyQueue(clock=lambda: 0.0, jitter=lambda: 0.0)
        self.pause = Pause()
        self.registry = CollectorRegistry()
        self.worker = Worker(
            self.queue, Pass(outcome), pause=self.pause, synced=asyncio.Event(), metrics=PassMetrics(self.registry)
        )

    async def work(self) -> None:
        self.queue.add("a")
        assert self.queue.take() == "a"
        await self.worker.work("a")

    def counted(self, result: str) -> float | None:
        return self.registry.get_sample_value("llmengine_operator_passes_total", {"result": result})


async def test_success() -> None:
    setup = Setup(None)
    await setup.work()
    assert (setup.queue.depth, setup.queue.scheduled, setup.counted("success")) == (0, 0, 1)


async def test_look_again() -> None:
    setup = Setup(5.0)
    await setup.work()
    assert (setup.queue.depth, setup.queue.scheduled, setup.counted("requeue_after")) == (0, 1, 1)


@pytest.mark.parametrize("error", [ApiError(422, "Invalid", "no"), ApiError(500, "", "once"), ValueError("a bug")])
async def test_c101_a_failure_is_tried_again_later_and_said(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup(error)
    await setup.work()
    assert (setup.queue.depth, setup.queue.scheduled, setup.counted("error")) == (0, 1, 1)
    assert "pass over a failed, next try in 0.2 s" in caplog.text


async def test_trouble_of_the_server_is_not_the_keys_fault(caplog: pytest.LogCaptureFixture) -> None:
    error = ApiError(503, "", "overloaded")
    setup = Setup(error)
    setup.pause.failed(error)
    caplog.clear()
    await setup.work()
    assert (setup.queue.depth, setup.queue.scheduled, setup.queue.retried) == (1, 0, 0)
    assert not caplog.text, "said once for everyone, not once for each key"


async def test_a_namespace_that_goes_away_is_no_failure() -> None:
    setup = Setup(ApiError(403, "Forbidden", "", causes=frozenset({"NamespaceTerminating"})))
    await setup.work()
    assert (setup.queue.depth, setup.queue.scheduled, setup.counted("success")) == (0, 0, 1)
