"""The endpoint over the real Triton server: its answers are those of Triton's own ensemble, token for token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from testbed.container import Container
from testbed.images.build import ensure_model
from testbed.images.cache import Cache, cache_directory
from testbed.progress import PROGRESS
from testbed.tests.integration.toolchain.conftest import H100, LIMITS, BuildEngine
from testbed.triton import ANSWER, Server, fill_repository, repository_values, serving
from tests.unit.front.world import MODEL, NAME, Front, front
from trtllm_operator.front.backends import Backend, Limits
from trtllm_operator.front.model_files import ModelText, read_model

QUESTIONS = (
    "What is the capital of France?",
    "Write the word for 'hello' in Japanese, with its characters.",
    "List three colors, each with an emoji.",
    "Repeat after me: größer, naïve, 日本.",
)
TOKENS = 32


def ask(question: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"model": NAME, "messages": messages, "temperature": 0, "max_tokens": TOKENS, **more}


def rendered(text: ModelText, question: str) -> str:
    assert text.chat_template is not None
    return text.chat_template.render([{"role": "user", "content": question}])


async def streamed(served: Front, question: str) -> str:
    stream = await served.openai.chat.completions.create(**ask(question), stream=True)
    return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of models, as the endpoint's Pod has it."""
    directory = tmp_path_factory.mktemp("models")
    (directory / MODEL).symlink_to(ensure_model(Cache(cache_directory()), PROGRESS))
    return directory


def test_the_endpoint_over_a_real_server(
    container: Container, work: Path, build_engine: BuildEngine, models: Path
) -> None:
    engine = build_engine("front")
    fill_repository(container, work / "front-repository", repository_values(engine))
    limits = Limits(LIMITS["max_batch_size"], LIMITS["max_input_len"] - 1, LIMITS["max_seq_len"])
    with serving(container, work / "front-repository", [H100]) as server:
        backend = Backend(f"127.0.0.1:{server.grpc}", "h100", "revision", MODEL, limits)
        asyncio.run(_all_of_it(server, backend, models))


async def _all_of_it(server: Server, backend: Backend, models: Path) -> None:
    text = read_model(models / MODEL)
    async with front(models, backend, seconds=280, request_seconds=200) as served:
        await _answers_are_those_of_the_ensemble(server, served, text)
        await _streams_side_by_side_are_each_in_order(served)
        await _a_client_that_leaves_frees_the_place(server, served)
        await _limits_are_kept_before_the_server_is_asked(server, served)
        await _a_seed_repeats_an_answer(served)


async def _answers_are_those_of_the_ensemble(server: Server, served: Front, text: ModelText) -> None:
    for question in QUESTIONS:
        expected = await asyncio.to_thread(server.generate, rendered(text, question), TOKENS)
        answer = await served.openai.chat.completions.create(**ask(question))
        assert answer.choices[0].message.content == expected, question
        assert await streamed(served, question) == expected, question
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == len(text.encode(rendered(text, question), special_tokens=False))
        if answer.choices[0].finish_reason == "stop":
            assert answer.usage.completion_tokens == len(text.encode(expected, special_tokens=False))
        else:
            assert answer.usage.completion_tokens == TOKENS
    assert (await served.openai.chat.completions.create(**ask(QUESTIONS[0]))).choices[0].message.content == ANSWER


async def _streams_side_by_side_are_each_in_order(served: Front) -> None:
    alone = {question: await streamed(served, question) for question in QUESTIONS}
    asked = [question for question in QUESTIONS for _ in range(4)]
    together = await asyncio.gather(*(streamed(served, question) for question in asked))
    assert list(together) == [alone[question] for question in asked]


async def _a_client_that_leaves_frees_the_place(server: Server, served: Front) -> None:
    stream = await served.openai.completions.create(
        model=NAME, prompt="Once upon a time", max_tokens=400, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        break
    assert server.gauge("nv_trt_llm_request_metrics", "active") == 1
    await stream.close()
    await asyncio.to_thread(server.wait_for_gauge, "nv_trt_llm_request_metrics", "active", 0)


async def _limits_are_kept_before_the_server_is_asked(server: Server, served: Front) -> None:
    before = server.log.read_text()
    refused = await served.post("/v1/completions", {"model": NAME, "prompt": "word " * 600})
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    cut = await served.post("/v1/completions", {"model": NAME, "prompt": "word " * 500, "max_tokens": 200})
    assert int(cut.headers["x-llmengine-granted-max-tokens"]) <= 12
    assert "is changed to" not in server.log.read_text().removeprefix(before), "the server had to cut it itself"


async def _a_seed_repeats_an_answer(served: Front) -> None:
    async def sampled(seed: int) -> str:
        body = ask("Tell me a story.", temperature=1.2, seed=seed, max_tokens=24)
        answer: str = (await served.openai.chat.completions.create(**body)).choices[0].message.content
        return answer

    first = await sampled(1)
    assert await sampled(1) == first
    assert await sampled(2) != first
