"""No two targets share a Service, whatever they and their LLMEngines are called."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from trtllm_operator.serving.names import service_name

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
ENGINES = st.text("ab01-", min_size=1, max_size=36).filter(LABEL.fullmatch)
TARGETS = st.text("ab01-", min_size=1, max_size=33).filter(re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?").fullmatch)
PAIRS = st.tuples(ENGINES, TARGETS)


@pytest.mark.parametrize(
    ("engine", "target", "name"),
    [
        ("smollm2", "a100", "smollm2-a100"),
        ("llama-3-8b", "h100", "llama-3-8b-h100"),
        ("smol-fp8", "h100", "smol-fp8-h100"),
        ("smol", "fp8-h100", "smol-fp8-h100-82ae79cb"),
        ("any", "gpu-h100-80gb-hbm3", "any-gpu-h100-80gb-hbm3-7f768f49"),
        ("smol", "0123abcd", "smol-0123abcd-25266a99"),
    ],
)
def test_a_name_is_as_short_as_it_can_be(engine: str, target: str, name: str) -> None:
    """Clients write it down: if this fails, they would have to write it anew."""
    assert service_name(engine, target) == name


@given(PAIRS, PAIRS)
@example(("smol", "fp8-h100"), ("smol-fp8", "h100"))
@example(("web", "x-h100"), ("web-x", "h100"))
@settings(max_examples=500)
def test_two_pairs_never_mean_the_same(one: tuple[str, str], other: tuple[str, str]) -> None:
    assume(one != other)
    assert service_name(*one) != service_name(*other)


@given(ENGINES, ENGINES, TARGETS)
@settings(max_examples=500)
def test_however_the_same_words_are_cut(first: str, second: str, third: str) -> None:
    pairs = {(first, f"{second}-{third}"), (f"{first}-{second}", third)}
    assert len({service_name(*pair) for pair in pairs}) == len(pairs)


@given(PAIRS, PAIRS)
@settings(max_examples=300)
def test_no_name_without_a_hash_looks_like_one_with_it(one: tuple[str, str], other: tuple[str, str]) -> None:
    """A target can be called like the hash of another pair."""
    hashed = service_name(*one)
    engine, _, digest = hashed.rpartition("-")
    assume((engine, digest) != one)
    assert service_name(engine, digest) != hashed


@given(PAIRS)
@settings(max_examples=300)
def test_every_name_is_one_that_the_api_server_takes(pair: tuple[str, str]) -> None:
    name = service_name(*pair)
    assert LABEL.fullmatch(name)
    assert len(name) <= 63
