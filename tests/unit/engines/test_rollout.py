"""A new revision where GPUs are scarce: what waits for what, who goes first, and what is said meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.artifacts.placement import requests
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, POD, Obj
from trtllm_operator.objects import REVISION, label
from trtllm_operator.reconcile.watches import LLM_ENGINE

from ..artifacts.world import node
from .simulation import NAMESPACE, World, engine
from .test_plan import condition, state

GPU = "nvidia.com/gpu"
HOST = {"memory": "2Ti", "cpu": "256", "ephemeral-storage": "90Ti"}
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
BUDGETS = {"maxBatchSize": 8, "maxInputLen": 512, "maxSeqLen": 2048, "maxNumTokens": 2048}
NEW = {**BUDGETS, "maxSeqLen": 4096}
OTHER = {**BUDGETS, "maxSeqLen": 1024}
SERVING = {"kvCacheFreeGpuMemoryPercent": 50}
ROUND_SECONDS = 10


class Pool(World):
    """A node with few GPUs, a scheduler that counts them, and Deployments that have Pods. `least`: the fewest servers
    behind the Service at any time since it was set."""

    def __init__(self, gpus: int) -> None:
        super().__init__()
        made = node("h100", "NVIDIA-H100-80GB-HBM3")
        made["metadata"]["labels"]["kubernetes.io/arch"] = "amd64"
        self.gpus, self.least, self.broken = gpus, 99, set[str]()
        self.put({"apiVersion": "v1", "kind": "Node", **made, "status": {"allocatable": {GPU: str(gpus), **HOST}}})

    def play(self, rounds: int = 60) -> None:
        """The operator, the controllers and the scheduler by turns."""
        for _ in range(rounds):
            self.settle()
            for pod in self._pods():
                if "deletionTimestamp" in pod["metadata"]:
                    self._gone(self._by_kind["Pod"], pod)
            for deployment in self.find(DEPLOYMENT):
                self._scale(deployment)
            for job in self.find(JOB):
                if not job.get("status", {}).get("conditions") and not self.pods_of(job):
                    self._make(job, f"{job['metadata']['name']}-pod", {"job-name": job["metadata"]["name"]})
            for pod in self._pods():
                self._place(pod)
            for job in self.unfinished_jobs():
                if all("nodeName" in p["spec"] for p in self.pods_of(job)):
                    self.finish(job)
            for deployment in self.find(DEPLOYMENT):
                self._count(deployment)
            self.least = min(self.least, self.answering())
            self.pass_time(ROUND_SECONDS)

    def _pods(self) -> list[Obj]:
        return [p for p in self.find(POD) if p.get("status", {}).get("phase") != "Failed"]

    def answering(self) -> int:
        """Servers behind the Service."""
        selected = dict(self.served()).get("smol--h100")
        found = self.get(DEPLOYMENT, selected) if selected else None
        return int((found or {}).get("status", {}).get("availableReplicas", 0))

    def _make(self, owner: Obj, name: str, labels: dict[str, str]) -> None:
        template = owner["spec"]["template"]
        meta = {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**template["metadata"]["labels"], **labels},
            "finalizers": ["test/ends-a-little-later"],
            "ownerReferences": [{"uid": owner["metadata"]["uid"], "controller": True, "kind": owner["kind"]}],
        }
        self.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": dict(template["spec"]), "status": {}})

    def _scale(self, deployment: Obj) -> None:
        name, wanted = deployment["metadata"]["name"], deployment["spec"]["replicas"]
        pods = [p for p in self._pods() if label(p, REVISION) == name]
        for pod in sorted(pods, key=lambda p: "nodeName" in p["spec"])[: max(0, len(pods) - wanted)]:
            self.delete(pod)
        numbers = (n for n in range(99) if self.get(POD, f"{name}-{n}") is None)
        for _ in range(wanted - len(pods)):
            self._make(deployment, f"{name}-{next(numbers)}", {})

    def _holds(self, pod: Obj) -> int:
        job = label(pod, "job-name")
        over = job is not None and bool((self.get(JOB, job) or {}).get("status", {}).get("conditions"))
        return 0 if over or "nodeName" not in pod["spec"] else int(requests(pod).get(GPU, 0))

    def _place(self, pod: Obj) -> None:
        if "nodeName" in pod["spec"]:
            return
        free = self.gpus - sum(self._holds(p) for p in self._pods())
        if requests(pod).get(GPU, 0) > free:
            why = f"0/3 nodes are available: 1 Insufficient {GPU}."
            self.set_status(pod, {"conditions": [{"type": "PodScheduled", "status": "False", "message": why}]})
            return
        self.put({**pod, "spec": {**pod["spec"], "nodeName": "h100"}, "status": {}})

    def _count(self, deployment: Obj) -> None:
        name = deployment["metadata"]["name"]
        there = [p for p in self._pods() if label(p, REVISION) == name and "deletionTimestamp" not in p["metadata"]]
        ready = 0 if name in self.broken else sum("nodeName" in p["spec"] for p in there)
        status = {
            "replicas": len(there),
            "updatedReplicas": len(there),
            "availableReplicas": ready,
            "readyReplicas": ready,
        }
        self.set_status(deployment, {"observedGeneration": deployment["metadata"]["generation"], **status})


def spec(replicas: int, **changes: Any) -> dict[str, Any]:
    return engine(**{"budgets": BUDGETS, "targets": [{**H100, "replicas": replicas}], **changes})


def serving(gpus: int, replicas: int, **changes: Any) -> Pool:
    pool = Pool(gpus)
    pool.put(spec(replicas, **changes))
    pool.play()
    assert condition(pool, "Ready")["status"] == "True", condition(pool, "Ready")
    pool.least = pool.answering()
    return pool


RECREATE = {"rollout": {"strategy": "Recreate"}}
TWO_GPUS = {"parallelism": {"tensor": 3}}


def test_c88_what_serves_goes_on_and_the_condition_says_what_holds_the_gpu_and_what_would_free_it() -> None:
    pool = serving(gpus=3, replicas=1, **TWO_GPUS)
    before = dict(pool.served())
    pool.put(spec(1, serving=SERVING, **TWO_GPUS))
    pool.play()
    assert (dict(pool.served()), pool.least) == (before, 1)
    ready = condition(pool, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "WaitingForGpu")
    assert "3 nvidia.com/gpu on h100" in ready["message"]
    assert "the 1 server that serves now holds 3" in ready["message"]
    assert "set spec.rollout.strategy to Recreate" in ready["message"]
    assert condition(pool, "Stalled")["status"] == "absent"
    pool.gpus = 6
    pool.play()
    assert condition(pool, "Ready")["status"] == "True"
    assert pool.least == 1


def test_c88_a_build_that_waits_for_the_gpu_of_what_serves_says_so_too() -> None:
    pool = serving(gpus=1, replicas=1)
    pool.put(spec(1, budgets=NEW))
    pool.play()
    ready = condition(pool, "Ready")
    assert ready["reason"] == "WaitingForGpu"
    assert "the 1 server that serves now holds 1" in ready["message"]
    assert pool.least == 1


@pytest.mark.parametrize(
    ("gpus", "replicas", "least"),
    [(1, 1, 0), (2, 1, 1), (5, 4, 1), (4, 4, 1), (2, 2, 1), (8, 4, 4)],
)
@pytest.mark.parametrize("changes", [{"serving": SERVING}, {"budgets": NEW}], ids=["no build", "with a build"])
def test_c88_recreate_takes_the_gpus_of_old_servers_where_none_is_free(
    gpus: int, replicas: int, least: int, changes: dict[str, Any]
) -> None:
    pool = serving(gpus, replicas, **RECREATE)
    before = dict(pool.served())
    pool.put(spec(replicas, **changes, **RECREATE))
    pool.play(120)
    assert condition(pool, "Ready")["status"] == "True", condition(pool, "Ready")
    assert dict(pool.served()) != before
    assert pool.answering() == replicas
    assert len(pool.find(DEPLOYMENT)) == 1
    assert pool.least >= least, "fewer servers answered than had to be given up"
    assert all(count == 1 for count in pool.builds.values())


def test_c88_old_servers_come_back_when_the_build_they_made_room_for_fails() -> None:
    pool = serving(gpus=1, replicas=1, **RECREATE)
    before = dict(pool.served())
    pool.finish = lambda job: World.fail(pool, job, {"reason": "ToolFailed", "message": "no", "retryable": False})  # type: ignore[method-assign]
    pool.put(spec(1, budgets=NEW, **RECREATE))
    pool.play(90)
    assert pool.least == 0, "there was one GPU, and the build had it"
    assert condition(pool, "Stalled")["reason"] == "ToolFailed"
    assert (dict(pool.served()), pool.answering()) == (before, 1)


def test_c88_back_to_what_served_gives_it_its_gpus_again() -> None:
    pool = serving(gpus=2, replicas=2, **RECREATE)
    before = dict(pool.served())
    pool.put(spec(2, serving=SERVING, **RECREATE))
    pool.settle()
    pool.broken = {d["metadata"]["name"] for d in pool.find(DEPLOYMENT)} - set(before.values())
    pool.play()
    assert pool.answering() == 1, "new servers that do not answer take all GPUs but the last"
    pool.put(spec(2, **RECREATE))
    pool.play()
    assert condition(pool, "Ready")["status"] == "True"
    assert (dict(pool.served()), pool.answering()) == (before, 2)


def test_c88_servers_that_nobody_asks_for_any_more_give_their_gpu_to_those_that_are() -> None:
    """Two GPUs: one serves, the other runs a server that never answers, and the third revision would wait for ever."""
    pool = serving(gpus=2, replicas=1)
    before = dict(pool.served())
    pool.put(spec(1, serving=SERVING))
    pool.settle()
    pool.broken = {d["metadata"]["name"] for d in pool.find(DEPLOYMENT)} - set(before.values())
    pool.play()
    assert dict(pool.served()) == before
    pool.put(spec(1, budgets=OTHER))
    pool.play()
    assert condition(pool, "Ready")["status"] == "True", condition(pool, "Ready")
    assert pool.least == 1


def test_c88_fewer_replicas_count_for_the_old_servers_at_once() -> None:
    pool = serving(gpus=4, replicas=4)
    pool.put(spec(4, serving=SERVING))
    pool.play(20)
    assert condition(pool, "Ready")["reason"] == "WaitingForGpu"
    pool.put(spec(2, serving=SERVING))
    pool.play()
    assert condition(pool, "Ready")["status"] == "True", condition(pool, "Ready")
    assert pool.least == 2


def test_c88_the_strategy_alone_rolls_nothing() -> None:
    pool = serving(gpus=2, replicas=1)
    names = [r["metadata"]["name"] for r in pool.find(CONTROLLER_REVISION)]
    versions = [d["metadata"]["resourceVersion"] for d in pool.find(DEPLOYMENT)]
    pool.put(spec(1, **RECREATE))
    pool.settle()
    assert [r["metadata"]["name"] for r in pool.find(CONTROLLER_REVISION)] == names
    assert [d["metadata"]["resourceVersion"] for d in pool.find(DEPLOYMENT)] == versions
    assert state(pool)["status"]["observedGeneration"] == 2
    assert pool.find(LLM_ENGINE)[0]["spec"]["rollout"] == {"strategy": "Recreate"}


def test_c88_a_server_that_was_evicted_and_is_still_to_be_seen_holds_no_gpu_and_keeps_no_room_from_being_made() -> None:
    pool = serving(gpus=1, replicas=1, **RECREATE)
    before = dict(pool.served())
    (old,) = (p for p in pool.find(POD) if REVISION in p["metadata"]["labels"])
    evicted = {**old, "metadata": {**old["metadata"], "name": "an-evicted-one", "uid": "uid-evicted"}}
    pool.put({**evicted, "status": {"phase": "Failed", "reason": "Evicted"}})
    pool.put(spec(1, serving=SERVING, **RECREATE))
    pool.play()
    assert condition(pool, "Ready")["status"] == "True", condition(pool, "Ready")
    assert dict(pool.served()) != before


def test_c88_servers_on_other_gpus_are_not_stopped_for_what_waits() -> None:
    """The target moves to another product, whose GPUs are taken by others: those of the old servers are of no use."""
    pool = serving(gpus=1, replicas=1, **RECREATE)
    before = dict(pool.served())
    other = node("b200", "NVIDIA-B200")
    other["metadata"]["labels"]["kubernetes.io/arch"] = "amd64"
    pool.put({"apiVersion": "v1", "kind": "Node", **other, "status": {"allocatable": {GPU: "1", **HOST}}})
    moved = {"name": "h100", "gpu": {"product": "NVIDIA-B200"}}
    pool.put(spec(1, targets=[moved], **RECREATE))
    pool.play(30)
    ready = condition(pool, "Ready")
    assert ready["reason"] == "WaitingForGpu", ready
    assert "serves now" not in ready["message"], "their GPU is not such as it waits for"
    assert (dict(pool.served()), pool.least) == (before, 1)


def test_c88_old_servers_come_back_when_the_spec_that_they_made_room_for_is_followed_by_one_that_is_refused() -> None:
    pool = serving(gpus=1, replicas=1, **RECREATE)
    ((_, before),) = dict(pool.served()).items()
    pool.finish = lambda job: None  # type: ignore[method-assign]
    pool.put(spec(1, budgets=NEW, **RECREATE))
    pool.play(20)
    assert pool.least == 0, "there was one GPU, and the build has it"
    pool.put(spec(1, budgets=NEW, parallelism={"tensor": 2}, **RECREATE))
    pool.settle()
    assert condition(pool, "Stalled")["reason"] == "Refused", condition(pool, "Ready")
    old = pool.get(DEPLOYMENT, before)
    assert old is not None
    assert old["spec"]["replicas"] == 1
