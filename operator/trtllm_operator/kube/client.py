"""Server-side apply, and the few other calls an operator makes, on aiohttp."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import aiohttp

from trtllm_operator.kube.encoding import go_json
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.kubeconfig import ClusterConfig
from trtllm_operator.kube.pause import Pause
from trtllm_operator.kube.resource import POD, Obj, Resource, key_of

Propagation = Literal["Background", "Foreground", "Orphan"]

#: Objects in one page of a LIST.
PAGE = 500
_APPLY_TYPE = "application/apply-patch+yaml"
_METADATA_TYPE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Call(NamedTuple):
    """What calls are counted by; `code` is 0 where the server was not reached."""

    verb: str
    resource: str
    code: int


@dataclass(frozen=True)
class Page:
    """One page of a LIST; `resource_version` is the moment the whole list shows."""

    items: list[Obj]
    resource_version: int


class Client:
    """Calls to one API server under one field manager.

    Every failure is an `ApiError`. When the server is in trouble (429, 5xx, lost connections) all calls wait together
    and one of them goes first (`pause`). Nothing is retried here: who called knows whether the call still makes sense.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        field_manager: str,
        timeout_seconds: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.field_manager = field_manager
        self.pause = Pause(clock=clock)
        #: Calls since the start, by verb, resource and answer.
        self.calls: Counter[Call] = Counter()
        self._timeout_seconds = timeout_seconds
        self._connector: aiohttp.TCPConnector | None = None
        self._session: aiohttp.ClientSession | None = None

    def writes(self) -> int:
        """Calls so far that could have changed the cluster, whatever their answer."""
        return sum(n for call, n in self.calls.items() if call.verb not in ("get", "list", "logs"))

    def new_session(self, on_answer: Callable[[aiohttp.ClientResponse], None] | None = None) -> aiohttp.ClientSession:
        """A session on the shared connections, which may be closed without closing them.

        `on_answer` sees every answer once its headers are there.
        """
        if self._connector is None:
            self._connector = aiohttp.TCPConnector(limit=0, ssl=self.config.ssl_context, keepalive_timeout=60)

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            if token := self.config.token():
                request.headers["Authorization"] = f"Bearer {token}"
            response = await handler(request)
            if on_answer:
                on_answer(response)
            return response

        return aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            middlewares=[authorize],
            headers={"User-Agent": self.field_manager},
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session:
            await self._session.close()
        if self._connector:
            await self._connector.close()
        self._session = self._connector = None

    async def get(self, resource: Resource, namespace: str, name: str, *, urgent: bool = False) -> Obj:
        """One object. Raises a not-found `ApiError` where it, or its kind, is not there."""
        return await self._json("get", "GET", resource, resource.path(namespace, name), urgent=urgent)

    async def version(self, resource: Resource, namespace: str, name: str) -> str | None:
        """What changes whenever the object does, or another one has its name; None where there is none.

        Only metadata are asked for, and nothing else of them is kept.
        """
        path = resource.path(namespace, name)
        try:
            meta = (await self._json("get", "GET", resource, path, accept=_METADATA_TYPE))["metadata"]
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return f"{meta['uid']}/{meta['resourceVersion']}"

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> AsyncIterator[Page]:
        """All objects of one moment, page by page; in all namespaces unless one is named."""
        params = {"limit": str(limit)}
        if label_selector:
            params["labelSelector"] = label_selector
        if field_selector:
            params["fieldSelector"] = field_selector
        while True:
            body = await self._json("list", "GET", resource, resource.path(namespace), params=params)
            # The items of a list carry neither; everything else that handles objects counts on both.
            head = {"apiVersion": resource.api_version, "kind": resource.kind}
            yield Page([head | item for item in body["items"]], int(body["metadata"]["resourceVersion"]))
            if not (token := body["metadata"].get("continue")):
                return
            params["continue"] = token

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> list[Obj]:
        """All objects of one moment; in all namespaces unless one is named."""
        pages = self.pages(
            resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector, limit=limit
        )
        return [item async for page in pages for item in page.items]

    async def apply(self, resource: Resource, obj: Obj, *, subresource: str = "", force: bool = True) -> Obj:
        """Server-side apply of exactly the fields in `obj`; the object as it is then.

        With a subresource (`status`) under a field manager of its own. `force` takes fields from other managers;
        without it a conflict is an `ApiError` that names manager and field. A `metadata.uid` in `obj` is a
        precondition, though not for a status. Fields that the schema does not declare are refused.
        """
        key = key_of(obj)
        manager = f"{self.field_manager}-{subresource}" if subresource else self.field_manager
        return await self._json(
            "apply",
            "PATCH",
            resource,
            resource.path(key.namespace, key.name, subresource),
            body=obj,
            content_type=_APPLY_TYPE,
            params={"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"},
        )

    async def create(self, resource: Resource, obj: Obj, *, urgent: bool = False) -> Obj:
        """Create `obj`; an already-exists `ApiError` where its name is taken."""
        return await self._json(
            "create",
            "POST",
            resource,
            resource.path(key_of(obj).namespace),
            body=obj,
            params={"fieldManager": self.field_manager, "fieldValidation": "Strict"},
            urgent=urgent,
        )

    async def merge(self, resource: Resource, obj: Obj, changes: Obj) -> Obj:
        """Merge `changes` into this very object as it was seen; a conflict `ApiError` where it is another by now."""
        key, meta = key_of(obj), obj["metadata"]
        exactly = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        return await self._json(
            "patch",
            "PATCH",
            resource,
            resource.path(key.namespace, key.name),
            body={**changes, "metadata": {**changes.get("metadata", {}), **exactly}},
            content_type="application/merge-patch+json",
            params={"fieldManager": self.field_manager, "fieldValidation": "Strict"},
        )

    async def replace(
        self, resource: Resource, obj: Obj, *, urgent: bool = False, encode: Callable[[Obj], bytes] = go_json
    ) -> Obj:
        """Replace an object; a conflict `ApiError` unless its resourceVersion is still the one in `obj`."""
        key = key_of(obj)
        return await self._json(
            "update",
            "PUT",
            resource,
            resource.path(key.namespace, key.name),
            body=obj,
            params={"fieldManager": self.field_manager, "fieldValidation": "Strict"},
            urgent=urgent,
            encode=encode,
        )

    async def delete(
        self, resource: Resource, obj: Obj, *, propagation: Propagation = "Background", exact_version: bool = False
    ) -> bool:
        """Delete this very object (its uid; with `exact_version` only as it was seen). False where it was gone."""
        key, meta = key_of(obj), obj["metadata"]
        preconditions = {"uid": meta["uid"]}
        if exact_version:
            preconditions["resourceVersion"] = meta["resourceVersion"]
        try:
            await self._json(
                "delete",
                "DELETE",
                resource,
                resource.path(key.namespace, key.name),
                body={
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "propagationPolicy": propagation,
                    "preconditions": preconditions,
                },
            )
        except ApiError as error:
            # A conflict over the uid means that ours is gone and another one has its name.
            if error.is_not_found or (error.is_conflict and not exact_version):
                return False
            raise
        return True

    async def open_api(self, resource: Resource) -> Obj:
        """The OpenAPI 3 document of a kind's group and version, as the server serves it now."""
        return await self._json("get", "GET", resource, f"/openapi/v3/apis/{resource.group}/{resource.version}")

    async def logs(
        self, namespace: str, pod: str, container: str, *, tail_lines: int | None = None, limit_bytes: int = 1 << 20
    ) -> str:
        """What a container wrote, its last lines where `tail_lines` are given, and at most `limit_bytes` from there."""
        path = POD.path(namespace, pod, "log")
        params = {"container": container, "limitBytes": str(limit_bytes)}
        if tail_lines is not None:
            params["tailLines"] = str(tail_lines)
        return (await self._call("logs", "GET", POD, path, params=params, relayed=True)).decode(errors="replace")

    async def _json(self, verb: str, method: str, resource: Resource, path: str, **request: Any) -> Obj:
        parsed: Obj = json.loads(await self._call(verb, method, resource, path, **request))
        return parsed

    async def _call(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        *,
        body: Obj | None = None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
        urgent: bool = False,
        relayed: bool = False,
        accept: str = "*/*",
        encode: Callable[[Obj], bytes] = go_json,
    ) -> bytes:
        """One request. `urgent` ones (the Lease) do not wait with the others; `relayed` ones a kubelet answers."""
        data = None if body is None else encode(body)
        if urgent:
            return await self._send(verb, method, resource, path, data, content_type, params, accept)
        async with self.pause.turn(relayed=relayed):
            return await self._send(verb, method, resource, path, data, content_type, params, accept)

    async def _send(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        body: bytes | None,
        content_type: str,
        params: dict[str, str] | None,
        accept: str,
    ) -> bytes:
        if self._session is None:
            self._session = self.new_session()
        call = f"{verb} {path}"
        status = 0
        try:
            async with self._session.request(
                method,
                self.config.server + path,
                data=body,
                params=params,
                headers={"Accept": accept, **({"Content-Type": content_type} if body is not None else {})},
                timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
            ) as response:
                raw = await response.read()
                status = response.status
                if status < 400:
                    return raw
                raise ApiError.from_status(status, _status(raw), call=call, retry_after=_retry_after(response))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status = 0
            raise ApiError(0, "Unreachable", f"{self.config.server}: {error!r}", call=call) from error
        finally:
            self.calls[Call(verb, str(resource), status)] += 1


def _status(raw: bytes) -> Obj:
    """The server's Status object; some answers ("404 page not found" of a missing kind) are plain text."""
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"message": raw[:200].decode(errors="replace").strip()}


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
