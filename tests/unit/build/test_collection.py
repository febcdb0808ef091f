"""The end of an artefact, step by step."""

from __future__ import annotations

from typing import Any

from trtllm_operator.build.collection import FINALIZER, Collection, plan_collection

from .world import CONFIG, NOW, engine_artifact, failed, job


def dying(**changes: Any) -> dict[str, Any]:
    made = engine_artifact()
    made["metadata"] |= {"deletionTimestamp": "2026-07-01T12:00:00Z", "finalizers": [FINALIZER], **changes}
    return made


def test_attempts_go_before_the_files_do() -> None:
    attempt = job(1, "policy")
    planned = plan_collection(dying(), (attempt,), (), referenced=False, config=CONFIG, now=NOW)
    assert planned == Collection(delete=(attempt,))


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
    assert due == Collection(delete=(collect,))
