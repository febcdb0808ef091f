"""The HTTP surface: OpenAI's routes on one service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .errors import RequestError
from .responses import DONE, error_event
from .schema import ChatRequest, CompletionRequest, TokenizeRequest, parse
from .service import Ask, Indexed, Record, Service, collect, usage_of

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]
INTERNAL = RequestError(500, "internal_error", "the front failed over this request; its log has the reason")


def make_app(service: Service, *, ready: Callable[[], bool]) -> Starlette:
    """The application. `ready`: whether the cluster's state is known."""

    async def chat(request: Request) -> Response:
        caller = service.caller(request.headers)
        parsed = parse(await _body(request, service.settings.max_body_bytes), ChatRequest)
        return await _answer(service, request, await service.chat(parsed, caller))

    async def completions(request: Request) -> Response:
        caller = service.caller(request.headers)
        parsed = parse(await _body(request, service.settings.max_body_bytes), CompletionRequest)
        return await _answer(service, request, await service.completion(parsed, caller))

    async def tokenize(request: Request) -> Response:
        service.caller(request.headers)
        parsed = parse(await _body(request, service.settings.max_body_bytes), TokenizeRequest)
        return JSONResponse(await service.tokenize(parsed))

    async def models(request: Request) -> Response:
        service.caller(request.headers)
        return JSONResponse({"object": "list", "data": service.models()})

    async def model(request: Request) -> Response:
        service.caller(request.headers)
        name = request.path_params["name"]
        service.check_model(name)
        return JSONResponse(next(m for m in service.models() if m["id"] == name))

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readiness(_: Request) -> Response:
        state = ready()
        return JSONResponse({"ready": state}, status_code=200 if state else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def api(name: str, handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestError as error:
                service.refused(name, error)
                return _refusal(error)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception:
                log.exception("a request to %s failed", name)
                service.refused(name, INTERNAL)
                return _refusal(INTERNAL)

        return handle

    async def http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = "not_found" if error.status_code == 404 else "method_not_allowed"
        message = "there is no such route" if error.status_code == 404 else "the route does not take this method"
        return _refusal(RequestError(error.status_code, code, message))

    return Starlette(
        routes=[
            Route("/v1/chat/completions", api("chat", chat), methods=["POST"]),
            Route("/v1/completions", api("completion", completions), methods=["POST"]),
            Route("/v1/models", api("models", models)),
            Route("/v1/models/{name:path}", api("models", model)),
            Route("/tokenize", api("tokenize", tokenize), methods=["POST"]),
            Route("/health", health),
            Route("/ready", readiness),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: http_error},
    )


async def _body(request: Request, limit: int) -> bytes:
    """The body. Raises RequestError 413, before it is read where its length is given."""
    try:
        length = int(request.headers.get("content-length", "0"))
    except ValueError:
        length = 0
    parts: list[bytes] = []
    size = 0
    if length <= limit:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                break
            parts.append(part)
    if max(length, size) > limit:
        raise RequestError(413, "request_too_large", f"the body is larger than {limit:,} bytes")
    return b"".join(parts)


def _refusal(error: RequestError) -> Response:
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


async def _answer(service: Service, request: Request, ask: Ask) -> Response:
    record = Record()
    if not ask.stream:
        return await _whole(service, request, ask, record)
    pieces = service.run(ask, record)
    # Until the first piece is there a failure is an HTTP status of its own.
    first = asyncio.ensure_future(anext(pieces))
    try:
        await _unless_gone(request, first)
        return StreamingResponse(
            _events(service, ask, record, first.result(), pieces), media_type="text/event-stream", headers=ask.headers
        )
    except BaseException as error:
        await pieces.aclose()
        record.outcome = _outcome(error)
        service.ended(ask, record)
        if isinstance(error, RequestError):
            return _refusal(error)
        raise


async def _events(
    service: Service, ask: Ask, record: Record, first: Indexed, pieces: AsyncGenerator[Indexed]
) -> AsyncIterator[bytes]:
    """The events of a stream. A failure in the middle is an event, and `[DONE]` does not follow it."""
    shape = ask.shape
    offsets = [0] * len(ask.generations)
    begun: set[int] = set()

    def event(piece: Indexed) -> bytes:
        index, delta = piece.index, piece.delta
        text, out = delta.text, b""
        if index not in begun:
            begun.add(index)
            out = shape.first_chunk(index) or b""
            text = ask.echoes[index] + text
        if text or delta.finish_reason or delta.logprobs:
            out += shape.chunk(index, text, delta.logprobs, delta.finish_reason, offsets[index])
            offsets[index] += len(text)
        return out

    try:
        async with aclosing(pieces):
            if begins := event(first):
                yield begins
            async for piece in pieces:
                if out := event(piece):
                    yield out
        if ask.include_usage:
            yield shape.usage_chunk(usage_of(ask, record.output_tokens))
        yield DONE
    except RequestError as error:
        record.outcome = error.code
        yield error_event(error.body)
    except BaseException as error:
        record.outcome = _outcome(error)
        if isinstance(error, Exception):
            log.exception("a stream failed")
            yield error_event(INTERNAL.body)
        else:
            raise
    finally:
        service.ended(ask, record)


async def _whole(service: Service, request: Request, ask: Ask, record: Record) -> Response:
    async def gather() -> list[Indexed]:
        async with aclosing(service.run(ask, record)) as pieces:
            return [piece async for piece in pieces]

    task = asyncio.ensure_future(gather())
    try:
        await _unless_gone(request, task)
        choices = collect(task.result(), len(ask.generations))
    except BaseException as error:
        record.outcome = _outcome(error)
        if isinstance(error, RequestError):
            return _refusal(error)
        raise
    finally:
        service.ended(ask, record)
    shown = [(ask.echoes[i] + text, logprobs, reason) for i, (text, logprobs, reason) in enumerate(choices)]
    body: dict[str, Any] = ask.shape.whole(shown, usage_of(ask, record.output_tokens))
    return JSONResponse(body, headers=ask.headers)


async def _unless_gone(request: Request, task: asyncio.Future[Any]) -> None:
    """Wait for `task`; end it where the client goes away first. Raises ClientDisconnect then, or what `task` raised."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watcher = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        task.result()
    finally:
        watcher.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _outcome(error: BaseException) -> str:
    if isinstance(error, RequestError):
        return error.code
    return (
        "client_gone"
        if isinstance(error, ClientDisconnect | asyncio.CancelledError | GeneratorExit)
        else "internal_error"
    )
