"""Checks of the limits compiled into an engine."""

from __future__ import annotations

from collections.abc import Iterator

from ..api.llmengine import Budgets, LLMEngineSpec
from ..catalog import Family, Release
from .check import Check, failed, passed, warned
from .model import ModelFacts
from .precision import ResolvedPrecision
from .terms import Term

_FACTOR_IN_POSITIONS = frozenset({"su", "longrope", "llama3"})
"""rope scaling types whose max_position_embeddings already counts the factor."""
MUCH_ACTIVATION_TOKENS = 32_768


def prompt_limit(budgets: Budgets, precision: ResolvedPrecision) -> Term:
    """Longest prompt that the runtime takes (llmRequest.h, trtGptModel.h).

    With chunked context, which is on wherever paged context FMHA is, a prompt may take several steps.
    """
    room = f"maxSeqLen - 1 = {budgets.max_seq_len - 1:,}"
    if precision.paged_context_fmha:
        return Term("longest_prompt_tokens", budgets.max_seq_len - 1, "tokens", f"{room}, with chunked context")
    limit = min(budgets.max_seq_len - 1, budgets.max_num_tokens)
    formula = f"min({room}, maxNumTokens = {budgets.max_num_tokens:,}), without chunked context"
    return Term("longest_prompt_tokens", limit, "tokens", formula)


def position_limit(facts: ModelFacts) -> int | None:
    """Positions the model was made for, with its rope scaling; None: the config does not say."""
    if facts.max_position_embeddings is None:
        return None
    if facts.rope_scaling_factor is None or facts.rope_scaling_type in _FACTOR_IN_POSITIONS:
        return facts.max_position_embeddings
    return int(facts.max_position_embeddings * max(facts.rope_scaling_factor, 1.0))


def sequence_limit(facts: ModelFacts, release: Release) -> int | None:
    """Longest sequence of the model in the release: its positions, or less where the release documents less for its
    family. None: nobody says."""
    family = release.family_of(facts.architecture)
    known = [limit for limit in (position_limit(facts), family.most_tokens if family else None) if limit is not None]
    return min(known, default=None)


def length_checks(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, precision: ResolvedPrecision
) -> Iterator[Check]:
    budgets = spec.budgets
    yield _sequence(budgets)
    yield _prompt(budgets, precision)
    yield _positions(budgets, facts, release)
    family = release.family_of(facts.architecture)
    if family is not None and family.most_tokens is not None:
        yield _most_tokens(budgets, family, family.most_tokens)
    if facts.sliding_window is not None:
        yield _window(budgets, facts.sliding_window)
    yield _step(budgets, precision)


def _sequence(budgets: Budgets) -> Check:
    if budgets.max_input_len < budgets.max_seq_len:
        left = budgets.max_seq_len - budgets.max_input_len
        return passed("sequence-length", f"a longest prompt leaves {left:,} tokens for the answer")
    return failed(
        "sequence-length",
        f"maxInputLen {budgets.max_input_len:,} leaves no token of maxSeqLen {budgets.max_seq_len:,} for an answer",
        f"maxSeqLen counts prompt and answer: at least {budgets.max_input_len + 1:,}",
    )


def _prompt(budgets: Budgets, precision: ResolvedPrecision) -> Check:
    limit = prompt_limit(budgets, precision)
    text = f"effective prompt limit {limit.formula} = {limit.value:,}"
    if limit.value >= budgets.max_input_len:
        return passed("prompt-limit", f"{text}; maxInputLen {budgets.max_input_len:,}")
    return failed(
        "prompt-limit",
        f"{text} is below maxInputLen {budgets.max_input_len:,}",
        f"maxNumTokens at least {budgets.max_input_len:,}, or maxInputLen at most {limit.value:,}"
        if not precision.paged_context_fmha
        else f"maxInputLen at most {limit.value:,}",
        (limit.value,),
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


def _most_tokens(budgets: Budgets, family: Family, most: int) -> Check:
    if budgets.max_seq_len <= most:
        return passed("longest-sequence", f"maxSeqLen {budgets.max_seq_len:,} of the {most:,} of {family.name} models")
    return failed(
        "longest-sequence",
        f"maxSeqLen {budgets.max_seq_len:,} is above the {most:,} tokens that the release allows {family.name} models",
        f"maxSeqLen at most {most:,}",
        (most,),
    )


def _window(budgets: Budgets, window: int) -> Check:
    if budgets.max_seq_len <= window:
        return passed("sliding-window", f"maxSeqLen {budgets.max_seq_len:,} is within the window of {window:,} tokens")
    return warned(
        "sliding-window",
        f"the model attends to its last {window:,} tokens, and the runtime is not told so (max_attention_window_size): "
        f"the cache keeps all {budgets.max_seq_len:,}, and answers beyond the window may differ from the model's own",
        f"maxSeqLen at most {window:,} is exact",
    )


def _step(budgets: Budgets, precision: ResolvedPrecision) -> Check:
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
            "8,192 reaches the same length with chunked context"
            if precision.paged_context_fmha
            else "it bounds the prompt here, because this precision excludes chunked context",
        )
    return passed("step-tokens", f"maxNumTokens {budgets.max_num_tokens:,} for {running:,} sequences in flight")
