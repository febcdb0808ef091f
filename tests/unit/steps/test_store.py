from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.runner.report import StepError
from trtllm_operator.steps.store import Content, Published
from trtllm_operator.steps.volume_store import VolumeStore as Store

FILES = {"config.json": b"{}", "rank0.engine": b"engine" * 10_000, "lora/0/adapter_config.json": b"{}"}
INPUTS = {"parent": "checkpoint-1"}
BUILD = {"gpu": "NVIDIA H100 80GB HBM3", "durationSeconds": 7}


def write(directory: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return write(tmp_path / "output")


def publish(store: Store, output: Path, owner: str = "uid-1") -> Published:
    return store.publish(Content("engine-1", "Engine", INPUTS, BUILD), output, owner)


def assert_nothing_half_made(store: Store) -> None:
    """What the store promises: a directory with the final name is complete."""
    if store.has("engine-1"):
        published = store.verify("engine-1")
        assert {entry["path"] for entry in published.manifest["files"]} == set(FILES)


class TestPublish:
    def test_the_manifest_names_every_file_with_size_and_digest(self, store: Store, output: Path) -> None:
        published = publish(store, output)
        data = (store.directory("engine-1") / "manifest.json").read_bytes()
        assert published.digest == hashlib.sha256(data).hexdigest()
        assert json.loads(data) == {
            "manifestVersion": 1,
            "artifact": "engine-1",
            "type": "Engine",
            "inputs": INPUTS,
            "build": BUILD,
            "files": [
                {"path": path, "size": len(FILES[path]), "sha256": hashlib.sha256(FILES[path]).hexdigest()}
                for path in sorted(FILES)
            ],
        }

    def test_the_report_is_what_the_status_shows(self, store: Store, output: Path) -> None:
        report = publish(store, output).report()
        assert (report["files"], report["sizeBytes"], report["build"]) == (3, 60_004, BUILD)

    def test_nothing_is_left_in_staging(self, store: Store, output: Path) -> None:
        write(store._staging("engine-1", "an attempt that was killed"))
        write(store._staging("engine-10", "another artifact"))
        publish(store, output)
        assert [path.name for path in (store.root / ".staging").iterdir()] == ["engine-10.another artifact"]

    def test_readers_of_another_user_can_read_it(self, store: Store, output: Path) -> None:
        before = os.umask(0o077)
        try:
            publish(store, output)
        finally:
            os.umask(before)
        directory = store.directory("engine-1")
        assert (directory / "lora" / "0").stat().st_mode & 0o777 == 0o755
        assert (directory / "rank0.engine").stat().st_mode & 0o777 == 0o644

    def test_a_link_is_refused(self, store: Store, output: Path) -> None:
        (output / "rank1.engine").symlink_to("/dev/null")
        with pytest.raises(StepError, match=r"rank1\.engine is a link"):
            publish(store, output)
        assert not store.has("engine-1")


class TestVerify:
    @pytest.fixture(autouse=True)
    def published(self, store: Store, output: Path) -> None:
        publish(store, output)

    @pytest.mark.parametrize(
        ("damage", "told"),
        [
            (
                lambda engine: engine.write_bytes(b"x" * 60_000),
                "rank0.engine has SHA-256 [0-9a-f]{64}, the manifest says",
            ),
            (lambda engine: engine.write_bytes(b"x"), "rank0.engine has 1 bytes, the manifest says 60000"),
            (Path.unlink, "rank0.engine cannot be read"),
        ],
    )
    def test_damage_is_told(self, store: Store, damage: Callable[[Path], object], told: str) -> None:
        damage(store.directory("engine-1") / "rank0.engine")
        with pytest.raises(StepError, match=told) as caught:
            store.verify("engine-1")
        assert caught.value.reason == "ArtifactCorrupted"

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"manifestVersion": 2, "files": []}'])
    def test_a_manifest_that_is_none(self, store: Store, content: bytes) -> None:
        (store.directory("engine-1") / "manifest.json").write_bytes(content)
        with pytest.raises(StepError, match=r"manifest\.json cannot be read"):
            store.verify("engine-1")


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Run an action in a child process that is killed with SIGKILL before its `step`-th operation on the file system.

    Returns whether it was killed before it ended.
    """
    child = os.fork()
    if child == 0:
        left = step
        watched = ("open", "os.", "shutil.")
        lock = threading.Lock()

        def hook(event: str, _arguments: tuple[Any, ...]) -> None:
            nonlocal left
            if event.startswith(watched) and event != "os.kill":
                with lock:
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

        fsync = os.fsync

        def watched_fsync(fd: Any) -> None:
            hook("os.fsync", ())
            fsync(fd)

        os.fsync = watched_fsync
        sys.addaudithook(hook)
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the action failed by itself"
    return False


class TestCrash:
    def test_a_publisher_killed_anywhere_leaves_nothing_half_made_and_the_next_succeeds(self, tmp_path: Path) -> None:
        output = write(tmp_path / "output")
        step, rename_seen = 0, False
        while True:
            step += 1
            store = Store(tmp_path / f"store-{step}")
            store.root.mkdir()
            killed = killed_at(step, lambda store=store: publish(store, output, "first"))  # type: ignore[misc]
            assert_nothing_half_made(store)
            rename_seen |= killed and store.has("engine-1")
            publish(store, output, "second")
            assert_nothing_half_made(store)
            assert list((store.root / ".staging").iterdir()) == [], f"killed at step {step}"
            if not killed:
                break
        assert step > 30, "the publisher was killed at too few points for this to mean anything"
        assert rename_seen, "no kill fell between the rename and the end"

    def test_a_removal_killed_anywhere_is_finished_by_the_next(self, tmp_path: Path) -> None:
        output = write(tmp_path / "output")
        step = 0
        while True:
            step += 1
            store = Store(tmp_path / f"store-{step}")
            store.root.mkdir()
            publish(store, output)
            killed = killed_at(step, lambda store=store: store.remove("engine-1"))  # type: ignore[misc]
            assert_nothing_half_made(store)
            store.remove("engine-1")
            assert not store.has("engine-1")
            assert list((store.root / ".staging").iterdir()) == [], f"killed at step {step}"
            if not killed:
                break
        assert step > 5


class TestRace:
    def test_the_loser_reports_what_the_winner_published(
        self, store: Store, output: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The winner comes in at the worst moment: everything of the loser's is ready for the rename."""
        seal = Store._seal
        winners: list[Published] = []

        def sealed_then_overtaken(self: Store, *arguments: Any) -> Published:
            published = seal(self, *arguments)
            monkeypatch.setattr(Store, "_seal", seal)
            winners.append(Store(self.root).publish(Content("engine-1", "Engine", {}, {}), output, "winner"))
            return published

        monkeypatch.setattr(Store, "_seal", sealed_then_overtaken)
        lost = publish(store, output)
        assert lost.digest == winners[0].digest
        assert_nothing_half_made(store)

    def test_the_loser_is_overtaken_while_it_copies(
        self, store: Store, output: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The winner clears away the loser's staging directory under its hands."""
        copyfile = shutil.copyfile

        def overtaken(source: Path, target: Path) -> object:
            if "uid-1" in str(target):
                monkeypatch.setattr("trtllm_operator.steps.volume_store.shutil.copyfile", copyfile)
                publish(store, output, "winner")
            return copyfile(source, target)

        monkeypatch.setattr("trtllm_operator.steps.volume_store.shutil.copyfile", overtaken)
        assert publish(store, output).digest == store.verify("engine-1").digest
        assert_nothing_half_made(store)

    def test_many_at_once_agree(self, tmp_path: Path) -> None:
        output = write(tmp_path / "output")
        for round_ in range(5):
            store = Store(tmp_path / f"store-{round_}")
            store.root.mkdir()
            digests: list[str] = []

            def one(number: int, store: Store = store, digests: list[str] = digests) -> None:
                build = {"number": number}
                content = Content("engine-1", "Engine", {}, build)
                digests.append(store.publish(content, output, f"uid-{number}").digest)

            threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert len(digests) == 4, "every builder of the same artifact must succeed"
            assert len(set(digests)) == 1, "all must report the one that was published"
            assert list((store.root / ".staging").iterdir()) == []


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    root = tmp_path / "volume"
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", root], capture_output=True, check=False
    ).returncode
    if mounted != 0:
        pytest.skip("mounting a small file system needs root")
    yield root
    subprocess.run(["umount", root], check=True)


def test_a_full_volume_is_told_with_its_numbers_and_left_as_it_was(small_volume: Path, tmp_path: Path) -> None:
    output = write(tmp_path / "output", {"rank0.engine": b"x" * (3 << 20)})
    store = Store(small_volume)
    with pytest.raises(StepError, match=r"full: 0 MiB of 1 MiB are free|full: 1 MiB of 1 MiB are free") as caught:
        publish(store, output)
    assert (caught.value.reason, caught.value.retryable) == ("DiskFull", False)
    assert not store.has("engine-1")
    assert list((small_volume / ".staging").iterdir()) == [], "what was written must not keep the volume full"
