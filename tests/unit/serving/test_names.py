"""No two owners mean the same object, whatever LLMEngines and targets are called."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from trtllm_operator.serving.names import front_name, front_service_name, service_name

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
ENGINES = st.text("ab1-", min_size=1, max_size=36).filter(LABEL.fullmatch)
TARGETS = st.text("ab1-", min_size=1, max_size=33).filter(re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?").fullmatch)
OWNER = st.one_of(st.tuples(ENGINES), st.tuples(ENGINES, TARGETS))
"""An LLMEngine's front, or a target."""


def name_of(owner: tuple[str, ...], front: Callable[[str], str]) -> str:
    return front(*owner) if len(owner) == 1 else service_name(*owner)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (("smollm2",), "smollm2"),
        (("smollm2", "a100"), "smollm2--a100"),
        (("llama-3-8b", "gpu-h100-80gb-hbm3"), "llama-3-8b--gpu-h100-80gb-hbm3"),
        (("a--b",), "a--b--0c9595e7"),
        (("a--b", "h100"), "a--b--h100--519cde36"),
        (("a", "b--h100"), "a--b--h100--ae99c071"),
    ],
)
def test_the_service_of_a_known_owner_never_changes(owner: tuple[str, ...], name: str) -> None:
    """Clients write it down: if this fails, they would have to write it anew."""
    assert name_of(owner, front_service_name) == name


@pytest.mark.parametrize("front", [front_service_name, front_name])
@given(one=OWNER, other=OWNER)
@example(one=("smol", "fp8-h100"), other=("smol-fp8", "h100"))
@example(one=("web", "x-h100"), other=("web-x", "h100"))
@example(one=("a", "b"), other=("a-b",))
@example(one=("a", "b"), other=("a--b",))
@example(one=("a--b", "front"), other=("a--b",))
@example(one=("a", "front"), other=("a",))
@settings(max_examples=200)
def test_two_owners_never_mean_the_same(
    front: Callable[[str], str], one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assume(one != other)
    assert name_of(one, front) != name_of(other, front)


@given(first=ENGINES, second=ENGINES, third=TARGETS, separator=st.sampled_from(["-", "--"]))
@settings(max_examples=200)
def test_however_the_same_words_are_cut(first: str, second: str, third: str, separator: str) -> None:
    owners = {
        (first, f"{second}{separator}{third}"),
        (f"{first}{separator}{second}", third),
        (f"{first}{separator}{second}{separator}{third}",),
    }
    assert len({name_of(owner, front_service_name) for owner in owners}) == len(owners)


@given(first=ENGINES, second=ENGINES, third=st.one_of(st.none(), TARGETS))
@settings(max_examples=200)
def test_nobody_can_be_called_like_another_s_hash(first: str, second: str, third: str | None) -> None:
    owner = (f"{first}--{second}",) if third is None else (f"{first}--{second}", third)
    name = name_of(owner, front_service_name)
    engine, _, target = name.rpartition("--")
    for forged in ((engine, target), (name,)):
        assert name_of(forged, front_service_name) != name


@given(OWNER)
@settings(max_examples=100)
def test_every_name_is_one_that_the_api_server_takes(owner: tuple[str, ...]) -> None:
    for front in (front_service_name, front_name):
        name = name_of(owner, front)
        assert LABEL.fullmatch(name)
        assert len(name) <= 63
