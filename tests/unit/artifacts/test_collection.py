"""The end of an artifact, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trtllm_operator.actions import Actions, Release
from trtllm_operator.artifacts.collection import FINALIZER, GIVE_UP, beginning, plan_collection

from .world import CONFIG, NOW, engine_artifact, failed, job, pod


def dying(**changes: Any) -> dict[str, Any]:
    made = engine_artifact()
    made["metadata"] |= {"deletionTimestamp": "2026-07-01T12:00:00Z", "finalizers": [FINALIZER], **changes}
    return made


def collecting(status: dict[str, Any] | None = None, *, owner: str = "uid-engine-1", **spec: Any) -> dict[str, Any]:
    """The Job that removes the files."""
    meta = {"name": "engine-1-collect", "uid": "uid-collect", "labels": {}, "ownerReferences": [{"uid": owner}]}
    return {"metadata": meta, "spec": spec, "status": status or {}}


SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True"}]}


def test_attempts_go_before_the_files_do() -> None:
    attempt = job(1, "policy")
    planned = plan_collection(dying(), (attempt,), (), referenced=False, config=CONFIG, now=NOW)
    assert planned == Actions(delete=(attempt,), again_seconds=GIVE_UP.total_seconds())


def test_a_job_removes_the_files() -> None:
    (made,) = plan_collection(dying(), (), (), referenced=False, config=CONFIG, now=NOW).create
    assert made["metadata"]["name"] == "engine-1-collect"


def test_the_job_is_created_suspended_and_begins_once_its_controller_has_seen_it() -> None:
    def planned(*jobs: dict[str, Any]) -> Actions:
        made = plan_collection(dying(), jobs, (), referenced=False, config=CONFIG, now=NOW)
        return replace(made, again_seconds=None)

    (made,) = planned().create
    assert made["spec"]["suspend"] is True
    assert planned(collecting(suspend=True)) == Actions()
    waiting = collecting(SUSPENDED, suspend=True)
    assert planned(waiting) == Actions(begin=waiting)
    waiting["metadata"]["annotations"] = beginning()["metadata"]["annotations"]
    assert planned(waiting) == Actions(), "a queue has suspended it again, and lets it go on when there is room"


def test_a_job_that_an_earlier_artifact_of_the_name_left_is_removed_and_never_begins() -> None:
    """Created by a leader that hung until the artifact was gone and another one had its name."""
    late = collecting(SUSPENDED, owner="uid-before", suspend=True)
    planned = plan_collection(dying(), (late,), (), referenced=False, config=CONFIG, now=NOW)
    assert (planned.begin, planned.create, planned.delete) == (None, (), (late,))


def test_an_artifact_that_goes_with_its_files_takes_the_job_along_that_has_yet_to_begin() -> None:
    """Whoever hangs before letting it begin must not do so when the name has another artifact."""
    waiting = collecting(SUSPENDED, suspend=True)
    gone = plan_collection(dying(), (waiting,), (), referenced=False, claim_gone=True, config=CONFIG, now=NOW)
    assert gone == Actions(delete=(waiting,), release=Release())
    given_up = plan_collection(dying(), (waiting,), (), referenced=False, config=CONFIG, now=NOW + GIVE_UP)
    assert given_up.delete == (waiting,)
    assert given_up.release


def test_once_released_nothing_is_begun_again_though_its_jobs_are_gone() -> None:
    """The artifact may be seen a moment longer than its Jobs: another collection would remove a successor's files."""
    for finalizers in ([], ["somebody/else"]):
        seen = dying(finalizers=finalizers)
        assert plan_collection(seen, (), (), referenced=False, config=CONFIG, now=NOW) == Actions()


def test_a_removal_that_failed_is_tried_again_after_a_while() -> None:
    """A store that refuses must not be asked again and again without a pause."""
    collect = collecting(failed(seconds_ago=20))
    waits = plan_collection(dying(), (collect,), (), referenced=False, config=CONFIG, now=NOW)
    assert waits == Actions(again_seconds=40)
    collect["status"] = failed(seconds_ago=60)
    due = plan_collection(dying(), (collect,), (), referenced=False, config=CONFIG, now=NOW)
    assert due == Actions(delete=(collect,), again_seconds=GIVE_UP.total_seconds())


def test_c99_what_has_left_nothing_behind_goes_at_once() -> None:
    """The claim is gone, and the files with it: no Pod could mount it, and the finalizer would stay for ever."""
    attempt = job(1, "policy")
    gone = plan_collection(dying(), (attempt,), (), referenced=False, claim_gone=True, config=CONFIG, now=NOW)
    assert gone == Actions(release=Release())


def test_c99_a_removal_that_does_not_succeed_ends_after_a_while_with_a_word() -> None:
    collect = collecting(failed(seconds_ago=20))
    late = NOW + GIVE_UP
    for jobs, pods in (((collect,), ()), ((), ()), ((job(1, "p"),), (pod(1),))):
        given_up = plan_collection(dying(), jobs, pods, referenced=False, config=CONFIG, now=late)
        assert given_up.release
        assert "files of engine-1 were not removed within 6 h" in given_up.release.left_behind
    running = {**pod(1), "status": {"phase": "Running"}}
    goes_on = plan_collection(dying(), (collect,), (running,), referenced=False, config=CONFIG, now=late)
    assert not goes_on.release, "its own deadline ends it"
