"""The work queue: one line for keys, never two workers on one, and delays that end."""

from __future__ import annotations

import asyncio

import pytest

from trtllm_operator.kube.queue import LONGEST_RETRY_SECONDS, KeyQueue


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> KeyQueue[str]:
    return KeyQueue(clock=clock, jitter=lambda: 0.0)


def drain(queue: KeyQueue[str]) -> list[str]:
    keys = []
    while (key := queue.take()) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def test_a_key_added_many_times_is_worked_on_once(queue: KeyQueue[str]) -> None:
    for key in "aabab":
        queue.add(key)
    assert drain(queue) == ["a", "b"]


def test_no_second_worker_gets_a_key_that_is_worked_on(queue: KeyQueue[str]) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a", "what happened during the pass must lead to another one"
    queue.done("a")
    assert queue.take() is None


def test_a_busy_key_goes_behind_those_that_wait(queue: KeyQueue[str]) -> None:
    for key in "abc":
        queue.add(key)
    order = []
    for _ in range(6):
        taken = queue.take()
        assert taken is not None
        order.append(taken)
        queue.add(taken)
        queue.done(taken)
    assert order == ["a", "b", "c", "a", "b", "c"]


def test_look_again_later(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add("a")
    queue.take()
    queue.done("a", again_after=5)
    assert queue.take() is None
    clock.now += 4.9
    assert queue.take() is None
    clock.now += 0.1
    assert drain(queue) == ["a"]
    clock.now += 1000
    assert queue.take() is None


def test_the_earliest_time_counts(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    clock.now += 3
    assert drain(queue) == ["a"]
    clock.now += 100
    assert drain(queue) == [], "the other times were for the same look"


def test_a_pass_decides_anew_when_to_look_again(queue: KeyQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    queue.take()
    queue.done("a", again_after=60)
    clock.now += 10
    assert queue.take() is None
    clock.now += 50
    assert queue.take() == "a"


def test_delays_between_failures_double_up_to_thirty_seconds_and_start_anew_after_success(
    queue: KeyQueue[str], clock: Clock
) -> None:
    queue.add("a")
    delays = []
    for _ in range(12):
        assert queue.take() == "a"
        delays.append(queue.failed("a"))
        assert queue.take() is None
        clock.now += delays[-1]
    assert delays[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert delays[-1] == LONGEST_RETRY_SECONDS == 30
    assert queue.take() == "a"
    queue.done("a")
    queue.add("a")
    queue.take()
    assert queue.failed("a") == pytest.approx(0.2)


def test_an_event_does_not_wait_for_the_delay_after_a_failure(queue: KeyQueue[str]) -> None:
    queue.add("a")
    queue.take()
    queue.failed("a")
    queue.add("a")
    assert queue.take() == "a"


def test_a_postponed_key_goes_to_the_end_and_its_delay_does_not_grow(queue: KeyQueue[str]) -> None:
    for key in "ab":
        queue.add(key)
    assert queue.take() == "a"
    queue.postponed("a")
    assert queue.take() == "b"
    queue.done("b")
    assert queue.take() == "a"
    assert queue.failed("a") == pytest.approx(0.2)


async def test_a_failing_key_does_not_hold_up_others() -> None:
    queue: KeyQueue[int] = KeyQueue()
    seen: list[int] = []
    all_seen = asyncio.Event()

    async def worker() -> None:
        while True:
            key = await queue.get()
            if key == 0:
                queue.failed(key)
            else:
                seen.append(key)
                queue.done(key)
                if len(seen) == 99:
                    all_seen.set()

    workers = [asyncio.create_task(worker()) for _ in range(3)]
    for key in range(100):
        queue.add(key)
    async with asyncio.timeout(2):
        await all_seen.wait()
    for task in workers:
        task.cancel()
    assert sorted(seen) == list(range(1, 100))


async def test_a_waiting_worker_wakes_for_a_new_key_and_for_a_due_one() -> None:
    queue: KeyQueue[str] = KeyQueue()
    waiter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("later", 0.02)
    async with asyncio.timeout(2):
        assert await waiter == "later"
    waiters = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    async with asyncio.timeout(2):
        assert set(await asyncio.gather(*waiters)) == {"a", "b"}
