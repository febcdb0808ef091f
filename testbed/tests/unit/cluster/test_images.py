"""OCI archives: what is read of them and what is written."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from testbed.cluster import ClusterError, images


def archive(path: Path, *names: str | None) -> Path:
    """An archive whose index lists images of these names."""
    manifests = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": f"sha256:{index:064x}",
            "size": 1,
            "annotations": {} if name is None else {"org.opencontainers.image.ref.name": name},
        }
        for index, name in enumerate(names)
    ]
    content = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("index.json")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return path


def test_an_image_can_be_named_by_its_digest(tmp_path: Path) -> None:
    (image,) = images.read(archive(tmp_path / "image.oci", "registry.example.com:5000/team/operator:1.2"))
    assert image.by_digest == f"registry.example.com:5000/team/operator@sha256:{0:064x}"


@pytest.mark.parametrize("name", [None, "latest", "docker.io/local/operator", "registry.example.com:5000/operator"])
def test_an_image_without_a_full_name_is_refused(tmp_path: Path, name: str | None) -> None:
    with pytest.raises(ClusterError, match="a full name with a tag is needed"):
        images.read(archive(tmp_path / "image.oci", name))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.oci"
    path.write_text("nothing of the kind")
    with pytest.raises(ClusterError, match="is no OCI archive"):
        images.read(path)
    with pytest.raises(ClusterError, match="there is no"):
        images.read(tmp_path / "none.oci")


def test_a_written_image_is_whole_and_the_same_every_time(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF and so on")
    first, second = tmp_path / "first.oci", tmp_path / "second.oci"
    images.write_static(program, images.PAUSE_IMAGE, first)
    images.write_static(program, images.PAUSE_IMAGE, second)
    assert first.read_bytes() == second.read_bytes()

    (image,) = images.read(first)
    assert image.name == images.PAUSE_IMAGE
    with tarfile.open(first) as tar:
        blobs = {
            name.rsplit("/", 1)[1]: content.read()
            for name in tar.getnames()
            if name.startswith("blobs/") and (content := tar.extractfile(name))
        }
    assert all(hashlib.sha256(blob).hexdigest() == digest for digest, blob in blobs.items())
    manifest = json.loads(blobs[image.digest.removeprefix("sha256:")])
    for part in (manifest["config"], *manifest["layers"]):
        assert len(blobs[part["digest"].removeprefix("sha256:")]) == part["size"]
    layer = blobs[manifest["layers"][0]["digest"].removeprefix("sha256:")]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(entry.name, entry.mode) for entry in tar] == [("pause", 0o755)]
