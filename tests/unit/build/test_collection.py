"""The end of an artefact, step by step."""

from __future__ import annotations

from typing import Any

from trtllm_operator.build.collection import FINALIZER, GIVE_UP, Collection, plan_collection

from .world import CONFIG, NOW, engine_artifact, failed, job, pod


def dying(**changes: Any) -> dict[str, Any]:
    made = engine_artifact()
    made["metadata"] |= {"deletionTimestamp": "2026-07-01T12:00:00Z", "finalizers": [FINALIZER], **changes}
    return made


def test_attempts_go_before_the_files_do() -> None:
    attempt = job(1, "policy")
    planned = plan_collection(dying(), (attempt,), (), referenced=False, config=CONFIG, now=NOW)
    assert planned == Collection(delete=(attempt,), again_seconds=GIVE_UP.total_seconds())


def test_a_job_removes_the_files() -> None:
    (made,) = plan_collection(dying(), (), (), referenced=False, config=CONFIG, now=NOW).create
    assert made["metadata"]["name"] == "engine-1-collect"


def test_once_released_nothing_is_begun_again_though_its_jobs_are_gone() -> None:
    """The artefact may be seen a moment longer than its Jobs: another collection would remove a successor's files."""
    for finalizers in ([], ["somebody/else"]):
        seen = dying(finalizers=finalizers)
        assert plan_collection(seen, (), (), referenced=False, config=CONFIG, now=NOW) == Collection()


def test_a_removal_that_failed_is_tried_again_after_a_while() -> None:
    """A store that refuses must not be asked again and again without a pause."""
    collect = {**job(1, ""), "metadata": {"name": "engine-1-collect", "labels": {}}, "status": failed(seconds_ago=20)}
    waits = plan_collection(dying(), (collect,), (), referenced=False, config=CONFIG, now=NOW)
    assert waits == Collection(again_seconds=40)
    collect["status"] = failed(seconds_ago=60)
    due = plan_collection(dying(), (collect,), (), referenced=False, config=CONFIG, now=NOW)
    assert due == Collection(delete=(collect,), again_seconds=GIVE_UP.total_seconds())


def test_c99_what_has_left_nothing_behind_goes_at_once() -> None:
    """The claim is gone, and the files with it: no Pod could mount it, and the finalizer would stay for ever."""
    attempt = job(1, "policy")
    gone = plan_collection(dying(), (attempt,), (), referenced=False, claim_gone=True, config=CONFIG, now=NOW)
    assert gone == Collection(release=True)


def test_c99_a_removal_that_does_not_succeed_ends_after_a_while_with_a_word() -> None:
    collect = {**job(1, ""), "metadata": {"name": "engine-1-collect", "labels": {}}, "status": failed(seconds_ago=20)}
    late = NOW + GIVE_UP
    for jobs, pods in (((collect,), ()), ((), ()), ((job(1, "p"),), (pod(1),))):
        given_up = plan_collection(dying(), jobs, pods, referenced=False, config=CONFIG, now=late)
        assert given_up.release
        assert "files of engine-1 were not removed within 6 h" in given_up.left_behind
    running = {**pod(1), "status": {"phase": "Running"}}
    goes_on = plan_collection(dying(), (collect,), (running,), referenced=False, config=CONFIG, now=late)
    assert not goes_on.release, "its own deadline ends it"
