"""The objects of one kind in one namespace, kept up to date by a watch: for a process that reads a few."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp

from .client import Client
from .errors import ApiError
from .resource import Obj, Resource

log = logging.getLogger(__name__)

WATCH_SECONDS = 240
SILENCE_SECONDS = WATCH_SECONDS + 30
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
MAX_EVENT_BYTES = 8 << 20


async def follow(
    client: Client,
    resource: Resource,
    namespace: str,
    changed: Callable[[Mapping[str, Obj]], None],
    *,
    label_selector: str = "",
    field_selector: str = "",
) -> None:
    """Call `changed` with all objects by name, first once they are listed and then whenever one changes.

    Runs until cancelled. A watch that breaks is begun again with a list; meanwhile the last state stands.
    """
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            objects: dict[str, Obj] = {}
            version = 0
            pages = client.pages(
                resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
            )
            async for page in pages:
                objects |= {item["metadata"]["name"]: item for item in page.items}
                version = page.resource_version
            changed(objects)
            pause = FIRST_PAUSE_SECONDS
            async for event in _watch(client, resource, namespace, version, selectors):
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    objects.pop(name, None)
                else:
                    objects[name] = event["object"]
                changed(objects)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as error:
            log.warning(
                "%s cannot be watched, tried again in %.1f s: %s", resource, pause, error or type(error).__name__
            )
            await asyncio.sleep(pause * (1 - 0.5 * random.random()))  # noqa: S311 - it only spreads retries
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)


async def _watch(
    client: Client, resource: Resource, namespace: str, version: int, selectors: Mapping[str, str]
) -> AsyncIterator[Obj]:
    """Events since `version`, until the server ends the watch or forgets that version."""
    params = {
        "watch": "true",
        "resourceVersion": str(version),
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(WATCH_SECONDS),
        **selectors,
    }
    url = client.config.server + resource.path(namespace)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=SILENCE_SECONDS)
    async with client.new_session() as session, session.get(url, params=params, timeout=timeout) as response:
        response.raise_for_status()
        rest = b""
        async for part in response.content.iter_any():
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > MAX_EVENT_BYTES:
                raise ValueError("an event is too large")
            for line in lines:
                if not line.strip():
                    continue
                event: Obj = json.loads(line)
                if event["type"] == "ERROR":
                    return  # most often 410: the version is too old, and a list begins anew
                if event["type"] != "BOOKMARK":
                    yield event
