"""Whatever arrives over HTTP is answered, or refused by name: never a 500, never a lost slot."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .triton import FakeTriton
from .world import MODEL, NAME, backend, front, says, write_model

STATUSES = {200, 400, 404, 413, 422, 429}
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12)
values = scalars | st.lists(scalars, max_size=4) | st.dictionaries(st.text(max_size=6), scalars, max_size=3)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "x"]) | scalars, "content": values}
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "model": st.just(NAME) | scalars,
        "messages": st.lists(message, max_size=3) | values,
        "prompt": values,
        "temperature": values,
        "top_p": values,
        "max_tokens": values,
        "n": st.integers(0, 3) | values,
        "seed": values,
        "stop": values,
        "stream": st.booleans() | values,
        "stream_options": values,
        "logprobs": values,
        "stop_token_ids": values,
        "echo": values,
        "tools": values,
        "response_format": values,
        "whatever": values,
    },
)
bodies = (
    st.binary(max_size=200)
    | fields.map(
        lambda body: json.dumps({"model": NAME, "messages": [{"role": "user", "content": "x"}], **body}).encode()
    )
    | fields.map(lambda body: json.dumps({"model": NAME, "prompt": "x", **body}).encode())
)
paths = st.sampled_from(["/v1/chat/completions", "/v1/completions", "/tokenize"])


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(paths, bodies), min_size=10, max_size=20))
def test_no_body_ends_in_a_500_or_keeps_a_slot(tmp_path_factory: Any, asked: list[tuple[str, bytes]]) -> None:
    asyncio.run(_ask(tmp_path_factory.mktemp("fuzz"), asked))


async def _ask(directory: Path, asked: list[tuple[str, bytes]]) -> None:
    text = write_model(directory / MODEL)
    async with FakeTriton(says(text, "yes")) as triton, front(directory, backend(triton)) as served:
        for path, body in asked:
            answer = await served.post(path, body)
            assert answer.status_code in STATUSES, (path, body, answer.text)
            if answer.status_code != 200:
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert served.service.admission.in_flight == 0
        assert served.service.dispatcher.loads == {}
