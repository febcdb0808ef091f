"""Random histories of attempts: every reason of the table, disruptions, lost Pods, changed policies and Secrets, and
time in any order, with what must always hold of how often, how big and after what an attempt follows another."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trtllm_operator.artifacts.failures import KINDS, SECTIONS
from trtllm_operator.artifacts.jobs import policy_hash
from trtllm_operator.kube.resource import JOB, POD, Obj
from trtllm_operator.objects import ARTIFACT, ATTEMPT, POLICY_HASH, SECRETS, annotation, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from .simulation import GATED, World, engine

TOLD = sorted(r for r, k in KINDS.items() if not k.waits and r not in SECTIONS["Servers"])
"""What a step can end with."""
RETRIED = [r for r in TOLD if KINDS[r].retry]
INDEX = st.integers(0, 9)
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}


class Attempts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ended: dict[tuple[str, int], str] = {}
        """Reason that the attempt's step itself gave, by artifact and number."""
        self.seen: dict[tuple[str, int], Obj] = {}
        """Every attempt's Job as it was created."""

    @initialize()
    def begin(self) -> None:
        self.world.put(engine("one", targets=[H100], model=GATED))
        self.world.reconcile()
        self.world.start_jobs()
        for job in self.world.unfinished_jobs():
            self.world.finish(job)

    def going_on(self, index: int) -> Obj | None:
        self.world.start_jobs()
        jobs = [j for j in self.world.unfinished_jobs() if label(j, ATTEMPT)]
        return jobs[index % len(jobs)] if jobs else None

    # What happens to attempts.

    @rule(index=INDEX)
    def finish(self, index: int) -> None:
        if job := self.going_on(index):
            self.world.finish(job)

    @rule(index=INDEX, reason=st.sampled_from(TOLD))
    def fail(self, index: int, reason: str) -> None:
        if job := self.going_on(index):
            self.world.fail(job, {"reason": reason, "message": "why", "retryable": True})
            self.ended[_of(job)] = reason

    @rule(reason=st.sampled_from(RETRIED), times=st.integers(1, 6))
    def keep_failing(self, reason: str, times: int) -> None:
        """The same reason again and again, each time after the longest pause."""
        for _ in range(times):
            self.fail(0, reason)
            self.world.pass_time(601)
            self.world.settle()
            self.failures_are_within_their_limits()

    @rule(index=INDEX)
    def run_out_of_memory(self, index: int) -> None:
        if job := self.going_on(index):
            self.world.fail(job, None)

    @rule(index=INDEX)
    def be_preempted(self, index: int) -> None:
        if job := self.going_on(index):
            self.world.disrupt(job, "PreemptionByScheduler")

    @rule(index=INDEX)
    def be_evicted_for_disk(self, index: int) -> None:
        if job := self.going_on(index):
            self.world.disrupt(job, "TerminationByKubelet", evicted="The node was low on resource: ephemeral-storage.")

    def one_that_has_ended(self, index: int) -> Obj | None:
        """What it said is forgotten unless the operator has looked since."""
        ended = [j for j in self.world.find(JOB) if j.get("status", {}).get("conditions") and label(j, ATTEMPT)]
        if not ended:
            return None
        job = ended[index % len(ended)]
        name, number = _of(job)
        found = self.world.get(ENGINE_ARTIFACT, name)
        recorded = found.get("status", {}).get("attempts", ()) if found else ()
        if number not in [r["number"] for r in recorded]:
            self.ended.pop((name, number), None)
        return job

    @rule(index=INDEX)
    def lose_the_pod_of_what_has_ended(self, index: int) -> None:
        if job := self.one_that_has_ended(index):
            self.world.lose_pod(job)

    @rule(index=INDEX)
    def the_ttl_removes_a_job(self, index: int) -> None:
        if job := self.one_that_has_ended(index):
            self.world.delete(job)

    # People, time, the operator.

    @rule(attempts=st.integers(1, 4))
    def change_the_policy(self, attempts: int) -> None:
        self.world.put(engine("one", targets=[H100], model=GATED, build={"maxAttempts": attempts}))

    @rule()
    def the_secret_is_corrected(self) -> None:
        self.world.change_secret()

    @rule(index=INDEX)
    def the_image_cannot_be_pulled(self, index: int) -> None:
        if job := self.going_on(index):
            self.world.refuse_image(job)

    @rule(name=st.sampled_from(["regcred", "other"]))
    def the_pull_secret_is_corrected(self, name: str) -> None:
        self.world.pull_secrets = tuple(sorted({*self.world.pull_secrets, name}))
        self.world.change_secret(name)
        self.world.settle()
        stuck = [p for p in self.world.find(POD) if "ImagePullBackOff" in str(p["status"]) and label(p, ATTEMPT)]
        assert not stuck, "what waited for a pull secret is made anew with it"

    @rule(seconds=st.sampled_from([1, 11, 61, 601]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule()
    def the_operator_looks(self) -> None:
        self.world.reconcile()

    @rule()
    def the_operator_settles(self) -> None:
        self.world.settle()

    @rule()
    def all_goes_well_at_last(self) -> None:
        self.world.run_everything(60)
        found = self.world.get(LLM_ENGINE, "one")
        assert found is not None
        conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
        assert conditions["Ready"] == "True" or conditions.get("Stalled") == "True", found["status"]

    @rule()
    def the_secret_is_corrected_and_all_goes_well(self) -> None:
        self.world.change_secret()
        self.world.run_everything(60)
        for artifact in self.world.find(ENGINE_ARTIFACT):
            if artifact["spec"]["type"] == "Model":
                reason = artifact["status"]["reason"]
                assert KINDS[reason].secrets is None if reason in KINDS else True, artifact["status"]

    # What must always hold.

    @invariant()
    def one_attempt_at_a_time(self) -> None:
        for name in self.artifacts():
            going = [
                j["metadata"]["name"]
                for j in self.world.find(JOB)
                if label(j, ARTIFACT) == name and label(j, ATTEMPT) and not j.get("status", {}).get("conditions")
            ]
            assert len(going) <= 1, f"{going} go on at once"

    @invariant()
    def an_attempt_follows_another_only_where_it_may(self) -> None:
        for job in self.world.find(JOB):
            if label(job, ATTEMPT):
                self.seen.setdefault(_of(job), job)
        for (name, number), job in self.seen.items():
            before = self.seen.get((name, number - 1))
            reason = self.ended.get((name, number - 1))
            if before is None or reason is None:
                continue
            alike = [POLICY_HASH, *([SECRETS] if KINDS[reason].secrets else [])]
            same = all(annotation(before, a) == annotation(job, a) for a in alike)
            assert KINDS[reason].retry or not same, f"{reason} is never tried again, and {name} was, unchanged"

    @invariant()
    def failures_are_within_their_limits(self) -> None:
        for name in self.artifacts():
            found = self.world.get(ENGINE_ARTIFACT, name)
            assert found is not None
            status = found.get("status", {})
            assert len(status.get("attempts", ())) <= 5
            counts: dict[str, int] = status.get("failureCounts", {})
            for reason, count in counts.items():
                retry = KINDS[reason].retry
                assert count <= (retry.times if retry else 0) + 1, f"{count} failures of {reason}"
            counted = sum(n for r, n in counts.items() if (k := KINDS[r].retry) is None or k.counted)
            if (allowed := self.allowed(found, status.get("attemptPolicy"))) is not None:
                assert counted <= allowed, f"{counted} with maxAttempts {allowed}"

    def allowed(self, artifact: Obj, attempted: str | None) -> int | None:
        """maxAttempts of the policy that the status speaks of, where that is one of today's."""
        known = self.world.observe(artifact).builders or ()
        return next((b.policy.max_attempts for b in known if policy_hash(artifact, b.policy) == attempted), None)

    @invariant()
    def memory_grows_with_each_failure_and_within_its_limit(self) -> None:
        for job in self.seen.values():
            for container in job["spec"]["template"]["spec"].get("initContainers", ()):
                limit = container["resources"].get("limits", {}).get("memory")
                if container["name"] in ("convert", "build") and limit:
                    planned = 4200 if container["name"] == "convert" else 6800
                    assert planned * 0.9 <= int(limit.removesuffix("Mi")) <= planned * 1.1 * 1.5**6

    def artifacts(self) -> list[Any]:
        return [a["metadata"]["name"] for a in self.world.find(ENGINE_ARTIFACT)]


def _of(job: Obj) -> tuple[str, int]:
    return label(job, ARTIFACT) or "", int(label(job, ATTEMPT) or 0)


Attempts.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAttempts = Attempts.TestCase
