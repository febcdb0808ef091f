"""The cache gives an image back only if it is there whole, and keeps few old ones."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from testbed.images import cache as cache_module
from testbed.images import oci
from testbed.images.cache import Cache, cache_directory
from testbed.images.errors import BuildError
from testbed.progress import Progress


def archive(directory: Path, text: str = "layer") -> Path:
    layer = directory / "layer.tar"
    layer.write_text(text)
    written = directory / "new.tar"
    oci.write_single_layer(written, layer, "docker.io/llmengine/test:1", {"Cmd": ["true"]})
    return written


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    directory = tmp_path / "cache"
    directory.mkdir()
    return Cache(directory)


def test_an_added_image_is_found_by_its_key_alone(cache: Cache, tmp_path: Path) -> None:
    added = cache.add("test", "a" * 64, archive(tmp_path))
    assert cache.find("test", "a" * 64) == added
    assert added.reference == "docker.io/llmengine/test:1"
    assert cache.find("test", "b" * 64) is None
    assert cache.find("other", "a" * 64) is None


def test_an_image_that_is_not_whole_is_not_found(cache: Cache, tmp_path: Path) -> None:
    added = cache.add("test", "a" * 64, archive(tmp_path))
    os.truncate(added.archive, 100)
    assert cache.find("test", "a" * 64) is None
    Path(added.archive).unlink()
    assert cache.find("test", "a" * 64) is None


def test_of_each_image_the_two_newest_builds_are_kept(cache: Cache, tmp_path: Path) -> None:
    for age, key in ((30, "a"), (20, "b"), (10, "c")):
        built = cache.add("test", key * 64, archive(tmp_path, key))
        record = Path(built.archive).with_suffix(".json")
        os.utime(record, (record.stat().st_mtime - age,) * 2)
    cache.add("other", "d" * 64, archive(tmp_path))
    cache.add("test", "e" * 64, archive(tmp_path))
    assert [key for key in "abcde" if cache.find("test", key * 64)] == ["c", "e"]
    assert cache.find("other", "d" * 64)
    assert len(list(cache.directory.glob("test@*.tar"))) == 2


def test_a_second_build_waits_for_the_first_and_says_when_it_gives_up(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0)
    monkeypatch.setattr(cache_module, "_LOCK_POLL_SECONDS", 0.01)
    progress = Progress(io.StringIO())
    with (
        cache.locked(progress),
        pytest.raises(BuildError, match=r"another build has held .*lock for 0 s"),
        cache.locked(progress),
    ):
        pass
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 10)
    order = []

    def second() -> None:
        with cache.locked(progress):
            order.append("second")

    thread = threading.Thread(target=second)
    with cache.locked(progress):
        thread.start()
        order.append("first")
    thread.join(timeout=10)
    assert order == ["first", "second"]


def test_what_a_killed_build_left_is_gone_when_the_next_one_works(cache: Cache) -> None:
    (cache.directory / "work" / "storage").mkdir(parents=True)
    with cache.locked(Progress(io.StringIO())) as work:
        assert list(work.iterdir()) == []
    assert not work.exists()


def test_the_cache_is_where_the_xdg_rules_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_directory() == Path("/elsewhere/llmengine-operator/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache/llmengine-operator/images"


def test_the_same_layer_and_configuration_give_the_same_digest(tmp_path: Path) -> None:
    first = archive(tmp_path)
    digests = [oci.read(first).digest]
    first.unlink()
    digests.append(oci.read(archive(tmp_path)).digest)
    assert digests[0] == digests[1]
    assert oci.read(archive(tmp_path, "another")).digest != digests[0]


def test_a_written_archive_holds_each_blob_under_its_own_hash(tmp_path: Path) -> None:
    """What containerd checks on import."""
    with tarfile.open(archive(tmp_path)) as tar:
        blobs = [member for member in tar if member.name.startswith("blobs/")]
        assert len(blobs) == 3
        for member in blobs:
            file = tar.extractfile(member)
            assert file is not None
            assert hashlib.sha256(file.read()).hexdigest() == member.name.removeprefix("blobs/sha256/")
