"""Who is let in, who waits, and who is refused with which numbers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from trtllm_operator.front.admission import WINDOW_SECONDS, Admission, AdmissionLimits
from trtllm_operator.front.errors import RequestError


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def admission(capacity: int = 2, clock: Clock | None = None, **limits: object) -> Admission:
    return Admission(AdmissionLimits(**limits), capacity=lambda: capacity, clock=clock or Clock())  # type: ignore[arg-type]


async def enter(gate: Admission, stack: AsyncExitStack, requests: int = 1, tokens: int = 10) -> None:
    await stack.enter_async_context(gate.slots("me", requests, tokens))


async def test_they_go_in_the_order_in_which_they_came() -> None:
    gate, order = admission(1), list[int]()

    async def one(number: int) -> None:
        async with gate.slots("me", 1, 10):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(one(number) for number in range(5)))
    assert order == list(range(5))
    assert (gate.in_flight, gate.queued, gate.queued_tokens) == (0, 0, 0)


async def test_calls_of_several_requests_never_wait_for_each_other() -> None:
    gate = admission(4)
    async with asyncio.timeout(5):
        await asyncio.gather(*(_hold(gate, requests=3) for _ in range(20)))
    assert gate.in_flight == 0


async def test_what_needs_more_than_there_ever_is_goes_alone() -> None:
    async with asyncio.timeout(5):
        await _hold(admission(2), requests=8)


async def test_one_that_gives_up_leaves_nothing_behind() -> None:
    gate = admission(1)
    async with AsyncExitStack() as stack:
        await enter(gate, stack)
        waiting = asyncio.create_task(_hold(gate))
        await asyncio.sleep(0)
        assert gate.queued == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (gate.queued, gate.queued_tokens, gate.in_flight) == (0, 0, 1)
    assert gate.in_flight == 0


async def test_a_full_queue_says_when_to_come_back_from_the_measured_rate() -> None:
    clock = Clock()
    gate = admission(1, clock, max_queued_tokens=100)
    clock.now += 10
    async with AsyncExitStack() as stack:
        await enter(gate, stack, tokens=500)  # 500 tokens in 10 s: 50 a second
    async with AsyncExitStack() as stack:
        await enter(gate, stack)
        waiting = asyncio.create_task(_hold(gate, tokens=100))
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused:
            await enter(gate, stack, tokens=100)
        assert refused.value.status == 429
        assert refused.value.retry_after_seconds == pytest.approx(2.0)  # 100 tokens over, at 50 a second
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_more_room_lets_those_in_who_wait() -> None:
    room = 0
    gate = Admission(AdmissionLimits(), capacity=lambda: room, clock=Clock())
    waiting = asyncio.create_task(_hold(gate))
    await asyncio.sleep(0)
    assert gate.queued == 1
    room = 1
    gate.wake()
    async with asyncio.timeout(5):
        await waiting


async def test_a_caller_s_minute_slides() -> None:
    clock = Clock()
    gate = admission(10, clock, tokens_per_minute=100)
    await _hold(gate, tokens=60)
    clock.now += 20
    with pytest.raises(RequestError) as refused:
        await _hold(gate, tokens=60)
    assert refused.value.code == "caller_limit"
    assert refused.value.retry_after_seconds == pytest.approx(WINDOW_SECONDS - 20)
    clock.now += WINDOW_SECONDS - 20
    await _hold(gate, tokens=60)


async def _hold(gate: Admission, requests: int = 1, tokens: int = 10) -> None:
    async with gate.slots("me", requests, tokens):
        await asyncio.sleep(0)
