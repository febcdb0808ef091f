"""What is done with one request: who calls, what is asked, whether it fits, and the answers' pieces as they come."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from .admission import Admission
from .answer import Delta, TokenLogprob, deltas
from .api_keys import ApiKeys
from .backends import Backend, Limits, Routes, fitting
from .dispatch import Dispatcher
from .errors import RequestError
from .guard import Guard
from .metrics import FrontMetrics
from .model_files import ModelText
from .responses import Shape, Usage
from .schema import ChatRequest, CompletionRequest, Message, SamplingFields, TokenizeRequest
from .settings import Settings
from .triton import Generation, Sampling

log = logging.getLogger(__name__)

THREAD_CHARACTERS = 8192
"""Texts longer than this are tokenized in a thread: meanwhile other answers go on."""
GREEDY_TEMPERATURE = 1e-5
"""Below this an answer is greedy; TensorRT-LLM refuses a temperature of 0."""
ANYBODY = "anybody"
QUEUED_PIECES = 64
"""Of several answers at once; a client that reads slowly holds the servers back."""


@dataclass
class Ask:
    """One request, understood: what each server is asked, and how the answer looks."""

    endpoint: str
    caller: str
    shape: Shape
    model: str
    text: ModelText
    generations: tuple[Generation, ...]
    stops: tuple[str, ...]
    echoes: tuple[str, ...]
    """What each choice begins with: its prompt, where the client wants that."""
    stream: bool
    include_usage: bool
    ends: frozenset[int]
    prompt_tokens: int
    requested_tokens: int | None
    begun: float
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def granted(self) -> int | None:
        """Tokens that may come, where that is less than was asked for."""
        given = self.generations[0].max_tokens
        return given if self.requested_tokens is not None and given < self.requested_tokens else None


@dataclass(frozen=True)
class Indexed:
    """A piece of one of several answers."""

    index: int
    delta: Delta


@dataclass
class Record:
    """What is known of a request at its end, for the metrics and the log."""

    target: str = ""
    first_token_at: float | None = None
    last_token_at: float | None = None
    queue_seconds: float = 0.0
    output_tokens: int = 0
    outcome: str = "ok"


class Service:
    """One front: everything but HTTP."""

    def __init__(
        self,
        settings: Settings,
        dispatcher: Dispatcher,
        *,
        models: Callable[[str], ModelText],
        metrics: FrontMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`models`: of a Model artifact's name what is known of its text."""
        self.settings = settings
        self.dispatcher = dispatcher
        self.metrics = metrics or FrontMetrics()
        self.admission = Admission(settings.limits, capacity=lambda: dispatcher.routes.capacity, clock=clock)
        self._models = models
        self._clock = clock
        self._keys = ApiKeys(settings.api_keys_directory) if settings.api_keys_directory else None
        self._guard = Guard(settings.guard) if settings.guard else None
        self._created = int(time.time())
        self.metrics.in_flight.set_function(lambda: self.admission.in_flight)
        self.metrics.queued.set_function(lambda: self.admission.queued)
        self.metrics.queued_tokens.set_function(lambda: self.admission.queued_tokens)
        self.metrics.outstanding_tokens.set_function(lambda: sum(load.tokens for load in dispatcher.loads.values()))

    def update(self, routes: Routes) -> None:
        """Send requests by these routes from now on."""
        if routes == self.dispatcher.routes:
            return
        counts = Counter(backend.target for backend in routes.backends)
        for target in {b.target for b in self.dispatcher.routes.backends} | counts.keys():
            self.metrics.servers.labels(target).set(counts[target])
        self.dispatcher.update(routes)
        self.admission.wake()

    def caller(self, headers: Mapping[str, str]) -> str:
        """Who calls. Raises RequestError 401 where keys are wanted and none is right."""
        if self._keys:
            return self._keys.caller(headers.get("authorization"))
        if self.settings.caller_header:
            return headers.get(self.settings.caller_header.lower(), ANYBODY)[:256]
        return ANYBODY

    def models(self) -> list[dict[str, Any]]:
        """GET /v1/models: each name, with the longest text that is served now."""
        longest = self.dispatcher.routes.longest
        return [
            {"id": name, "object": "model", "created": self._created, "owned_by": "llmengine", "max_model_len": longest}
            for name in self.settings.model_names
        ]

    def check_model(self, name: str) -> None:
        """Raises RequestError 404 for a name that is not ours."""
        if name not in self.settings.model_names:
            known = ", ".join(self.settings.model_names)
            message = f"the model {name[:200]!r} is not served here; this endpoint serves {known}"
            raise RequestError(404, "model_not_found", message, param="model")

    async def chat(self, request: ChatRequest, caller: str) -> Ask:
        """What a chat asks for. Raises RequestError."""
        begun = self._clock()
        self.check_model(request.model)
        model, text = await self._text()
        messages = [_plain(m) for m in request.messages]
        if self._guard:
            body = {"model": request.model, "caller": caller, "messages": messages}
            messages = (await self._guard.judge(body)).messages or messages
        prompt = self._render(text, messages, request)
        ids = await self._encode(text, prompt, special_tokens=False)
        return self._ask("chat", request, caller, model, text, [ids] * request.n, begun)

    async def completion(self, request: CompletionRequest, caller: str) -> Ask:
        """What a completion asks for. Raises RequestError."""
        begun = self._clock()
        self.check_model(request.model)
        model, text = await self._text()
        prompts: list[list[int]] = []
        echoes: list[str] = []
        for prompt in request.prompts:
            if isinstance(prompt, str):
                given = prompt
                if self._guard:
                    body = {"model": request.model, "caller": caller, "prompt": given}
                    verdict = await self._guard.judge(body)
                    given = given if verdict.prompt is None else verdict.prompt
                ids = await self._encode(text, given, special_tokens=True)
            else:
                ids = _checked(prompt, text)
                given = text.tokenizer.decode(ids, skip_special_tokens=True)
                if self._guard:
                    verdict = await self._guard.judge({"model": request.model, "caller": caller, "prompt": given})
                    if verdict.prompt is not None:
                        given = verdict.prompt
                        ids = await self._encode(text, given, special_tokens=True)
            prompts += [ids] * request.n
            echoes += [given if request.echo else ""] * request.n
        return self._ask("completion", request, caller, model, text, prompts, begun, tuple(echoes))

    async def tokenize(self, request: TokenizeRequest) -> dict[str, Any]:
        """POST /tokenize. Raises RequestError."""
        if request.model is not None:
            self.check_model(request.model)
        _, text = await self._text()
        if request.messages is not None:
            prompt = self._template(text).render([_plain(m) for m in request.messages])
            ids = await self._encode(text, prompt, special_tokens=False)
        else:
            ids = await self._encode(text, request.prompt or "", special_tokens=request.add_special_tokens)
        return {"count": len(ids), "max_model_len": self.dispatcher.routes.longest, "tokens": ids}

    async def run(self, ask: Ask, record: Record) -> AsyncGenerator[Indexed]:
        """The pieces of all answers of a request, as they come. Raises RequestError."""
        tokens = sum(len(g.prompt) + g.max_tokens for g in ask.generations)
        async with self.admission.slots(ask.caller, len(ask.generations), tokens) as record.queue_seconds:
            answers = self._one(ask, 0, record) if len(ask.generations) == 1 else self._several(ask, record)
            async with aclosing(answers) as pieces:
                async for piece in pieces:
                    yield piece

    def ended(self, ask: Ask, record: Record) -> None:
        """Count a request that has ended, however it did."""
        now, target = self._clock(), record.target or "none"
        self.metrics.requests.labels(ask.endpoint, record.outcome, target).inc()
        self.metrics.queue.observe(record.queue_seconds)
        self.metrics.prompt_tokens.observe(ask.prompt_tokens)
        if record.first_token_at is not None:
            self.metrics.first_token.labels(target).observe(record.first_token_at - ask.begun)
            self.metrics.output_tokens.observe(record.output_tokens)
            if record.output_tokens > 1 and record.last_token_at is not None:
                per_token = (record.last_token_at - record.first_token_at) / (record.output_tokens - 1)
                self.metrics.per_token.labels(target).observe(per_token)
        self.metrics.duration.labels(target).observe(now - ask.begun)
        if self.settings.request_log:
            self._log(ask, record, now)

    def refused(self, endpoint: str, error: RequestError) -> None:
        """Count a request that was refused before it was understood."""
        self.metrics.requests.labels(endpoint, error.code, "none").inc()

    async def close(self) -> None:
        """Let go of all connections."""
        await self.dispatcher.close()
        if self._guard:
            await self._guard.close()

    async def _text(self) -> tuple[str, ModelText]:
        """The model that most servers run, and what is known of its text. Raises RequestError 503."""
        routes = await self.dispatcher.wait_for_server()
        counts: dict[str, int] = {}
        for backend in routes.backends:
            counts[backend.model] = counts.get(backend.model, 0) + 1
        model = max(sorted(counts), key=lambda name: counts[name])
        return model, self._models(model)

    def _template(self, text: ModelText) -> Any:
        if text.chat_template is None:
            message = "the model has no chat template: ask /v1/completions with the prompt as it was trained on"
            raise RequestError(400, "no_chat_template", message, param="messages")
        return text.chat_template

    def _render(self, text: ModelText, messages: Sequence[Mapping[str, Any]], request: ChatRequest) -> str:
        template = self._template(text)
        if not request.continue_final_message:
            prompt: str = template.render(messages, add_generation_prompt=request.add_generation_prompt)
            return prompt
        final = str(messages[-1].get("content") or "").strip()
        whole: str = template.render(messages, add_generation_prompt=False)
        at = whole.rfind(final)
        if at < 0:
            message = "the chat template changes the last message, so that it cannot be continued"
            raise RequestError(400, "invalid_messages", message, param="continue_final_message")
        return whole[: at + len(final)]

    async def _encode(self, text: ModelText, prompt: str, *, special_tokens: bool) -> list[int]:
        if len(prompt) <= THREAD_CHARACTERS:
            return text.encode(prompt, special_tokens=special_tokens)
        return await asyncio.to_thread(text.encode, prompt, special_tokens=special_tokens)

    def _ask(
        self,
        endpoint: str,
        request: ChatRequest | CompletionRequest,
        caller: str,
        model: str,
        text: ModelText,
        prompts: Sequence[Sequence[int]],
        begun: float,
        echoes: tuple[str, ...] = (),
    ) -> Ask:
        wanted = request.output_limit
        budgets = [self._budget(len(prompt), wanted, model, text) for prompt in prompts]
        max_tokens = min(budgets)
        ends = frozenset() if request.ignore_eos else frozenset(text.end_token_ids)
        stop_ids = tuple(dict.fromkeys(request.stop_token_ids or ()))
        first_end = None if request.ignore_eos or not text.end_token_ids else text.end_token_ids[0]
        further = tuple(i for i in (*(() if request.ignore_eos else text.end_token_ids), *stop_ids) if i != first_end)
        generations = tuple(
            Generation(
                prompt=prompt,
                max_tokens=max_tokens,
                sampling=_sampling(request, number % request.n),
                end_id=first_end,
                stop_token_ids=tuple(dict.fromkeys(further)),
                log_probs=request.wants_logprobs,
            )
            for number, prompt in enumerate(prompts)
        )
        prefix = "chatcmpl-" if endpoint == "chat" else "cmpl-"
        shape = Shape(
            kind="chat" if endpoint == "chat" else "completion",
            request_id=prefix + secrets.token_hex(12),
            model_name=request.model,
            created=int(time.time()),
            text=text,
            wants_logprobs=request.wants_logprobs,
        )
        distinct = prompts[:: request.n]
        ask = Ask(
            endpoint=endpoint,
            caller=caller,
            shape=shape,
            model=model,
            text=text,
            generations=generations,
            stops=request.stops,
            echoes=echoes or ("",) * len(prompts),
            stream=request.stream,
            include_usage=request.include_usage,
            ends=ends | frozenset(stop_ids),
            prompt_tokens=sum(map(len, distinct)),
            requested_tokens=wanted,
            begun=begun,
        )
        ask.headers["x-request-id"] = shape.request_id
        if ask.granted is not None:
            ask.headers["x-llmengine-granted-max-tokens"] = str(ask.granted)
        return ask

    def _budget(self, prompt_tokens: int, wanted: int | None, model: str, text: ModelText) -> int:
        """Tokens that may come after a prompt. Raises RequestError 400 where the prompt, or the wish, fits nowhere."""
        profiles = {b.limits for b in self.dispatcher.routes.backends if b.model == model}
        if prompt_tokens == 0:
            raise RequestError(400, "invalid_value", "the prompt is empty: it has no tokens", param="prompt")
        limits = fitting(profiles, prompt_tokens, wanted)
        if limits is None:
            raise _too_long(prompt_tokens, profiles, text.context_length)
        room = limits.max_seq_len - prompt_tokens
        if wanted is None or wanted <= room:
            return room if wanted is None else wanted
        if self.settings.strict_max_tokens:
            message = (
                f"{prompt_tokens:,} prompt tokens and max_tokens {wanted:,} are {prompt_tokens + wanted:,}; the "
                f"longest sequence is {limits.max_seq_len:,} tokens. Ask for at most {room:,}"
            )
            raise RequestError(400, "context_length_exceeded", message, param="max_tokens")
        return room

    async def _one(self, ask: Ask, index: int, record: Record) -> AsyncGenerator[Indexed]:
        """The pieces of one answer."""

        def chosen(backend: Backend) -> None:
            record.target = backend.target

        request_id = ask.shape.request_id if len(ask.generations) == 1 else f"{ask.shape.request_id}-{index}"
        generation = ask.generations[index]
        tokens = self.dispatcher.generate(generation, request_id, model=ask.model, chosen=chosen)
        async with aclosing(tokens), aclosing(deltas(generation, tokens, ask.text, ask.stops, ask.ends)) as pieces:
            async for delta in pieces:
                if delta.tokens:
                    now = self._clock()
                    record.first_token_at = record.first_token_at or now
                    record.last_token_at = now
                    record.output_tokens += delta.tokens
                yield Indexed(index, delta)

    async def _several(self, ask: Ask, record: Record) -> AsyncGenerator[Indexed]:
        """The pieces of several answers, in the order in which they come."""
        queue: asyncio.Queue[Indexed | Exception | None] = asyncio.Queue(QUEUED_PIECES)

        async def pump(index: int) -> None:
            try:
                async with aclosing(self._one(ask, index, record)) as pieces:
                    async for piece in pieces:
                        await queue.put(piece)
            except Exception as error:  # handed to whoever reads the pieces
                await queue.put(error)
            else:
                await queue.put(None)

        tasks = [asyncio.create_task(pump(index)) for index in range(len(ask.generations))]
        left = len(tasks)
        try:
            while left:
                match await queue.get():
                    case None:
                        left -= 1
                    case Exception() as error:
                        raise error
                    case Indexed() as piece:
                        yield piece
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _log(self, ask: Ask, record: Record, now: float) -> None:
        first = None if record.first_token_at is None else round(record.first_token_at - ask.begun, 6)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "endpoint": ask.endpoint,
            "target": record.target or None,
            "outcome": record.outcome,
            "promptTokens": ask.prompt_tokens,
            "outputTokens": record.output_tokens,
            "maxTokens": ask.requested_tokens,
            "grantedMaxTokens": ask.generations[0].max_tokens,
            "choices": len(ask.generations),
            "stream": ask.stream,
            "queueSeconds": round(record.queue_seconds, 6),
            "firstTokenSeconds": first,
            "seconds": round(now - ask.begun, 6),
        }
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def usage_of(ask: Ask, output_tokens: int) -> Usage:
    """The counts of a request."""
    return Usage(ask.prompt_tokens, output_tokens, ask.granted)


def collect(pieces: Sequence[Indexed], choices: int) -> list[tuple[str, list[TokenLogprob], str]]:
    """Of each choice its whole text, its log-probabilities and why it ended."""
    out: list[tuple[list[str], list[TokenLogprob], list[str]]] = [([], [], []) for _ in range(choices)]
    for piece in pieces:
        text, logprobs, reason = out[piece.index]
        text.append(piece.delta.text)
        logprobs.extend(piece.delta.logprobs)
        if piece.delta.finish_reason:
            reason.append(piece.delta.finish_reason)
    return [("".join(text), logprobs, reason[-1] if reason else "stop") for text, logprobs, reason in out]


def _plain(message: Message) -> dict[str, Any]:
    """As chat templates expect it: the content one text, `developer` the system's."""
    out = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    if message.name is not None:
        out["name"] = message.name
    return out


def _checked(prompt: Sequence[int], text: ModelText) -> list[int]:
    """Tokens that the client gives itself. Raises RequestError 400 for one that the vocabulary does not have."""
    size = text.tokenizer.get_vocab_size(with_added_tokens=True)
    if wrong := next((i for i in prompt if i >= size), None):
        message = f"prompt: token {wrong} is not one of the model's {size:,}"
        raise RequestError(400, "invalid_value", message, param="prompt")
    return list(prompt)


def _too_long(prompt_tokens: int, profiles: set[Limits], context_length: int | None) -> RequestError:
    longest = max((min(one.max_input_len, one.max_seq_len - 1) for one in profiles), default=0)
    own = f"; the model itself was trained for {context_length:,}" if context_length else ""
    message = (
        f"the prompt has {prompt_tokens:,} tokens; the longest that is served here has {longest:,}{own}. "
        "Shorten the prompt, or raise budgets.maxInputLen and maxSeqLen"
    )
    return RequestError(400, "context_length_exceeded", message, param="messages")


def _sampling(request: SamplingFields, choice: int) -> Sampling:
    """In TensorRT-LLM's words. Its default is greedy and its default seed is 0, OpenAI's are neither."""
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    top_k = request.top_k if request.top_k and request.top_k > 0 else 0
    greedy = temperature < GREEDY_TEMPERATURE or top_k == 1 or top_p == 0
    seed = secrets.randbits(64) if request.seed is None else (request.seed + choice) % 2**64
    return Sampling(
        temperature=None if greedy else temperature,
        top_k=1 if greedy else top_k,
        top_p=None if greedy else top_p,
        seed=None if greedy else seed,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        min_tokens=request.min_tokens,
    )
