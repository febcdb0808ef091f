"""In-flight batching: one thread steps all active sequences together and admits waiting ones as places come free.

Policy as the runtime's GUARANTEED_NO_EVICT: a sequence starts when the pool has blocks for its longest possible end, so
that a started one is never paused.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .kv_cache import BlockPool, SequenceCache
from .llama import Llama, Segment, TokenIds
from .log import runtime_log
from .sampling import SamplingParameters, adjust, choose, log_probability

QUEUE_FULL = "Exceeds maximum queue size"


class RequestRefusedError(Exception):
    """The request can't be run; the text goes to the client."""


@dataclass(frozen=True)
class Limits:
    """What the engine and the model's configuration allow. `max_queue_size` 0 is no limit."""

    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_input_len: int
    max_queue_size: int
    packed_context: bool
    chunked_context: bool

    @property
    def longest_prompt(self) -> int:
        """Longest prompt in tokens; max_input_len counts only without packed input and context FMHA."""
        if self.chunked_context:
            return self.max_seq_len - 1
        if self.packed_context:
            return min(self.max_seq_len - 1, self.max_num_tokens)
        return self.max_input_len


@dataclass
class Output:
    """Tokens made since the last output, with their log probabilities when asked for."""

    tokens: list[int]
    log_probs: list[float]
    final: bool


@dataclass(eq=False)
class Request:
    """One sequence to generate. The callbacks run on the scheduler's thread; exactly one ends the request."""

    prompt: TokenIds
    max_new_tokens: int
    on_output: Callable[[Output], None]
    on_error: Callable[[str], None]
    is_cancelled: Callable[[], bool] = lambda: False
    streaming: bool = True
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    end_id: int | None = None
    stop_words: tuple[tuple[int, ...], ...] = ()
    return_log_probs: bool = False
    arrived_ns: int = field(default_factory=time.monotonic_ns)


@dataclass(eq=False)
class _Sequence:
    request: Request
    cache: SequenceCache
    blocks: int
    random: np.random.Generator
    prompt_done: int = 0
    generated: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    sent: int = 0

    def next_tokens(self, budget: int) -> TokenIds:
        """What goes through the network next: the rest of the prompt as far as it fits, else the last token."""
        if self.in_context:
            return self.request.prompt[self.prompt_done : self.prompt_done + budget]
        return np.array(self.generated[-1:], np.int64)

    @property
    def in_context(self) -> bool:
        return self.prompt_done < len(self.request.prompt)


@dataclass(frozen=True)
class Statistics:
    """One moment, for the metrics. `last_step_seconds` is the time of the last step, 0 before the first."""

    active: int
    scheduled: int
    context: int
    generation: int
    context_tokens: int
    iteration: int
    last_step_seconds: int
    used_blocks: int
    free_blocks: int


class Scheduler:
    """Runs requests until `stop`. `submit` and `statistics` may be called from any thread."""

    def __init__(self, model: Llama, limits: Limits, pool: BlockPool, cancel_check_seconds: float = 0.1) -> None:
        self._model = model
        self._limits = limits
        self._pool = pool
        self._cancel_check_seconds = cancel_check_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._active: list[_Sequence] = []
        self._stopping = False
        self._iteration = 0
        self._last_step_seconds = 0
        self._context_tokens = 0
        self._next_cancel_check = 0.0
        self._thread = threading.Thread(target=self._run, name="in-flight-batching", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            RequestRefusedError: too long, empty, or the queue is full.
        """
        prompt_length, limits = len(request.prompt), self._limits
        if prompt_length == 0:
            raise RequestRefusedError("Input token ids are empty")
        if request.max_new_tokens <= 0:
            raise RequestRefusedError("[TensorRT-LLM][ERROR] Assertion failed: mMaxTokens > 0")
        if prompt_length > limits.longest_prompt:
            raise RequestRefusedError(
                f"Prompt length ({prompt_length}) exceeds maximum input length ({limits.longest_prompt}). Set log "
                "level to info and check TRTGptModel logs for how maximum input length is set"
            )
        if request.prompt.min() < 0 or request.prompt.max() >= self._model.vocab_size:
            raise RequestRefusedError(f"Input token ids are not within the vocabulary of {self._model.vocab_size}")
        room = limits.max_seq_len - prompt_length
        if request.max_new_tokens > room:
            runtime_log(
                "WARNING",
                f"Number of requested output tokens ({request.max_new_tokens}) exceeds maximum sequence length "
                f"({limits.max_seq_len}). Number of requested output tokens is changed to ({room}).",
            )
            request.max_new_tokens = room
        with self._changed:
            if limits.max_queue_size and len(self._waiting) >= limits.max_queue_size:
                raise RequestRefusedError(QUEUE_FULL)
            self._waiting.append(request)
            self._changed.notify()

    def statistics(self) -> Statistics:
        with self._changed:
            context = sum(sequence.in_context for sequence in self._active)
            return Statistics(
                active=len(self._active) + len(self._waiting),
                scheduled=len(self._active),
                context=context,
                generation=len(self._active) - context,
                context_tokens=self._context_tokens,
                iteration=self._iteration,
                last_step_seconds=self._last_step_seconds,
                used_blocks=self._pool.used_blocks,
                free_blocks=self._pool.free_blocks,
            )

    def stop(self) -> None:
        """End the thread; requests that are still there fail."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                # Waiting requests are looked at now and then even when none can start: they may be cancelled.
                self._changed.wait_for(lambda: self._stopping or self._waiting or self._active)
                if self._stopping:
                    leftover = [sequence.request for sequence in self._active] + list(self._waiting)
                    break
            self._drop_cancelled()
            with self._changed:
                self._admit()
            if self._active:
                try:
                    self._step()
                except Exception as error:  # the thread serves everyone: it must outlive one failure
                    runtime_log("ERROR", f"Encountered an error in forward function: {error!r}")
                    for sequence in list(self._active):
                        self._release(sequence)
                        sequence.request.on_error(f"Encountered an error when running the model: {error}")
        for request in leftover:
            request.on_error("Request was cancelled: the model is being unloaded")

    def _drop_cancelled(self) -> None:
        now = time.monotonic()
        if now < self._next_cancel_check:
            return
        self._next_cancel_check = now + self._cancel_check_seconds
        for sequence in [sequence for sequence in self._active if sequence.request.is_cancelled()]:
            self._release(sequence)
            self._emit(sequence, final=True)
        with self._changed:
            cancelled = [request for request in self._waiting if request.is_cancelled()]
            for request in cancelled:
                self._waiting.remove(request)
        for request in cancelled:
            request.on_output(Output([], [], final=True))

    def _admit(self) -> None:
        while self._waiting and len(self._active) < self._limits.max_batch_size:
            request = self._waiting[0]
            blocks = self._pool.blocks_for(len(request.prompt) + request.max_new_tokens)
            if blocks > self._pool.free_blocks:
                return
            self._pool.take(blocks)
            self._waiting.popleft()
            random = np.random.default_rng(request.sampling.seed)
            self._active.append(_Sequence(request, self._model.new_cache(), blocks, random))

    def _step(self) -> None:
        """Sequences that generate go first, one token each; prompts take what is left of the token budget."""
        budget = self._limits.max_num_tokens
        batch: list[tuple[_Sequence, TokenIds]] = []
        self._context_tokens = 0
        for sequence in sorted(self._active, key=lambda sequence: sequence.in_context):
            tokens = sequence.next_tokens(budget)
            whole = not sequence.in_context or sequence.prompt_done + len(tokens) == len(sequence.request.prompt)
            if not len(tokens) or (not whole and not self._limits.chunked_context):
                continue
            budget -= len(tokens)
            self._context_tokens += len(tokens) if sequence.in_context else 0
            batch.append((sequence, tokens))
        logits = self._model.forward([Segment(tokens, sequence.cache) for sequence, tokens in batch])
        best = logits.argmax(axis=1)
        for row, (sequence, tokens) in enumerate(batch):
            if sequence.in_context:
                sequence.prompt_done += len(tokens)
                if sequence.in_context:
                    continue
            self._advance(sequence, logits[row], int(best[row]))
        self._iteration += 1
        self._last_step_seconds = int(time.time())

    def _advance(self, sequence: _Sequence, logits: np.ndarray, best: int) -> None:  # type: ignore[type-arg]
        request = sequence.request
        token = best
        if not request.sampling.plain:
            logits = adjust(logits, request.sampling, request.prompt, sequence.generated, request.end_id)
            token = choose(logits, request.sampling, sequence.random)
        if token == request.end_id:
            # The end token is not part of the output.
            self._release(sequence)
            self._emit(sequence, final=True)
            return
        sequence.generated.append(token)
        sequence.log_probs.append(log_probability(logits, token) if request.return_log_probs else 0.0)
        final = len(sequence.generated) >= request.max_new_tokens or any(
            tuple(sequence.generated[-len(word) :]) == word for word in request.stop_words
        )
        if final:
            self._release(sequence)
        if final or request.streaming:
            self._emit(sequence, final=final)

    def _emit(self, sequence: _Sequence, *, final: bool) -> None:
        tokens, log_probs = sequence.generated[sequence.sent :], sequence.log_probs[sequence.sent :]
        sequence.sent = len(sequence.generated)
        sequence.request.on_output(Output(tokens, log_probs, final))

    def _release(self, sequence: _Sequence) -> None:
        with self._changed:
            self._active.remove(sequence)
            self._pool.give_back(sequence.blocks)
