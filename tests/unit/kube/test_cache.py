"""The cache: what it knows, how it is found, and that it never goes back in time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trtllm_operator.kube.cache import Cache, Change
from trtllm_operator.kube.resource import JOB, NODE, Obj, ObjectKey

APP = "example.dev/app"


def job(name: str = "a", version: int = 1, uid: str = "", **metadata: Any) -> Obj:
    meta = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta | metadata, "spec": {"version": version, "template": {"big": True}}}


@pytest.fixture
def cache() -> Cache:
    return Cache([JOB, NODE], indexed_labels=[APP], pruned={JOB: ["spec.template", "spec.absent.field"]})


def version(cache: Cache, name: str = "a") -> str | None:
    obj = cache.get(JOB, "ns", name)
    return obj["metadata"]["resourceVersion"] if obj else None


def test_newer_is_taken_in_and_older_is_not(cache: Cache) -> None:
    assert cache.put(JOB, job(version=5)) is not None
    assert cache.put(JOB, job(version=5)) is None
    assert cache.put(JOB, job(version=4)) is None
    assert cache.put(JOB, job(version=10)) is not None
    assert version(cache) == "10"


def test_versions_are_numbers_not_text(cache: Cache) -> None:
    cache.put(JOB, job(version=9))
    cache.put(JOB, job(version=10))
    assert version(cache) == "10"


def test_a_late_answer_does_not_bring_back_what_was_deleted(cache: Cache) -> None:
    cache.put(JOB, job(version=5))
    cache.remove(JOB, ObjectKey("ns", "a"), "uid-a", 8)
    assert cache.put(JOB, job(version=7)) is None
    assert version(cache) is None


def test_an_object_that_left_the_selection_may_come_back(cache: Cache) -> None:
    cache.put(JOB, job(version=5))
    cache.remove(JOB, ObjectKey("ns", "a"), "uid-a", 8)
    assert cache.put(JOB, job(version=9)) is not None


def test_the_deletion_of_a_predecessor_does_not_remove_the_successor(cache: Cache) -> None:
    cache.put(JOB, job(version=5, uid="old"))
    cache.put(JOB, job(version=9, uid="new"))
    assert cache.remove(JOB, ObjectKey("ns", "a"), "old", 8) is None
    assert version(cache) == "9"


def test_what_a_list_does_not_show_is_gone_unless_it_is_newer_than_the_list(cache: Cache) -> None:
    cache.put(JOB, job("kept", 3))
    cache.put(JOB, job("gone", 4))
    cache.put(JOB, job("made-since", 12))
    gone = cache.remove_unlisted(JOB, {"uid-kept"}, 10)
    assert [change.old["metadata"]["name"] for change in gone if change.old] == ["gone"]
    assert [obj["metadata"]["name"] for obj in cache.find(JOB)] == ["kept", "made-since"]


def test_a_list_of_one_namespace_says_nothing_about_others(cache: Cache) -> None:
    cache.put(JOB, job("a", 1))
    cache.put(JOB, job("b", 1, namespace="other"))
    cache.remove_unlisted(JOB, set(), 10, namespace="other")
    assert [obj["metadata"]["name"] for obj in cache.find(JOB)] == ["a"]


def test_found_by_label_and_namespace(cache: Cache) -> None:
    cache.put(JOB, job("a", 1, labels={APP: "x", "tier": "1"}))
    cache.put(JOB, job("b", 2, labels={APP: "x", "tier": "2"}))
    cache.put(JOB, job("c", 3, labels={APP: "y"}))
    cache.put(JOB, job("d", 4, namespace="other", labels={APP: "x"}))

    def names(**where: Any) -> list[str]:
        return [obj["metadata"]["name"] for obj in cache.find(JOB, **where)]

    assert names(labels={APP: "x"}) == ["a", "b", "d"]
    assert names(labels={APP: "x"}, namespace="ns") == ["a", "b"]
    assert names(labels={APP: "x", "tier": "2"}) == ["b"]
    assert names(labels={"tier": "1"}) == ["a"]
    assert names(labels={APP: "z"}) == []


def test_indexes_follow_changes(cache: Cache) -> None:
    owner = [{"uid": "owner", "kind": "X", "name": "x"}]
    cache.put(JOB, job("a", 1, labels={APP: "x"}, ownerReferences=owner))
    assert cache.owned_by("owner") == [cache.get(JOB, "ns", "a")]
    assert cache.owned_by("owner", NODE) == []
    cache.put(JOB, job("a", 2, labels={APP: "y"}))
    assert cache.owned_by("owner") == []
    assert cache.find(JOB, labels={APP: "x"}) == []
    assert len(cache.find(JOB, labels={APP: "y"})) == 1


def test_what_nobody_reads_is_not_kept(cache: Cache) -> None:
    obj = job(managedFields=[{"manager": "x"}])
    cache.put(JOB, obj)
    kept = cache.get(JOB, "ns", "a")
    assert kept is not None
    assert kept["apiVersion"] == "batch/v1"
    assert kept["kind"] == "Job"
    assert kept["spec"] == {"version": 1}
    assert "managedFields" not in kept["metadata"]
    assert "template" in obj["spec"], "the object that came must not be changed"


def test_everyone_hears_of_each_change_once(cache: Cache) -> None:
    heard: list[Change] = []
    cache.subscribe(heard.append)
    cache.put(JOB, job(version=1))
    cache.put(JOB, job(version=1))
    cache.put(JOB, job(version=2))
    cache.remove(JOB, ObjectKey("ns", "a"), "uid-a", 3)
    cache.remove(JOB, ObjectKey("ns", "a"), "uid-a", 3)
    assert [(c.old is not None, c.new is not None) for c in heard] == [(False, True), (True, True), (True, False)]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_the_same_reports_ends_in_the_same_state(seed: int) -> None:
    """Watch, list and write answers may overtake each other; the outcome must not depend on it."""
    reports = [("put", "one", 1), ("put", "one", 2), ("del", "one", 3), ("put", "two", 4), ("put", "two", 6)]
    random.Random(seed).shuffle(reports)  # noqa: S311
    cache = Cache([JOB])
    for what, uid, at in reports:
        if what == "put":
            cache.put(JOB, job("a", at, uid=uid))
        else:
            cache.remove(JOB, ObjectKey("ns", "a"), uid, at)
    assert [(o["metadata"]["uid"], o["metadata"]["resourceVersion"]) for o in cache.find(JOB)] == [("two", "6")]


def test_a_change_of_what_is_not_kept_is_no_change_but_its_version_counts() -> None:
    def without_status(obj: Obj) -> Obj:
        return {field: value for field, value in obj.items() if field != "status"}

    cache = Cache([JOB], pruned={JOB: ["spec.template"]}, reduced={JOB: without_status})
    told: list[Change] = []
    cache.subscribe(told.append)
    cache.put(JOB, {**job(version=1), "spec": {}, "status": {"heartbeat": 1}})
    assert cache.put(JOB, {**job(version=2), "spec": {"template": 2}, "status": {"heartbeat": 2}}) is None
    assert len(told) == 1
    assert version(cache) == "2"
    assert cache.put(JOB, {**job(version=3, labels={"a": "b"}), "spec": {}}) is not None
    assert len(told) == 2
