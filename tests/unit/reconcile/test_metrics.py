"""What Prometheus sees of builds and targets: each thing once, whatever is written how often."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry

from tests.unit.engines.simulation import World, engine
from trtllm_operator.artifacts.build_result import BuildResult, new_results
from trtllm_operator.kube.client import Call
from trtllm_operator.reconcile.metrics import DomainMetrics
from trtllm_operator.reconcile.watches import LLM_ENGINE

PUBLISHED = {
    "manifestDigest": "ab" * 32,
    "completionTime": "2026-12-01T00:00:00Z",
    "durationSeconds": 60,
    "sizeBytes": 9,
}


def failed(*numbers: int) -> dict[str, object]:
    return {"attempts": [{"number": n, "reason": "HostMemoryExhausted"} for n in numbers]}


def test_an_attempt_counts_once() -> None:
    lost = BuildResult("failure", "HostMemoryExhausted")
    assert new_results({}, failed(1)) == (lost,)
    assert new_results(failed(1), failed(1)) == ()
    assert new_results(failed(1, 2), failed(2, 3)) == (lost,)
    assert new_results({}, PUBLISHED) == (BuildResult("success", "Published", 60, 9),)
    assert new_results(PUBLISHED, PUBLISHED) == ()


def test_one_that_is_built_again_after_damage_counts_again() -> None:
    again = {**PUBLISHED, "completionTime": "2026-12-02T00:00:00Z"}
    assert len(new_results({}, again)) == 1
    assert len(new_results(PUBLISHED, again)) == 1


class Watched:
    """A simulated cluster whose operator is watched by Prometheus."""

    def __init__(self) -> None:
        self.world = World()
        self.registry = CollectorRegistry()
        self.world.watch_by(lambda cache, client: DomainMetrics(self.registry, cache, client))

    def value(self, metric: str, **labels: str) -> float:
        return sum(
            s.value
            for family in self.registry.collect()
            for s in family.samples
            if s.name == metric and labels.items() <= s.labels.items()
        )


def test_a_rollout_for_two_gpu_generations() -> None:
    seen = Watched()
    seen.world.put(engine())
    seen.world.run_everything()
    for type_, count in (("Model", 1), ("Checkpoint", 1), ("Engine", 2)):
        assert seen.value("llmengine_builds_total", type=type_, result="success") == count, type_
        assert seen.value("llmengine_artifacts", type=type_, phase="Ready") == count, type_
    assert seen.value("llmengine_builds_total", result="failure") == 0
    assert seen.value("llmengine_published_bytes_total", type="Engine") == 2000
    assert seen.value("llmengine_ready", name="smol") == 1
    assert seen.value("llmengine_stalled", name="smol") == 0
    assert seen.value("llmengine_target_ready_servers", target="h100") == 1
    assert seen.value("llmengine_target_servers", target="h100") == 1
    assert seen.value("llmengine_target_last_switch_timestamp_seconds", target="h100") > 1.7e9


def test_a_second_llmengine_of_the_same_finds_everything_built() -> None:
    seen = Watched()
    seen.world.put(engine())
    seen.world.run_everything()
    assert seen.value("llmengine_artifacts_reused_total") == 0
    seen.world.put(engine("twin"))
    seen.world.run_everything()
    assert seen.value("llmengine_artifacts_reused_total", type="Engine") == 2
    assert seen.value("llmengine_builds_total", type="Engine", result="success") == 2


def test_failures_by_reason_and_what_a_person_must_act_on() -> None:
    seen = Watched()
    seen.world.put(engine())
    for _ in range(6):
        seen.world.reconcile()
        seen.world.start_jobs()
        for job in seen.world.unfinished_jobs():
            if seen.world.jobs_of("Model") and job in seen.world.jobs_of("Model"):
                seen.world.fail(job, {"reason": "ModelChanged", "message": "it is another", "retryable": False})
            else:
                seen.world.finish(job)
    seen.world.settle()
    assert seen.value("llmengine_builds_total", type="Model", result="failure", reason="ModelChanged") == 1
    assert seen.value("llmengine_stalled", name="smol", reason="ModelChanged") == 1


def test_refused_writes_by_kind_and_code() -> None:
    seen = Watched()
    client = seen.world.reconciler.client
    client.calls.update(
        {Call("create", "jobs.batch", 403): 3, Call("get", "secrets", 403): 5, Call("apply", "x", 409): 7}
    )
    assert seen.value("llmengine_api_refusals_total") == 3
    assert seen.value("llmengine_api_refusals_total", verb="create", resource="jobs.batch", code="403") == 3


def test_an_object_that_is_not_as_expected_hides_no_other() -> None:
    seen = Watched()
    seen.world.put(engine())
    seen.world.run_everything()
    odd = cast("dict[str, object]", seen.world.get(LLM_ENGINE, "smol"))
    seen.world.put({**odd, "metadata": {"name": "odd", "namespace": "team"}, "status": {}})
    seen.world.put({**odd, "metadata": {"name": "hostile", "namespace": "team"}, "status": {"conditions": [7]}})
    assert seen.value("llmengine_ready", name="smol") == 1
    assert seen.value("llmengine_ready", name="odd") == 0
