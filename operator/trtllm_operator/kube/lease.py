"""Who works: one holder of a coordination.k8s.io Lease, which stops before another one can start."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import LEASE, Obj

log = logging.getLogger(__name__)


def pod_identity() -> str:
    """POD_NAME, so that a restarted container takes its own Lease back at once; else the host and process."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True)
class LeaseSettings:
    """Where the Lease is and how long it holds without renewal.

    It is renewed every third of `duration_seconds`; the holder stops after two thirds without a proven renewal,
    and another one starts after it has seen no renewal for the whole.
    """

    namespace: str
    name: str
    duration_seconds: int = 15
    identity: str = field(default_factory=pod_identity)

    @property
    def renew_seconds(self) -> float:
        """How often the holder renews, and another one looks."""
        return self.duration_seconds / 3

    @property
    def deadline_seconds(self) -> float:
        """How long the holder works on without a proven renewal."""
        return self.duration_seconds * 2 / 3


@dataclass(frozen=True)
class Seen:
    """A version of the Lease and when, on our own clock, it was first seen."""

    resource_version: str
    at: float


Decision = Literal["create", "renew", "take", "wait"]


def decide(lease: Obj | None, seen: Seen | None, identity: str, now: float) -> Decision:
    """What to do about a Lease as it was just read.

    Only our own clock counts: another's Lease has run out when its duration passed on our clock since we first saw
    its present version. Times written by other machines are never compared with ours.
    """
    if lease is None:
        return "create"
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == identity:
        return "renew"
    if not holder:
        return "take"
    if seen is None or seen.resource_version != lease["metadata"]["resourceVersion"]:
        return "wait"
    return "take" if now - seen.at >= spec.get("leaseDurationSeconds", 0) else "wait"


class Lease:
    """Holds one Lease, or waits for it. Its calls do not wait for the client's pause: time counts here."""

    def __init__(self, client: Client, settings: LeaseSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._seen: Seen | None = None
        self._held: Obj | None = None
        self._other = ""
        #: When, on our clock, the last renewal that succeeded was begun.
        self._proven = 0.0

    @property
    def is_held(self) -> bool:
        """Whether it is ours and that has been proven lately enough."""
        return self._held is not None and self._clock() - self._proven < self._settings.deadline_seconds

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        reported = ""
        while True:
            try:
                if await self._try(self._settings.renew_seconds):
                    log.info("holding the lease %s as %s", self._settings.name, self._settings.identity)
                    return
                state = f"waiting for the lease {self._settings.name}, held by {self._holder()}"
            except (ApiError, TimeoutError) as error:
                state = f"waiting for the lease {self._settings.name}: {error or 'no answer in time'}"
            if state != reported:
                log.info(state)
                reported = state
            await asyncio.sleep(self._settings.renew_seconds * random.uniform(0.8, 1.2))  # noqa: S311

    async def keep(self) -> None:
        """Renew until that fails for too long or the Lease is another's; then return, and everything must stop."""
        pause = self._settings.renew_seconds
        while (left := self._proven + self._settings.deadline_seconds - self._clock()) > 0:
            await asyncio.sleep(min(pause, left))
            left = self._proven + self._settings.deadline_seconds - self._clock()
            try:
                if not await self._try(min(left, self._settings.renew_seconds)):
                    log.error("the lease %s is held by %s now", self._settings.name, self._holder())
                    return
                pause = self._settings.renew_seconds
            except (ApiError, TimeoutError) as error:
                log.warning("lease not renewed, %.1f s left: %s", left, error or "no answer in time")
                pause = min(1.0, self._settings.renew_seconds)
        log.error("the lease %s could not be renewed for %.0f s", self._settings.name, self._settings.deadline_seconds)

    async def release(self) -> None:
        """Give the Lease to whoever asks next. Failing that it runs out by itself."""
        if self._held is None:
            return
        held, self._held = self._held, None
        spec = held["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(1):
                await self._client.replace(LEASE, held | {"spec": spec}, urgent=True)
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released, it runs out in %d s: %s", self._settings.duration_seconds, error)

    def _holder(self) -> str:
        return self._other or "nobody"

    async def _try(self, seconds: float) -> bool:
        """Read the Lease and take or renew it if we may; whether it is ours."""
        begun = self._clock()
        async with asyncio.timeout(max(0.0, seconds)):
            lease = await self._read()
            now = self._clock()
            decision = decide(lease, self._seen, self._settings.identity, now)
            self._other = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
            version = lease["metadata"]["resourceVersion"] if lease else ""
            if self._seen is None or self._seen.resource_version != version:
                self._seen = Seen(version, now)
            if decision == "wait":
                self._held = None
                return False
            try:
                self._held = await self._write(lease, decision)
            except ApiError as error:
                if error.is_conflict or error.is_already_exists:
                    return False
                raise
        self._proven = begun
        return True

    async def _read(self) -> Obj | None:
        try:
            return await self._client.get(LEASE, self._settings.namespace, self._settings.name, urgent=True)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _write(self, lease: Obj | None, decision: Decision) -> Obj:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = dict((lease or {}).get("spec") or {})
        if decision != "renew":
            spec |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", -1) + 1}
        spec |= {
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._settings.duration_seconds,
            "renewTime": now,
        }
        if lease:
            return await self._client.replace(LEASE, lease | {"spec": spec}, urgent=True)
        metadata = {"namespace": self._settings.namespace, "name": self._settings.name}
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
        return await self._client.create(LEASE, body, urgent=True)
