"""The endpoint as the official client sees it, on real sockets, over a server that speaks Triton's protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from trtllm_operator.front.backends import Limits
from trtllm_operator.front.model_files import ModelText

from .triton import FakeTriton
from .world import END, MODEL, NAME, Front, backend, front, says, write_model

ASK: Any = [{"role": "user", "content": "Where?"}]
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


@pytest.fixture
def text(tmp_path: Path) -> ModelText:
    return write_model(tmp_path / MODEL)


@pytest.fixture
async def triton(text: ModelText) -> AsyncIterator[FakeTriton]:
    async with FakeTriton(says(text, "In Paris.")) as server:
        yield server


@pytest.fixture
async def served(tmp_path: Path, triton: FakeTriton) -> AsyncIterator[Front]:
    async with front(tmp_path, backend(triton)) as running:
        yield running


async def test_a_chat_is_answered_with_exact_counts(served: Front, triton: FakeTriton, text: ModelText) -> None:
    answer = await served.openai.chat.completions.create(model=NAME, messages=ASK, temperature=0)
    assert answer.choices[0].message.content == "In Paris."
    assert answer.choices[0].finish_reason == "stop"
    prompt = "<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n"
    assert list(triton.asked[0].prompt) == text.encode(prompt, special_tokens=False)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(triton.asked[0].prompt)
    assert answer.usage.completion_tokens == len("In Paris.")


async def test_a_stream_is_the_same_answer_piece_by_piece(served: Front) -> None:
    stream = await served.openai.chat.completions.create(
        model=NAME,
        messages=ASK,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "In Paris."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len("In Paris.")


async def test_half_a_character_is_never_sent(tmp_path: Path, text: ModelText) -> None:
    async with (
        FakeTriton(says(text, "Zürich 🙂!")) as triton,
        front(tmp_path, backend(triton)) as served,
    ):
        stream = await served.openai.completions.create(model=NAME, prompt="x", max_tokens=40, stream=True)
        pieces = [chunk.choices[0].text async for chunk in stream]
    assert "".join(pieces) == "Zürich 🙂!"
    assert not any("\ufffd" in piece for piece in pieces)


async def test_a_character_that_the_limit_cuts_ends_as_the_replacement_character(
    tmp_path: Path, text: ModelText
) -> None:
    async with FakeTriton(says(text, "é")) as triton, front(tmp_path, backend(triton)) as served:
        answer = await served.openai.completions.create(model=NAME, prompt="x", max_tokens=1)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("\ufffd", "length")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_text_is_never_shown_and_frees_the_server(served: Front, triton: FakeTriton, stream: bool) -> None:
    triton.hold = asyncio.Event()
    triton.hold.set()
    body = {"model": NAME, "messages": ASK, "stop": ["is.", "Q"], "stream": stream}
    answer = await served.post("/v1/chat/completions", body)
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line and not line.endswith("[DONE]")]
        said = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
        reason = events[-1]["choices"][0]["finish_reason"]
    else:
        choice = answer.json()["choices"][0]
        said, reason = choice["message"]["content"], choice["finish_reason"]
    assert (said, reason) == ("In Par", "stop")
    assert served.service.dispatcher.loads == {}


async def test_max_tokens_ends_an_answer_by_its_length(served: Front) -> None:
    answer = await served.openai.chat.completions.create(model=NAME, messages=ASK, max_completion_tokens=4)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("In P", "length")


async def test_a_prompt_over_the_budgets_is_refused_with_the_numbers_before_any_server_is_asked(
    served: Front, triton: FakeTriton
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await served.openai.completions.create(model=NAME, prompt="x" * 65)
    assert refused.value.code == "context_length_exceeded"
    for number in ("65 tokens", "64", "2,048"):
        assert number in refused.value.message
    assert triton.asked == []


async def test_too_many_tokens_are_cut_to_what_fits_and_that_is_said(served: Front, triton: FakeTriton) -> None:
    answer = await served.post("/v1/completions", {"model": NAME, "prompt": "x" * 60, "max_tokens": 500})
    assert triton.asked[0].max_tokens == 96 - 60
    assert answer.headers["x-llmengine-granted-max-tokens"] == "36"
    assert answer.json()["usage"]["granted_max_tokens"] == 36


async def test_strict_max_tokens_refuses_instead(tmp_path: Path, triton: FakeTriton) -> None:
    async with front(tmp_path, backend(triton), strict_max_tokens=True) as served:
        refused = await served.post("/v1/completions", {"model": NAME, "prompt": "x" * 60, "max_tokens": 500})
    assert refused.status_code == 400
    assert "at most 36" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"temperature": 0}, {"runtime_top_k": 1}),
        ({"temperature": 0.5, "seed": 7}, {"temperature": 0.5, "runtime_top_p": 1.0, "runtime_top_k": 0, "seed": 7}),
        ({"seed": -1}, {"seed": 2**64 - 1, "temperature": 1.0}),
        ({"top_p": 0.25, "presence_penalty": 1.5}, {"runtime_top_p": 0.25, "presence_penalty": 1.5}),
        ({}, {"end_id": END}),
        ({"stop_token_ids": [65]}, {"stop_words_list": [65, 1]}),
    ],
)
async def test_sampling_in_tensorrt_llm_s_words(
    served: Front, triton: FakeTriton, given: dict[str, object], asked: dict[str, object]
) -> None:
    assert (await served.post("/v1/completions", {"model": NAME, "prompt": "x", **given})).status_code == 200
    assert {name: triton.asked[0].values.get(name) for name in asked} == asked


async def test_without_a_seed_no_two_answers_are_sampled_alike(served: Front, triton: FakeTriton) -> None:
    for _ in range(2):
        await served.post("/v1/completions", {"model": NAME, "prompt": "x"})
    assert triton.asked[0].values["seed"] != triton.asked[1].values["seed"]


async def test_several_choices_and_prompts(served: Front) -> None:
    answer = await served.openai.completions.create(model=NAME, prompt=["a", "b"], n=2, echo=True, max_tokens=20)
    assert [c.text for c in answer.choices] == ["aIn Paris.", "aIn Paris.", "bIn Paris.", "bIn Paris."]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 4 * len("In Paris."))


async def test_log_probabilities_of_the_tokens(served: Front) -> None:
    answer = await served.openai.chat.completions.create(model=NAME, messages=ASK, logprobs=True)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(t.token, t.logprob) for t in logprobs.content] == [(c, -0.5) for c in "In Paris."]


async def test_models_and_tokenize(served: Front) -> None:
    listed = await served.openai.models.list()
    assert [m.id for m in listed.data] == [NAME]
    counted = await served.post("/tokenize", {"model": NAME, "prompt": "abc"})
    assert counted.json()["count"] == 3
    assert counted.json()["max_model_len"] == 96


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{", 400, "invalid_json", None),
        (b"[1]", 400, "invalid_json", None),
        (b"\xff\xfe", 400, "invalid_utf8", None),
        (b'{"model": "smol", "messages": [], "temperature": NaN}', 400, "invalid_json", None),
        (b"[" * 5000, 400, "invalid_json", None),
        ({"messages": ASK}, 400, "missing_required_parameter", "model"),
        ({"model": "gpt-4", "messages": ASK}, 404, "model_not_found", "model"),
        ({"model": NAME}, 400, "missing_required_parameter", "messages"),
        ({"model": NAME, "messages": []}, 400, "invalid_value", "messages"),
        ({"model": NAME, "messages": ASK, "temperature": "warm"}, 400, "invalid_value", "temperature"),
        ({"model": NAME, "messages": ASK, "temperature": 3}, 400, "invalid_value", "temperature"),
        ({"model": NAME, "messages": ASK, "temperature": True}, 400, "invalid_value", "temperature"),
        ({"model": NAME, "messages": ASK, "max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({"model": NAME, "messages": ASK, "max_tokens": 1.5}, 400, "invalid_value", "max_tokens"),
        ({"model": NAME, "messages": ASK, "n": 9}, 400, "invalid_value", "n"),
        ({"model": NAME, "messages": ASK, "tools": [{"type": "function"}]}, 400, "unsupported_parameter", "tools"),
        ({"model": NAME, "messages": ASK, "top_logprobs": 3}, 400, "unsupported_parameter", "top_logprobs"),
        ({"model": NAME, "messages": ASK, "temprature": 1}, 400, "unknown_parameter", "temprature"),
        (
            {"model": NAME, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "invalid_value",
            None,
        ),
    ],
)
async def test_a_bad_request_is_refused_at_once_and_the_field_is_named(
    served: Front, triton: FakeTriton, body: object, status: int, code: str, param: str | None
) -> None:
    refused = await served.post("/v1/chat/completions", body)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (status, code), error["message"]
    if param:
        assert error["param"] == param
    assert triton.asked == []


async def test_a_body_over_the_limit_is_refused_unread(tmp_path: Path, triton: FakeTriton) -> None:
    async with front(tmp_path, backend(triton), max_body_bytes=1000) as served:
        refused = await served.post("/v1/completions", {"model": NAME, "prompt": "x" * 2000})
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")


async def test_unknown_routes_and_methods_speak_the_same_language(served: Front) -> None:
    assert (await served.http.get(served.url + "/v1/nothing")).json()["error"]["code"] == "not_found"
    wrong = await served.http.get(served.url + "/v1/completions")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_a_server_that_refuses_before_the_first_token_is_replaced_by_another(
    tmp_path: Path, text: ModelText, triton: FakeTriton
) -> None:
    async with FakeTriton(says(text, "never")) as stopping:
        stopping.refusal = "Server is stopping, scheduler for model has stopped accepting new inference requests"
        async with front(tmp_path, backend(stopping, "a100"), backend(triton)) as served:
            for _ in range(4):
                answer = await served.openai.completions.create(model=NAME, prompt="x")
                assert answer.choices[0].text == "In Paris."
        assert len(stopping.asked) <= 1, "a server that has just refused is asked again"


async def test_a_server_that_is_gone_is_replaced_by_another(
    tmp_path: Path, text: ModelText, triton: FakeTriton
) -> None:
    async with FakeTriton(says(text, "never")) as gone:
        await gone.stop()
        async with front(tmp_path, backend(gone, "a100"), backend(triton)) as served:
            answer = await served.openai.completions.create(model=NAME, prompt="x")
    assert answer.choices[0].text == "In Paris."


async def test_a_stream_that_breaks_ends_with_an_error_and_never_with_done(served: Front, triton: FakeTriton) -> None:
    triton.breaks_after = 3
    answer = await served.post("/v1/chat/completions", {"model": NAME, "messages": ASK, "stream": True})
    events = [line for line in answer.text.split("\n\n") if line]
    assert "[DONE]" not in answer.text
    error = json.loads(events[-1][6:])["error"]
    assert error["code"] == "server_failed"
    assert "the GPU fell off the bus" in error["message"]
    stream = await served.openai.chat.completions.create(model=NAME, messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="fell off the bus"):
        [chunk async for chunk in stream]


async def test_no_server_is_503_with_the_llmengine_s_reason(
    tmp_path: Path, text: ModelText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtllm_operator.front.dispatch.NO_SERVER_SECONDS", 0.05)
    async with front(tmp_path) as served:
        refused = await served.post("/v1/chat/completions", {"model": NAME, "messages": ASK})
    assert refused.status_code == 503
    assert "the engine is being built" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) >= 1


async def test_a_client_that_goes_away_frees_its_place_at_the_server(
    tmp_path: Path, text: ModelText, triton: FakeTriton
) -> None:
    triton.hold = asyncio.Event()
    for stream in (False, True):
        async with front(tmp_path, backend(triton)) as served:
            body = json.dumps({"model": NAME, "messages": ASK, "stream": stream}).encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await until(lambda: triton.open_streams == 1)
            writer.close()
            await until(lambda: triton.open_streams == 0)
            await until(lambda: served.service.admission.in_flight == 0)
            del reader
            assert (await served.outcomes()).get("client_gone") == 1


async def test_a_short_and_a_long_profile(tmp_path: Path, text: ModelText, triton: FakeTriton) -> None:
    async with FakeTriton(says(text, "long")) as long:
        wide = backend(long, "long", Limits(4, 1024, 2048))
        async with front(tmp_path, backend(triton, "short"), wide) as served:
            short_answer = await served.openai.completions.create(model=NAME, prompt="x" * 10)
            long_answer = await served.openai.completions.create(model=NAME, prompt="x" * 500)
    assert (short_answer.choices[0].text, long_answer.choices[0].text) == ("In Paris.", "long")


async def test_a_caller_over_its_limit_is_refused_and_others_are_untouched(tmp_path: Path, triton: FakeTriton) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "team-a").write_text("key-a\n")
    (keys / "team-b").write_text("key-b")
    limits = {"requests_per_minute": 2}
    async with front(tmp_path, backend(triton), api_keys_directory=keys, limits=limits) as served:

        async def ask(key: str) -> int:
            body = {"model": NAME, "prompt": "x"}
            return (await served.post("/v1/completions", body, authorization=f"Bearer {key}")).status_code

        assert [await ask("key-a") for _ in range(3)] == [200, 200, 429]
        assert await ask("key-b") == 200
        assert await ask("key-c") == 401
        assert (await served.post("/v1/completions", {"model": NAME, "prompt": "x"})).status_code == 401


async def test_more_than_there_is_room_for_waits_and_then_is_refused_by_the_numbers(
    tmp_path: Path, text: ModelText, triton: FakeTriton
) -> None:
    triton.hold = asyncio.Event()
    limits = {"max_queued_tokens": 60, "queue_timeout_seconds": 0.2}
    narrow = backend(triton, limits=Limits(1, 64, 96))
    async with front(tmp_path, narrow, limits=limits) as served:
        body = {"model": NAME, "prompt": "x" * 10, "max_tokens": 20}
        first = asyncio.create_task(served.post("/v1/completions", body))
        await until(lambda: served.service.admission.in_flight == 1)
        second = asyncio.create_task(served.post("/v1/completions", body))
        third = asyncio.create_task(served.post("/v1/completions", body))
        await until(lambda: served.service.admission.queued == 2)
        fourth = await served.post("/v1/completions", body)
        assert (fourth.status_code, fourth.json()["error"]["code"]) == (429, "queue_full")
        assert "retry-after" in fourth.headers
        for late in (await second, await third):
            assert (late.status_code, late.json()["error"]["code"]) == (503, "queue_timeout")
        assert len(triton.asked) == 1, "a request that was refused reached a server"
        triton.hold.set()
        assert (await first).status_code == 200


async def until(condition: object, seconds: float = 10) -> None:
    """Wait until the condition holds."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is another process's state
            await asyncio.sleep(0.005)
