"""One wait for everyone when the API server is in trouble."""

from __future__ import annotations

import asyncio

import pytest

from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.pause import INTERNAL_ERRORS, LONGEST_RETRY_AFTER_SECONDS, LONGEST_SECONDS, Pause


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pause(clock: Clock) -> Pause:
    return Pause(clock=clock, jitter=lambda: 0.0)


async def call(pause: Pause, error: ApiError | None = None) -> None:
    async with pause.turn():
        if error:
            raise error


async def fail(pause: Pause, status: int, retry_after: float | None = None, message: str = "") -> None:
    with pytest.raises(ApiError):
        await call(pause, ApiError(status, "", message, retry_after=retry_after))


@pytest.mark.parametrize("status", [0, 429, 502, 503, 504])
async def test_trouble_closes_it_for_everyone(pause: Pause, status: int) -> None:
    await fail(pause, status)
    assert not pause.is_open
    assert pause.seconds_left == pytest.approx(0.5)


@pytest.mark.parametrize(("status", "is_open"), [(0, True), (500, True), (502, True), (504, True), (429, False)])
async def test_what_a_kubelet_does_not_answer_is_no_trouble_of_the_server(
    pause: Pause, status: int, is_open: bool
) -> None:
    for _ in range(INTERNAL_ERRORS):
        if pause.is_open:
            with pytest.raises(ApiError):
                async with pause.turn(relayed=True):
                    raise ApiError(status, "", "dial tcp 10.0.0.7:10250: i/o timeout")
    assert pause.is_open is is_open


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_a_refusal_is_an_answer(pause: Pause, status: int) -> None:
    await fail(pause, status)
    assert pause.is_open


async def test_one_internal_error_concerns_one_object_and_several_in_a_row_everyone(pause: Pause) -> None:
    await fail(pause, 500)
    await fail(pause, 500)
    await call(pause)
    for _ in range(INTERNAL_ERRORS - 1):
        await fail(pause, 500)
        assert pause.is_open
    await fail(pause, 500)
    assert not pause.is_open


@pytest.mark.parametrize("message", ["failed to create typed patch object: .spec.x", 'failed calling webhook "w"'])
async def test_errors_over_one_object_stop_nobody(pause: Pause, message: str) -> None:
    for _ in range(2 * INTERNAL_ERRORS):
        await fail(pause, 500, message=message)
    assert pause.is_open


async def test_the_servers_wish_is_respected_up_to_a_limit(pause: Pause) -> None:
    await fail(pause, 429, retry_after=7)
    assert pause.seconds_left == pytest.approx(7)


async def test_an_absurd_wish_is_not(pause: Pause) -> None:
    await fail(pause, 429, retry_after=86400)
    assert pause.seconds_left == LONGEST_RETRY_AFTER_SECONDS


async def test_each_failed_try_doubles_the_wait_up_to_a_limit(pause: Pause, clock: Clock) -> None:
    waits = []
    for _ in range(9):
        await fail(pause, 503)
        waits.append(pause.seconds_left)
        clock.now += waits[-1]
    assert waits[:4] == pytest.approx([0.5, 1, 2, 4])
    assert waits[-1] == LONGEST_SECONDS


async def test_calls_that_fail_together_count_once(pause: Pause) -> None:
    under_way = asyncio.Event()

    async def one() -> None:
        async with pause.turn():
            await under_way.wait()
            raise ApiError(503, "", "")

    tasks = [asyncio.create_task(one()) for _ in range(8)]
    await asyncio.sleep(0)
    under_way.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert pause.seconds_left == pytest.approx(0.5)


async def test_one_goes_first_and_the_others_when_it_came_back(pause: Pause, clock: Clock) -> None:
    await fail(pause, 503)
    inside: list[int] = []
    answer = asyncio.Event()

    async def one(number: int) -> None:
        async with pause.turn():
            inside.append(number)
            await answer.wait()

    clock.now += 1
    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert inside == [0], "only one may try while nobody knows whether the server is back"
    answer.set()
    async with asyncio.timeout(2):
        await asyncio.gather(*tasks)
    assert sorted(inside) == [0, 1, 2, 3, 4]


async def test_when_the_first_is_cancelled_another_goes(pause: Pause, clock: Clock) -> None:
    await fail(pause, 503)
    clock.now += 1

    async def hang() -> None:
        async with pause.turn():
            await asyncio.Event().wait()

    first = asyncio.create_task(hang())
    await asyncio.sleep(0)
    second = asyncio.create_task(call(pause))
    await asyncio.sleep(0)
    assert not second.done()
    first.cancel()
    async with asyncio.timeout(2):
        await second
    assert pause.is_open
