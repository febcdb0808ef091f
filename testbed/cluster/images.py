"""OCI archives: reading their names, writing the pause image, importing them into a node's containerd."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path

from testbed.cluster.errors import ClusterError
from testbed.cluster.processes import run

PAUSE_IMAGE = "docker.io/local/pause:1"
"""Of every Pod's sandbox."""
PROBE_IMAGE = "docker.io/local/probe:1"
"""For the cluster's own tests."""
NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
IMPORT_SECONDS = 600
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """One image of an archive: its full name with its tag, and the digest of its manifest."""

    name: str
    digest: str

    @property
    def by_digest(self) -> str:
        """repository@digest, which a Pod can name to get exactly this image."""
        return f"{self.name.rsplit(':', 1)[0]}@{self.digest}"


def read(archive: Path) -> list[Image]:
    """The images of an OCI archive. Each must carry a full name such as docker.io/local/operator:1."""
    try:
        with tarfile.open(archive) as tar:
            member = tar.extractfile("index.json")
            index = json.load(member) if member else {}
    except FileNotFoundError as error:
        raise ClusterError(f"there is no {archive}") from error
    except (KeyError, ValueError, tarfile.TarError) as error:
        raise ClusterError(f"{archive} is no OCI archive: {error}") from error
    images = []
    for manifest in index.get("manifests", ()):
        annotations = manifest.get("annotations", {})
        name = next((annotations[key] for key in NAME_ANNOTATIONS if key in annotations), "")
        if "/" not in name or ":" not in name.rsplit("/", 1)[1]:
            raise ClusterError(f"an image of {archive} is called {name!r}: a full name with a tag is needed")
        images.append(Image(name, manifest["digest"]))
    return images


def import_archive(ctr: Path, socket: Path, archive: Path) -> list[Image]:
    """Imports an archive into one containerd that lacks its images, and names each of them by digest as well."""
    control = (ctr, "--address", socket, "--namespace", "k8s.io", "images")
    images = read(archive)
    present = set(run(*control, "list", "--quiet").split())
    if not all(image.by_digest in present for image in images):
        run(*control, "import", "--local", archive, timeout_seconds=IMPORT_SECONDS)
        for image in images:
            run(*control, "tag", "--force", image.name, image.by_digest)
    for image in images:
        # The tag may have moved to another image since this one was imported.
        if image.by_digest in present:
            run(*control, "tag", "--force", image.by_digest, image.name)
    return images


def write_static(program: Path, name: str, archive: Path) -> None:
    """Writes an OCI archive of an image that is one static program and runs it. Same input, same bytes."""
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    ).encode()
    named = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    index = {"schemaVersion": 2, "manifests": [{**named, "annotations": {NAME_ANNOTATIONS[0]: name}}]}
    blobs = {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in (layer, config, manifest)}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    archive.write_bytes(_tar(files, mode=0o644))


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, str | int]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
