"""In-flight batching: sharing, limits, queueing, cancellation."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trtllm_standin.engine_file import Plan
from trtllm_standin.kv_cache import BlockPool
from trtllm_standin.llama import Llama, Segment
from trtllm_standin.sampling import SamplingParameters
from trtllm_standin.scheduler import Limits, Output, Request, RequestRefusedError, Scheduler

SECONDS = 20.0
LIMITS = Limits(
    max_batch_size=3,
    max_num_tokens=16,
    max_seq_len=64,
    max_input_len=64,
    max_queue_size=0,
    packed_context=True,
    chunked_context=False,
)


@dataclass
class Client:
    """Collects what a request gives, and lets a test hold the scheduler's thread at its outputs."""

    tokens: list[int] = field(default_factory=list)
    outputs: int = 0
    error: str | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    started: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event | None = None
    ended_at_seconds: float = 0.0
    cancelled: bool = False

    def request(self, prompt: list[int], max_new_tokens: int, **options: Any) -> Request:
        return Request(
            np.array(prompt, np.int64),
            max_new_tokens,
            self.on_output,
            self.on_error,
            is_cancelled=lambda: self.cancelled,
            **options,
        )

    def on_output(self, output: Output) -> None:
        self.tokens += output.tokens
        self.outputs += 1
        self.started.set()
        if output.final:
            self.ended_at_seconds = time.monotonic()
            self.ended.set()
        elif self.gate:
            assert self.gate.wait(SECONDS)

    def on_error(self, message: str) -> None:
        self.error = message
        self.ended.set()

    def wait(self) -> list[int]:
        assert self.ended.wait(SECONDS), "the request did not end"
        assert self.error is None
        return self.tokens


@pytest.fixture
def model(engine: Callable[..., Path]) -> Llama:
    directory = engine(tie_word_embeddings=False, seed=3)
    config = json.loads((directory / "config.json").read_text())["pretrained_config"]
    return Llama(config, [Plan(directory / "rank0.engine").tensors()], 64)


Start = Callable[..., Scheduler]


@pytest.fixture
def start(model: Llama) -> Iterator[Start]:
    running: list[Scheduler] = []

    def make(pool: BlockPool | None = None, **limits: Any) -> Scheduler:
        settings = Limits(**{**LIMITS.__dict__, **limits})
        running.append(Scheduler(model, settings, pool or BlockPool(100, 8), cancel_check_seconds=0.0))
        return running[-1]

    yield make
    for scheduler in running:
        scheduler.stop()


def greedy(model: Llama, prompt: list[int], count: int) -> list[int]:
    """One sequence alone, without the scheduler."""
    cache, tokens = model.new_cache(), list(prompt)
    logits = model.forward([Segment(np.array(tokens), cache)])
    result = []
    for _ in range(count):
        result.append(int(logits[0].argmax()))
        logits = model.forward([Segment(np.array(result[-1:]), cache)])
    return result


def test_concurrent_requests_share_steps_and_do_not_change_each_other(model: Llama, start: Start) -> None:
    scheduler = start()
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10], [11, 12]]
    clients = [Client() for _ in prompts]
    for client, prompt in zip(clients, prompts, strict=True):
        scheduler.submit(client.request(prompt, 12))
    for client, prompt in zip(clients, prompts, strict=True):
        assert client.wait() == greedy(model, prompt, 12)
    steps = scheduler.statistics().iteration
    assert steps < 5 * 12, f"{steps} steps for five requests of 12 tokens: nothing was batched"


def test_a_late_request_joins_a_running_one(start: Start) -> None:
    scheduler = start()
    first, second = Client(gate=threading.Event()), Client()
    scheduler.submit(first.request([1, 2], 40))
    assert first.started.wait(SECONDS)
    scheduler.submit(second.request([3], 2))
    assert first.gate
    first.gate.set()
    second.wait()
    first.wait()
    assert second.ended_at_seconds < first.ended_at_seconds, "the short request waited for the long one"


def test_streaming_sends_each_token_and_otherwise_all_at_the_end(start: Start) -> None:
    scheduler = start()
    stream, whole = Client(), Client()
    scheduler.submit(stream.request([5, 6], 5))
    scheduler.submit(whole.request([5, 6], 5, streaming=False))
    assert stream.wait() == whole.wait()
    assert (stream.outputs, whole.outputs) == (5, 1)


def test_the_end_token_ends_and_is_not_sent(model: Llama, start: Start) -> None:
    expected = greedy(model, [1, 2, 3], 12)
    end = expected[3]
    client = Client()
    start().submit(client.request([1, 2, 3], 12, end_id=end))
    assert client.wait() == expected[: expected.index(end)]


def test_a_stop_word_ends_and_is_sent(model: Llama, start: Start) -> None:
    expected = greedy(model, [1, 2, 3], 12)
    client = Client()
    start().submit(client.request([1, 2, 3], 12, stop_words=(tuple(expected[4:6]),)))
    assert client.wait() == expected[:6]


@pytest.mark.parametrize(
    ("prompt", "count", "message"),
    [
        (17, 4, r"Prompt length \(17\) exceeds maximum input length \(16\)\. Set log level to info"),
        (0, 4, "Input token ids are empty"),
        (3, 0, "mMaxTokens > 0"),
    ],
)
def test_requests_beyond_the_limits_are_refused(start: Start, prompt: int, count: int, message: str) -> None:
    with pytest.raises(RequestRefusedError, match=message):
        start().submit(Client().request([1] * prompt, count))


def test_tokens_outside_the_vocabulary_are_refused(start: Start) -> None:
    with pytest.raises(RequestRefusedError, match="not within the vocabulary of 50"):
        start().submit(Client().request([50], 4))


def test_too_many_output_tokens_are_clipped_with_a_warning(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    client = Client()
    start().submit(client.request([1] * 10, 500))
    assert len(client.wait()) == 54
    assert "Number of requested output tokens is changed to (54)." in capsys.readouterr().err


def test_a_long_prompt_is_processed_in_chunks(model: Llama, start: Start) -> None:
    prompt = list(range(40))
    client = Client()
    start(chunked_context=True).submit(client.request(prompt, 6))
    assert client.wait() == greedy(model, prompt, 6)


def test_a_full_queue_refuses(start: Start) -> None:
    scheduler = start(max_batch_size=1, max_queue_size=1)
    running = Client(gate=threading.Event())
    scheduler.submit(running.request([1], 30))
    assert running.started.wait(SECONDS)
    waiting = Client()
    scheduler.submit(waiting.request([2], 2))
    with pytest.raises(RequestRefusedError, match="Exceeds maximum queue size"):
        scheduler.submit(Client().request([3], 2))
    now = scheduler.statistics()
    assert (now.active, now.scheduled) == (2, 1)
    assert running.gate
    running.gate.set()
    waiting.wait()


def test_a_request_starts_only_when_its_whole_cache_fits(start: Start) -> None:
    """8 blocks of 8 tokens: the first request may need 5 of them, so the second, which may need 4, waits for it."""
    pool = BlockPool(8, 8)
    scheduler = start(pool)
    first, second = Client(gate=threading.Event()), Client()
    scheduler.submit(first.request([1], 39))
    assert first.started.wait(SECONDS)
    scheduler.submit(second.request([2], 31))
    now = scheduler.statistics()
    assert (now.scheduled, now.active, now.used_blocks) == (1, 2, 5)
    assert first.gate
    first.gate.set()
    first.wait()
    second.wait()
    assert pool.used_blocks == 0, "all blocks are given back"


def test_cancelling_frees_the_place_and_the_blocks(start: Start) -> None:
    pool = BlockPool(100, 8)
    scheduler = start(pool, max_batch_size=1)
    running, waiting = Client(gate=threading.Event()), Client()
    scheduler.submit(running.request([1], 60))
    assert running.started.wait(SECONDS)
    scheduler.submit(waiting.request([2], 2))
    waiting.cancelled = running.cancelled = True
    assert running.gate
    running.gate.set()
    assert running.ended.wait(SECONDS)
    assert waiting.ended.wait(SECONDS)
    assert len(running.tokens) < 60
    assert waiting.tokens == []
    deadline = time.monotonic() + SECONDS
    while scheduler.statistics().active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pool.used_blocks == 0


def test_one_failing_step_does_not_end_the_service(model: Llama, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, real = start(), model.forward

    def broken(*_: Any) -> None:
        monkeypatch.setattr(model, "forward", real)
        raise MemoryError("no room for keys")

    monkeypatch.setattr(model, "forward", broken)
    failing, healthy = Client(), Client()
    scheduler.submit(failing.request([1], 4))
    assert failing.ended.wait(SECONDS)
    assert "no room for keys" in str(failing.error)
    scheduler.submit(healthy.request([1], 4))
    assert len(healthy.wait()) == 4


def test_stopping_fails_what_is_left(start: Start) -> None:
    scheduler = start(max_batch_size=1)
    running, waiting = Client(), Client()
    scheduler.submit(running.request([1], 60))
    scheduler.submit(waiting.request([2], 60))
    scheduler.stop()
    assert waiting.ended.wait(SECONDS)
    assert waiting.error == "Request was cancelled: the model is being unloaded"


def test_sampling_repeats_with_its_seed_and_differs_with_another(start: Start) -> None:
    scheduler = start()

    def sample(seed: int) -> list[int]:
        client = Client()
        parameters = SamplingParameters(temperature=2.0, top_k=40, seed=seed)
        scheduler.submit(client.request([1, 2], 20, sampling=parameters))
        return client.wait()

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)
