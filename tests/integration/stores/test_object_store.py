"""The store in a bucket, against a real S3 server: publication, verification, staging, removal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError

from trtllm_operator.runner import manifest
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import bucket as bucket_module
from trtllm_operator.steps.store import Content

from .conftest import BUILD, FILES, INPUTS, PREFIX, Space


def key_of(path: str, content: bytes) -> str:
    return f"engine-1/{hashlib.sha256(content).hexdigest()}/{path}"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """The smallest part that S3 takes, in bytes."""
    monkeypatch.setattr(bucket_module, "PART_BYTES", 5 << 20)
    return 5 << 20


class TestPublish:
    def test_the_manifest_names_every_file_and_the_objects_their_content(self, space: Space) -> None:
        published = space.publish(space.output())
        assert sorted(space.listing()) == sorted(["engine-1/manifest.json", *(key_of(*file) for file in FILES.items())])
        data = space.server.client.get_object(Bucket=space.name, Key=f"{PREFIX}/engine-1/manifest.json")["Body"].read()
        assert hashlib.sha256(data).hexdigest() == published.digest
        assert json.loads(data)["inputs"] == INPUTS
        assert published.report() | {"manifestDigest": ""} == {
            "manifestDigest": "",
            "sizeBytes": 60_004,
            "files": 3,
            "build": BUILD,
        }
        assert space.store().verify("engine-1").digest == published.digest

    def test_a_large_file_goes_in_parts(self, space: Space, small_parts: int) -> None:
        space.publish(space.output({"rank0.engine": b"0123456789abcdef" * (2 * small_parts // 16) + b"the rest"}))
        head = space.server.client.list_objects_v2(Bucket=space.name, Prefix=f"{PREFIX}/engine-1/")["Contents"]
        assert any(o["ETag"].strip('"').endswith("-3") for o in head), "three parts"
        space.store().verify("engine-1")
        assert space.uploads() == []

    def test_what_a_dead_publisher_left_is_invisible_and_goes_with_the_next(self, space: Space) -> None:
        space.put(f"{PREFIX}/engine-1/{'0' * 64}/rank0.engine", b"of an earlier attempt")
        space.put(f"{PREFIX}/engine-10/{'0' * 64}/rank0.engine", b"of another artifact")
        space.server.client.create_multipart_upload(Bucket=space.name, Key=f"{PREFIX}/engine-1/{'1' * 64}/rank0.engine")
        assert not space.store().has("engine-1")
        space.publish(space.output())
        assert len([key for key in space.listing() if key.startswith("engine-1/")]) == len(FILES) + 1
        assert [key for key in space.listing() if key.startswith("engine-10/")]
        assert space.uploads() == []

    def test_a_published_artifact_is_never_written_again(self, space: Space) -> None:
        first = space.publish(space.output())
        second = space.publish(space.output({**FILES, "rank0.engine": b"built again, and not alike"}, "again"))
        assert second.digest == first.digest, "the one that was there is what is reported"
        space.store().verify("engine-1")
        assert len(space.listing()) == len(FILES) + 1, "nothing of the loser's stays"

    def test_a_server_that_ignores_conditions_is_refused(self, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some older servers take If-None-Match and overwrite all the same."""

        def unconditional(self: bucket_module.Bucket, key: str, content: bytes) -> None:
            self._client.put_object(Bucket=self.name, Key=key, Body=content)

        monkeypatch.setattr(bucket_module.Bucket, "create", unconditional)
        with pytest.raises(StepError, match="ignores conditional writes") as caught:
            space.publish(space.output())
        assert (caught.value.reason, caught.value.retryable) == ("StorageRefused", False)
        assert space.listing() == []


class TestDamage:
    @pytest.fixture(autouse=True)
    def published(self, space: Space) -> None:
        space.publish(space.output())

    def damage(self, space: Space, content: bytes | None) -> None:
        key = f"{PREFIX}/{key_of('rank0.engine', FILES['rank0.engine'])}"
        if content is None:
            space.server.client.delete_object(Bucket=space.name, Key=key)
        else:
            space.put(key, content)

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"x" * 60_000, "rank0.engine has SHA-256 [0-9a-f]{64}, the manifest says"),
            (b"short", "rank0.engine has 5 bytes, the manifest says 60000"),
            (None, "rank0.engine is not there"),
        ],
        ids=["changed", "cut off", "gone"],
    )
    def test_it_is_told_before_anything_is_made_of_it(self, space: Space, content: bytes | None, told: str) -> None:
        self.damage(space, content)
        for use in (space.store().verify, space.store("server").provide):
            with pytest.raises(StepError, match=told) as caught:
                use("engine-1")
            assert (caught.value.reason, caught.value.artifact) == ("ArtifactCorrupted", "engine-1")
            assert f"s3://{space.name}/{PREFIX}/engine-1" in caught.value.message
        assert not (space.root / "server" / "store" / "engine-1" / "manifest.json").exists()

    @pytest.mark.parametrize(
        "content",
        [b"", b"[]", b"{}", b'{"manifestVersion": 1, "files": [{"path": "../../out", "size": 1, "sha256": ""}]}'],
    )
    def test_a_manifest_that_is_none(self, space: Space, content: bytes) -> None:
        space.put(f"{PREFIX}/engine-1/manifest.json", content)
        with pytest.raises(StepError, match=r"manifest\.json (cannot be read|names \.\./\.\./out)"):
            space.store().verify("engine-1")

    def test_after_its_removal_it_can_be_published_again(self, space: Space) -> None:
        self.damage(space, b"x")
        space.store().remove("engine-1")
        assert not space.store().has("engine-1")
        space.publish(space.output())
        space.store().verify("engine-1")


class TestProvide:
    def test_what_is_provided_is_what_the_runner_verifies(self, space: Space) -> None:
        space.publish(space.output())
        directory = space.store("server").provide("engine-1")
        assert directory == space.root / "server" / "store" / "engine-1"
        assert manifest.verify(directory)["build"] == BUILD
        assert {p: (directory / p).read_bytes() for p in FILES} == FILES

    def test_a_part_of_the_files_has_a_manifest_of_that_part(self, space: Space) -> None:
        space.publish(space.output())
        directory = space.store("server").provide("engine-1", lambda path: not path.endswith(".engine"))
        assert not (directory / "rank0.engine").exists()
        assert {entry["path"] for entry in manifest.verify(directory)["files"]} == FILES.keys() - {"rank0.engine"}

    def test_an_interrupted_one_is_gone_on_with(self, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        content = bytes(range(256)) * 40_000
        space.publish(space.output({"rank0.engine": content, "config.json": b"{}"}))
        starts: list[int] = []
        stream = bucket_module.Bucket.stream

        def broken(self: bucket_module.Bucket, key: str, size: int, **options: object) -> object:
            for number, chunk in enumerate(stream(self, key, size, **options)):  # type: ignore[arg-type]
                if number == 3:
                    raise KeyboardInterrupt
                yield chunk

        monkeypatch.setattr(bucket_module.Bucket, "stream", broken)
        with pytest.raises(KeyboardInterrupt):
            space.store("server").provide("engine-1")

        def watched(self: bucket_module.Bucket, key: str, size: int, **options: object) -> object:
            starts.append(options.get("start", 0))  # type: ignore[arg-type]
            return stream(self, key, size, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(bucket_module.Bucket, "stream", watched)
        directory = space.store("server").provide("engine-1")
        assert starts == [3 * bucket_module.CHUNK_BYTES], "one file, from where it had broken off"
        assert (directory / "rank0.engine").read_bytes() == content
        manifest.verify(directory)

    def test_a_connection_that_breaks_is_gone_on_with_at_once(
        self, space: Space, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = bytes(range(256)) * 40_000
        space.publish(space.output({"rank0.engine": content}))
        chunks = bucket_module.Bucket._chunks
        starts: list[int] = []

        def breaking(self: bucket_module.Bucket, key: str, start: int, etag: str | None) -> object:
            starts.append(start)
            for number, chunk in enumerate(chunks(self, key, start, etag)):
                if number == 2 and len(starts) < 4:
                    raise BotoCoreError
                yield chunk

        monkeypatch.setattr(bucket_module.Bucket, "_chunks", breaking)
        directory = space.store("server").provide("engine-1")
        assert starts == [0, 2 << 20, 4 << 20, 6 << 20]
        assert (directory / "rank0.engine").read_bytes() == content

    def test_after_a_rebuild_only_what_differs_is_fetched(self, space: Space) -> None:
        space.publish(space.output())
        directory = space.store("server").provide("engine-1")
        kept = (directory / "lora/0/adapter_config.json").stat().st_ino
        space.store().remove("engine-1")
        space.publish(space.output({**FILES, "rank0.engine": b"another"}, "rebuilt"))
        space.store("server").provide("engine-1")
        assert (directory / "rank0.engine").read_bytes() == b"another"
        assert (directory / "lora/0/adapter_config.json").stat().st_ino == kept
        manifest.verify(directory)


class TestRemove:
    def test_nothing_of_the_artifact_stays_and_all_of_others(self, space: Space) -> None:
        space.publish(space.output())
        space.publish(space.output(), "engine-10")
        space.put(f"{PREFIX}/engine-1/{'0' * 64}/left", b"by an attempt")
        space.server.client.create_multipart_upload(Bucket=space.name, Key=f"{PREFIX}/engine-1/{'1' * 64}/left")
        space.store().remove("engine-1")
        assert all(key.startswith("engine-10/") for key in space.listing())
        assert space.uploads() == []
        space.store().verify("engine-10")
        space.store().remove("engine-1")


class TestReceive:
    def test_files_that_were_brought_are_not_brought_again(self, space: Space) -> None:
        files = {"config.json": b"{}", "a.safetensors": b"a" * 1000, "b.safetensors": b"b" * 1000}
        sizes = {path: len(content) for path, content in files.items()}
        asked: list[str] = []

        def download(paths: tuple[str, ...], directory: Path, fails: str = "b.safetensors") -> None:
            for path in paths:
                asked.append(path)
                if path == fails:
                    raise StepError("HubUnreachable", "gone", retryable=True)
                (directory / path).write_bytes(files[path])

        content = Content("model-1", "Model", {}, {})
        with pytest.raises(StepError, match="gone"):
            space.store().receive(content, sizes, download)
        assert not space.store().has("model-1")
        asked.clear()
        published = space.store("another").receive(content, sizes, lambda p, d: download(p, d, fails=""))
        assert asked == ["b.safetensors"]
        assert published.manifest["build"].keys() == {"durationSeconds"}
        assert list((space.root / "another" / "incoming").iterdir()) == [], "the scratch directory is free again"
        space.store().verify("model-1")
