"""Checks of the limits compiled into an engine."""

from __future__ import annotations

from collections.abc import Iterator

from ..api.llmengine import Budgets, LLMEngineSpec
from ..catalog import Release
from .check import Check, failed, passed, warned
from .model import ModelFacts

_FACTOR_IN_POSITIONS = frozenset({"su", "longrope", "llama3"})
"""rope scaling types whose max_position_embeddings already counts the factor."""
MUCH_ACTIVATION_TOKENS = 32_768


def prompt_limit(budgets: Budgets) -> int:
    """Longest prompt that the runtime takes without chunked context (llmRequest.h, trtGptModel.h)."""
    return min(budgets.max_seq_len - 1, budgets.max_num_tokens)


def position_limit(facts: ModelFacts) -> int | None:
    """Positions the model was made for, with its rope scaling; None: the config does not say."""
    if facts.max_position_embeddings is None:
        return None
    if facts.rope_scaling_factor is None or facts.rope_scaling_type in _FACTOR_IN_POSITIONS:
        return facts.max_position_embeddings
    return int(facts.max_position_embeddings * max(facts.rope_scaling_factor, 1.0))


def length_checks(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> Iterator[Check]:
    budgets = spec.budgets
    yield _sequence(budgets)
    yield _prompt(budgets)
    yield _positions(budgets, facts, release)
    yield _step(budgets)


def _sequence(budgets: Budgets) -> Check:
    if budgets.max_input_len < budgets.max_seq_len:
        left = budgets.max_seq_len - budgets.max_input_len
        return passed("sequence-length", f"a longest prompt leaves {left:,} tokens for the answer")
    return failed(
        "sequence-length",
        f"maxInputLen {budgets.max_input_len:,} leaves no token of maxSeqLen {budgets.max_seq_len:,} for an answer",
        f"maxSeqLen counts prompt and answer: at least {budgets.max_input_len + 1:,}",
    )


def _prompt(budgets: Budgets) -> Check:
    limit = prompt_limit(budgets)
    text = (
        f"effective prompt limit min(maxSeqLen - 1 = {budgets.max_seq_len - 1:,}, "
        f"maxNumTokens = {budgets.max_num_tokens:,}) = {limit:,}"
    )
    if limit >= budgets.max_input_len:
        return passed("prompt-limit", f"{text}, maxInputLen {budgets.max_input_len:,}")
    return failed(
        "prompt-limit",
        f"{text} is below maxInputLen {budgets.max_input_len:,}",
        f"maxNumTokens at least {budgets.max_input_len:,}, or maxInputLen at most {limit:,}",
    )


def _positions(budgets: Budgets, facts: ModelFacts, release: Release) -> Check:
    limit = position_limit(facts)
    if limit is None:
        return warned("positions", "config.json gives no position limit: maxSeqLen could not be checked against it")
    if budgets.max_seq_len <= limit:
        return passed("positions", f"maxSeqLen {budgets.max_seq_len:,} of {limit:,} positions")
    family = release.family_of(facts.architecture)
    problem = f"maxSeqLen {budgets.max_seq_len:,} is above the model's {limit:,} positions"
    if family is not None and family.positions == "learned":
        return failed("positions", f"{problem}, which are a learned table", f"maxSeqLen at most {limit:,}")
    return warned("positions", f"{problem}: answers beyond them are not reliable", f"maxSeqLen at most {limit:,}")


def _step(budgets: Budgets) -> Check:
    running = budgets.max_batch_size * budgets.max_beam_width
    if budgets.max_num_tokens < running:
        return warned(
            "step-tokens",
            f"maxNumTokens {budgets.max_num_tokens:,} is below maxBatchSize x beams = {running:,}: "
            "not every sequence in flight gets a token in every step",
            f"maxNumTokens at least {running:,}",
        )
    if budgets.max_num_tokens > MUCH_ACTIVATION_TOKENS:
        return warned(
            "step-tokens",
            f"maxNumTokens {budgets.max_num_tokens:,} multiplies the activation memory",
            "8,192 is the release's default",
        )
    return passed("step-tokens", f"maxNumTokens {budgets.max_num_tokens:,} for {running:,} sequences in flight")
