"""Publishers that die at any request, and several at once, against a real S3 server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import bucket as bucket_module
from trtllm_operator.steps.bucket import Bucket
from trtllm_operator.steps.object_store import ObjectStore
from trtllm_operator.steps.store import Content, Published

from .conftest import FILES, Space

PARTS = {**FILES, "rank1.engine": b"0123456789abcdef" * (6 << 16)}
"""Beside small files one of 6 MiB, which goes in two parts."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "PART_BYTES", 5 << 20)


def killed_at(event: int, victim: ObjectStore, action: Callable[[ObjectStore], object]) -> bool:
    """Run an action in a child that is killed with SIGKILL at its `event`-th event: a request that is about to be sent,
    or an answer that has come and is not read yet. Returns whether it was killed before it ended.

    `victim` must not be used elsewhere: the child would share its connections.
    """
    child = os.fork()
    if child == 0:
        left, lock = event, threading.Lock()

        def count(**_facts: Any) -> None:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            for name in ("before-send.s3", "response-received.s3"):
                victim._bucket._client.meta.events.register(name, count)
            action(victim)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the action failed by itself"
    return False


def assert_nothing_half_made(space: Space, files: dict[str, bytes] = PARTS) -> None:
    """What the store promises: an artifact with a manifest is complete."""
    store = space.store()
    if store.has("engine-1"):
        published = store.verify("engine-1")
        assert {entry["path"] for entry in published.manifest["files"]} == set(files)


def assert_nothing_left_over(space: Space, files: dict[str, bytes] = PARTS) -> None:
    assert len(space.listing()) == len(files) + 1
    assert space.uploads() == []


def test_a_publisher_killed_at_any_request_leaves_nothing_half_made_and_the_next_succeeds(space: Space) -> None:
    output = space.output(PARTS)
    event, complete_when_killed, victim = 0, 0, space.store(bucket=space.new_bucket())
    while True:
        event += 1
        space.store().remove("engine-1")
        content = Content("engine-1", "Engine", {}, {"event": event})
        killed = killed_at(event, victim, lambda store, content=content: store.publish(content, output, "first"))  # type: ignore[misc]
        assert_nothing_half_made(space)
        complete_when_killed += killed and space.store().has("engine-1")
        space.publish(output)
        assert_nothing_half_made(space)
        assert_nothing_left_over(space)
        if not killed:
            break
    assert event > 20, "the publisher was killed at too few points for this to mean anything"
    assert complete_when_killed, "no kill fell between the manifest and the end"


def test_a_removal_killed_at_any_request_is_finished_by_the_next(space: Space) -> None:
    output = space.output(FILES)
    event, victim = 0, space.store(bucket=space.new_bucket())
    while True:
        event += 1
        space.publish(output)
        killed = killed_at(event, victim, lambda store: store.remove("engine-1"))
        assert_nothing_half_made(space, FILES)
        space.store().remove("engine-1")
        assert space.listing() == []
        if not killed:
            break
    assert event > 8


def test_the_parts_that_a_dead_publisher_had_sent_are_not_sent_again(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = space.output(PARTS)
    sent: list[int] = []

    def watch(bucket: Bucket) -> None:
        def note(params: dict[str, Any], **_facts: Any) -> None:
            sent.append(params["query_string"]["partNumber"])

        bucket._client.meta.events.register("before-call.s3.UploadPart", note)

    def dies_before_completing(store: ObjectStore) -> None:
        events = store._bucket._client.meta.events
        events.register("before-call.s3.CompleteMultipartUpload", lambda **_facts: os.kill(os.getpid(), signal.SIGKILL))
        store.publish(Content("engine-1", "Engine", {}, {}), output, "first")

    assert killed_at(0, space.store(bucket=space.new_bucket()), dies_before_completing)
    assert len(space.uploads()) == 1
    store = space.store(bucket=space.new_bucket())
    watch(store._bucket)
    store.publish(Content("engine-1", "Engine", {}, {}), output, "second")
    assert sent == [], "both parts were there"
    assert_nothing_half_made(space)
    assert_nothing_left_over(space)


def test_the_loser_reports_what_the_winner_published(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner comes in at the worst moment: everything of the loser's is there but the manifest."""
    create = Bucket.create
    winner = space.output({**FILES, "rank0.engine": b"the winner's"}, "winner")
    winners: list[Published] = []

    def overtaken(self: Bucket, key: str, content: bytes) -> None:
        if key.endswith("manifest.json"):
            monkeypatch.setattr(Bucket, "create", create)
            winners.append(space.publish(winner))
        create(self, key, content)

    monkeypatch.setattr(Bucket, "create", overtaken)
    lost = space.publish(space.output(FILES))
    assert lost.digest == winners[0].digest
    assert_nothing_half_made(space, FILES)
    assert_nothing_left_over(space, FILES)


def test_the_loser_is_overtaken_while_it_uploads_parts(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner aborts the loser's multipart upload under its hands."""
    winner = space.output({**FILES, "rank1.engine": b"the winner's"}, "winner")
    loser = space.store("loser", space.new_bucket())

    def overtake(**_facts: Any) -> None:
        loser._bucket._client.meta.events.unregister("before-call.s3.CompleteMultipartUpload", overtake)
        space.publish(winner)

    loser._bucket._client.meta.events.register("before-call.s3.CompleteMultipartUpload", overtake)
    lost = loser.publish(Content("engine-1", "Engine", {}, {}), space.output(PARTS), "loser")
    assert lost.digest == space.store().verify("engine-1").digest
    assert_nothing_left_over(space)


def test_many_at_once_agree(space: Space) -> None:
    for round_ in range(3):
        space.store().remove("engine-1")
        digests: list[str] = []
        outputs = [
            space.output({**PARTS, "rank0.engine": f"of {number}".encode()}, f"output-{number}") for number in range(3)
        ]

        def one(number: int, digests: list[str] = digests, outputs: Any = outputs) -> None:
            content = Content("engine-1", "Engine", {}, {"number": number})
            digests.append(space.store(f"pod-{number}").publish(content, outputs[number], "").digest)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(digests) == 3, f"every builder of the same artifact must succeed (round {round_})"
        assert len(set(digests)) == 1, "all must report the one that was published"
        assert_nothing_half_made(space)
        assert_nothing_left_over(space)


def test_a_removal_during_a_publication_leaves_no_manifest_without_files(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Bucket.create

    def removed_just_before(self: Bucket, key: str, content: bytes) -> None:
        if key.endswith("manifest.json"):
            monkeypatch.setattr(Bucket, "create", create)
            space.store().remove("engine-1")
        create(self, key, content)

    monkeypatch.setattr(Bucket, "create", removed_just_before)
    with pytest.raises(StepError, match="was being removed while it was published") as caught:
        space.publish(space.output(FILES))
    assert caught.value.retryable
    assert not space.store().has("engine-1")
    space.publish(space.output(FILES))
    assert_nothing_half_made(space, FILES)
