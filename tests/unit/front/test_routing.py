"""Which server gets a request, from loads and limits alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.front.backends import Backend, Limits, Load, Routes, choose, fitting

SHORT, LONG = Limits(8, 512, 1024), Limits(2, 4096, 8192)


def server(address: str, limits: Limits = SHORT, weight: int = 1) -> Backend:
    return Backend(address, "t", "r", "m", limits, weight)


def chosen(*backends: Backend, prompt: int = 10, output: int = 10, **loads: tuple[int, int]) -> str | None:
    found = choose(
        Routes(backends),
        {name: Load(*load) for name, load in loads.items()},
        prompt_tokens=prompt,
        output_tokens=output,
    )
    return found.address if found else None


def test_the_smallest_engine_that_fits_gets_it() -> None:
    assert chosen(server("a", LONG), server("b", SHORT)) == "b"
    assert chosen(server("a", LONG), server("b", SHORT), prompt=600) == "a"
    assert chosen(server("a", LONG), server("b", SHORT), prompt=500, output=600) == "a"


def test_of_its_servers_the_one_with_the_fewest_outstanding_tokens() -> None:
    assert chosen(server("a"), server("b"), a=(1, 900), b=(5, 100)) == "b"


def test_weights_are_shares() -> None:
    assert chosen(server("a", weight=3), server("b"), a=(1, 200), b=(1, 100)) == "a"


def test_a_full_server_gives_way_to_a_larger_engine_that_is_not() -> None:
    assert chosen(server("short"), server("long", LONG), short=(8, 10)) == "long"
    assert chosen(server("short"), server("long", LONG), short=(8, 10), long=(2, 9000)) == "short"


def test_what_fits_nowhere_goes_nowhere() -> None:
    assert chosen(server("a"), prompt=513) is None
    assert chosen(prompt=1) is None


@pytest.mark.parametrize(
    ("prompt", "output", "limits"),
    [(10, 100, SHORT), (10, 2000, LONG), (600, 1, LONG), (10, None, SHORT), (10, 9000, LONG), (5000, 1, None)],
)
def test_the_limits_under_which_a_request_gets_the_most(prompt: int, output: int | None, limits: Limits | None) -> None:
    assert fitting([LONG, SHORT], prompt, output) == limits


lengths = st.integers(1, 10_000)
profiles = st.builds(Limits, st.integers(1, 64), lengths, lengths)


@given(st.lists(st.builds(server, st.text("abcdef", min_size=1), profiles), max_size=8), lengths, lengths)
def test_no_server_ever_gets_more_than_its_limits(backends: list[Backend], prompt: int, output: int) -> None:
    found = choose(Routes(tuple(backends)), {}, prompt_tokens=prompt, output_tokens=output)
    if found is None:
        assert all(prompt > b.limits.max_input_len or prompt + output > b.limits.max_seq_len for b in backends), (
            "a server would have taken it"
        )
    else:
        assert prompt <= found.limits.max_input_len
        assert prompt + output <= found.limits.max_seq_len
