"""The store that a step's arguments name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .store import Store
from .volume_store import VolumeStore


def open_store(where: Mapping[str, Any], scratch: Path) -> Store:
    """`where`: {"directory": of a mounted volume} or {"s3": {"bucket", "prefix", "endpoint", "region"}, "credentials":
    directory of the Secret's files}. `scratch` is a directory of the Pod, for what passes through it."""
    if "directory" in where:
        return VolumeStore(Path(where["directory"]))
    # Imported here: the client takes a third of a second, which no step on a volume has to wait for.
    from .bucket import Bucket
    from .object_store import ObjectStore

    s3 = where["s3"]
    return ObjectStore(Bucket(s3, Path(where["credentials"]), "spec.storage.s3"), s3.get("prefix", ""), scratch)
