"""The way images are built: the same digest each time, on the base's own layer, with nothing of this machine inside."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from testbed.images import buildah, oci
from testbed.images.build import build_all
from testbed.images.cache import BuiltImage, Cache, cache_directory
from testbed.images.errors import BuildError
from testbed.progress import PROGRESS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root")

REFERENCE = "docker.io/llmengine/test:1"


@pytest.fixture(scope="module")
def base() -> BuiltImage:
    return build_all(Cache(cache_directory()), [], PROGRESS)["base"]


def build(base: BuiltImage, work: Path, instructions: str) -> Path:
    context, wheels = work / "context", work / "wheels"
    for directory in (context, wheels, work / "build"):
        directory.mkdir(parents=True)
    containerfile = context / "Containerfile"
    containerfile.write_text(f"ARG BASE=nothing\nFROM ${{BASE}}\n{instructions}\n")
    archive = work / "image.tar"
    buildah.build(
        containerfile=containerfile,
        context=context,
        base=Path(base.archive),
        wheels=wheels,
        reference=REFERENCE,
        archive=archive,
        work=work / "build",
        log=work / "log",
    )
    return archive


def test_a_build_is_repeatable_and_leaves_no_trace_of_the_machine(base: BuiltImage, tmp_path: Path) -> None:
    instructions = "RUN ls /root/wheels && date +%N > /dev/null && echo made > /made"
    archives = [build(base, tmp_path / name, instructions) for name in ("first", "second")]
    first, second = (oci.read(archive) for archive in archives)
    assert first == second
    assert first.reference == REFERENCE
    assert first.layers[:-1] == base.layers, "the base's layer is shared, so a node keeps it once"

    with tarfile.open(archives[0]) as tar:
        blob = tar.extractfile("blobs/sha256/" + first.layers[-1].removeprefix("sha256:"))
        assert blob is not None
        with tarfile.open(fileobj=io.BytesIO(blob.read())) as layer:
            files = {member.name for member in layer if not member.isdir()}
            assert files == {"made"}
            assert {member.mtime for member in layer} == {0}
    assert os.fsencode(tmp_path) not in archives[0].read_bytes()


def test_pip_finds_the_given_wheels_and_nothing_else(base: BuiltImage, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="No matching distribution found for attrs"):
        build(base, tmp_path, "RUN python3 -m pip install --root-user-action=ignore attrs")
    assert not list((tmp_path / "build").glob("storage/overlay/*/merged/*")), "a mount was left behind"
