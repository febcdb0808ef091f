"""Choosing a token."""

import numpy as np
import pytest
from trtllm_standin.sampling import SamplingParameters, adjust, choose, log_probability

LOGITS = np.array([0.0, 1.0, 2.0, 3.0, -1.0], np.float32)
PROMPT = np.array([3], np.int64)


def drawn(parameters: SamplingParameters, draws: int = 300) -> set[int]:
    random = np.random.default_rng(0)
    return {choose(LOGITS, parameters, random) for _ in range(draws)}


@pytest.mark.parametrize(
    ("parameters", "tokens"),
    [
        (SamplingParameters(), {3}),
        (SamplingParameters(temperature=0.0, top_k=50), {3}),
        (SamplingParameters(top_k=1, top_p=0.9), {3}),
        (SamplingParameters(top_k=2), {2, 3}),
        # The three largest have probabilities 0.64, 0.23 and 0.09.
        (SamplingParameters(top_p=0.5), {3}),
        (SamplingParameters(top_p=0.8), {2, 3}),
        (SamplingParameters(top_p=1.0), {0, 1, 2, 3, 4}),
        (SamplingParameters(top_k=3, temperature=100.0), {1, 2, 3}),
    ],
)
def test_which_tokens_can_be_drawn(parameters: SamplingParameters, tokens: set[int]) -> None:
    assert drawn(parameters) == tokens


def test_draws_follow_the_probabilities() -> None:
    random = np.random.default_rng(0)
    parameters = SamplingParameters(top_p=1.0)
    draws = [choose(LOGITS, parameters, random) for _ in range(4000)]
    expected = np.exp(LOGITS) / np.exp(LOGITS).sum()
    assert np.allclose(np.bincount(draws, minlength=5) / 4000, expected, atol=0.02)


@pytest.mark.parametrize(
    ("parameters", "generated", "expected"),
    [
        (SamplingParameters(repetition_penalty=2.0), [4], [0, 1, 2, 1.5, -2]),
        (SamplingParameters(presence_penalty=0.5), [2, 2], [0, 1, 1.5, 3, -1]),
        (SamplingParameters(frequency_penalty=0.5), [2, 2], [0, 1, 1, 3, -1]),
        (SamplingParameters(bad_words=((3,), (0, 2))), [0], [0, 1, -np.inf, -np.inf, -1]),
        (SamplingParameters(bad_words=((0, 2),)), [1], [0, 1, 2, 3, -1]),
        (SamplingParameters(min_tokens=2), [0], [0, -np.inf, 2, 3, -1]),
        (SamplingParameters(min_tokens=2), [0, 0], [0, 1, 2, 3, -1]),
        (SamplingParameters(embedding_bias=np.array([5.0], np.float32)), [], [5, 1, 2, 3, -1]),
    ],
)
def test_adjustments(parameters: SamplingParameters, generated: list[int], expected: list[float]) -> None:
    """Token 3 is the prompt's, token 1 is the end token."""
    assert adjust(LOGITS, parameters, PROMPT, generated, end_id=1).tolist() == expected
    assert not parameters.plain


def test_log_probability() -> None:
    assert log_probability(LOGITS, 2) == pytest.approx(float(np.log(np.exp(2) / np.exp(LOGITS).sum())), abs=1e-6)
