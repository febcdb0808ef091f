"""How a Pod reaches the store: a claim that its containers mount, or a bucket that the operator's own image talks to.

In a bucket's case the operator's image brings what the others read into the scratch directory, and its credentials are
files that the others do not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .api.common import StoreLocation
from .api.engineartifact import EngineArtifactSpec
from .objects import RUNNER, SCRATCH

STORE = "/store"
CREDENTIALS = "/var/run/secrets/llmengine/store"
SECRET_MODE = 0o440


@dataclass(frozen=True)
class Access:
    """A store and the name of the Secret that opens it, if it needs one."""

    location: StoreLocation
    secret: str | None = None

    @property
    def argument(self) -> dict[str, Any]:
        """The store as a step's arguments name it."""
        if self.location.s3:
            return {"s3": self.location.s3.dump(), "credentials": CREDENTIALS}
        return {"directory": STORE}

    @property
    def directory(self) -> str:
        """Where all containers find artifacts by their names, once a step has provided them."""
        return f"{SCRATCH}/store" if self.location.s3 else STORE


def access(spec: EngineArtifactSpec) -> Access:
    """As an artifact's own inputs and policy say."""
    secret = spec.policy.store_secret_ref
    return Access(spec.inputs.storage, secret.name if secret else None)


def volumes(store: Access, *, runner: str | None = None, shared_memory: str | None = None) -> list[dict[str, Any]]:
    """The store or what opens it, scratch space, a writable /tmp; with `runner` its ConfigMap, with `shared_memory` as
    much of /dev/shm."""
    out: list[dict[str, Any]] = []
    if claim := store.location.persistent_volume_claim:
        out.append({"name": "store", "persistentVolumeClaim": {"claimName": claim.claim_name}})
    elif store.secret:
        out.append(secret_volume("store-credentials", store.secret))
    out += [{"name": "scratch", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    if shared_memory:
        out.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}})
    if runner:
        out.append({"name": "runner", "configMap": {"name": runner}})
    return out


def step_mounts(store: Access, *, writable: bool = False) -> list[dict[str, Any]]:
    """Mounts of a step's container; only what publishes or removes gets a writable store."""
    opened = [] if store.location.persistent_volume_claim or not store.secret else ["store-credentials"]
    return _mounts(store, writable) + [{"name": name, "mountPath": CREDENTIALS, "readOnly": True} for name in opened]


def work_mounts(store: Access) -> list[dict[str, Any]]:
    """Mounts of a container of the toolchain's image: it writes to no store and holds no credentials."""
    return [
        *_mounts(store, writable=False),
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 (in the Pod)
        {"name": "runner", "mountPath": RUNNER, "readOnly": True},
    ]


def secret_volume(name: str, secret: str) -> dict[str, Any]:
    return {"name": name, "secret": {"secretName": secret, "defaultMode": SECRET_MODE}}


def _mounts(store: Access, writable: bool) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if store.location.persistent_volume_claim:
        out.append({"name": "store", "mountPath": STORE, **({} if writable else {"readOnly": True})})
    return [*out, {"name": "scratch", "mountPath": SCRATCH}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 (in the Pod)
