"""OCI image archives: writes one of a single layer, reads the reference and digest of any."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.images.content import sha256_of
from testbed.images.errors import BuildError

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_REFERENCE = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class ArchivedImage:
    """The image in an archive."""

    reference: str
    digest: str
    """Of the manifest: what a registry, a node and an engine's key call the image."""
    layers: tuple[str, ...]
    """Digests, the base's first."""


def write_single_layer(archive: Path, layer: Path, reference: str, config: Mapping[str, Any]) -> None:
    """Write `archive`: the image `reference` (linux/amd64) whose one layer is the tar file `layer`, uncompressed.

    The same layer and config give the same digest.
    """
    layer_digest = sha256_of(layer)
    config_bytes = _canonical(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": reference}],
        }
    )
    manifest_bytes = _canonical(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config_bytes),
            "layers": [{"mediaType": _LAYER, "digest": f"sha256:{layer_digest}", "size": layer.stat().st_size}],
        }
    )
    index = {
        "schemaVersion": 2,
        "manifests": [{**_descriptor(_MANIFEST, manifest_bytes), "annotations": {_REFERENCE: reference}}],
    }
    with tarfile.open(archive, "w") as tar:
        for name, data in (
            ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
            ("index.json", _canonical(index)),
            (_blob_path(_digest(config_bytes)), config_bytes),
            (_blob_path(_digest(manifest_bytes)), manifest_bytes),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo(_blob_path(f"sha256:{layer_digest}"))
        member.size = layer.stat().st_size
        with layer.open("rb") as file:
            tar.addfile(member, file)


def read(archive: Path) -> ArchivedImage:
    """The one image in `archive`.

    Raises:
        BuildError: it holds none, or several.
    """
    with tarfile.open(archive) as tar:

        def load(name: str) -> Any:
            file = tar.extractfile(name)
            if file is None:
                raise BuildError(f"{archive}: {name} is no file")
            return json.load(file)

        manifests = load("index.json")["manifests"]
        if len(manifests) != 1:
            raise BuildError(f"{archive} holds {len(manifests)} images; one was expected")
        (entry,) = manifests
        manifest = load(_blob_path(entry["digest"]))
    return ArchivedImage(
        reference=entry["annotations"][_REFERENCE],
        digest=entry["digest"],
        layers=tuple(layer["digest"] for layer in manifest["layers"]),
    )


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _blob_path(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")
