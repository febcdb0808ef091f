"""Choosing the next token of one sequence from its logits, with TensorRT-LLM's parameters and defaults."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .dtypes import Floats


@dataclass(frozen=True)
class SamplingParameters:
    """Greedy unless top_k is above 1 or top_p above 0. The seed's default is 0, so sampling repeats itself."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    embedding_bias: Floats | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0 or (self.top_k <= 1 and self.top_p <= 0.0) or self.top_k == 1

    @property
    def plain(self) -> bool:
        """Nothing but the largest logit counts."""
        return (
            self.greedy
            and self.repetition_penalty == 1.0
            and not self.presence_penalty
            and not self.frequency_penalty
            and self.min_tokens <= 0
            and not self.bad_words
            and self.embedding_bias is None
        )


def adjust(
    logits: Floats,
    parameters: SamplingParameters,
    prompt: npt.NDArray[np.int64],
    generated: list[int],
    end_id: int | None,
) -> Floats:
    """Logits (vocabulary,) after penalties, forbidden words and the bias."""
    result = logits.copy()
    if parameters.embedding_bias is not None:
        result[: len(parameters.embedding_bias)] += parameters.embedding_bias
    if parameters.repetition_penalty != 1.0:
        seen = np.unique(np.concatenate([prompt, np.array(generated, np.int64)]))
        values = result[seen]
        factor = np.float32(parameters.repetition_penalty)
        result[seen] = np.where(values < 0, values * factor, values / factor)
    if generated and (parameters.presence_penalty or parameters.frequency_penalty):
        tokens, counts = np.unique(np.array(generated), return_counts=True)
        result[tokens] -= np.float32(parameters.presence_penalty)
        result[tokens] -= counts.astype(np.float32) * np.float32(parameters.frequency_penalty)
    for word in parameters.bad_words:
        before = word[:-1]
        if not before or tuple(generated[-len(before) :]) == before:
            result[word[-1]] = -np.inf
    if end_id is not None and 0 <= end_id < len(result) and len(generated) < parameters.min_tokens:
        result[end_id] = -np.inf
    return result


def choose(logits: Floats, parameters: SamplingParameters, random: np.random.Generator) -> int:
    """The next token: the most probable one, or one drawn from the top_k / top_p part of the distribution."""
    if parameters.greedy:
        return int(logits.argmax())
    order = np.argsort(-logits, kind="stable")
    if parameters.top_k > 0:
        order = order[: parameters.top_k]
    scaled = logits[order].astype(np.float64) / parameters.temperature
    probabilities = np.exp(scaled - scaled[0])
    probabilities /= probabilities.sum()
    if 0.0 < parameters.top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(probabilities), parameters.top_p)) + 1
        order, probabilities = order[:keep], probabilities[:keep]
        probabilities /= probabilities.sum()
    return int(order[random.choice(len(order), p=probabilities)])


def log_probability(logits: Floats, token: int) -> float:
    """Natural logarithm of the token's probability."""
    largest = float(logits.max())
    return float(logits[token]) - largest - float(np.log(np.exp(logits - np.float32(largest)).sum()))
