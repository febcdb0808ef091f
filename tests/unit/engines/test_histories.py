"""Random histories of a cluster: users, controllers, failures and time in any order, with what must always hold."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trtllm_operator.api.engineartifact import GpuClass
from trtllm_operator.api.llmengine import Target
from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, NODE, SERVICE
from trtllm_operator.objects import REVISION, label
from trtllm_operator.planning.expansion import taker
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from ..artifacts.world import node
from .simulation import GATED, REFUSED, TOKEN, World, engine

NAMES = st.sampled_from(["one", "two"])
BUDGETS = st.builds(
    lambda length: {"maxBatchSize": 8, "maxInputLen": 512, "maxSeqLen": length, "maxNumTokens": 2048},
    st.sampled_from([1024, 2048, 4096]),
)
A100: dict[str, Any] = {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}}
H100: dict[str, Any] = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
ANY: dict[str, Any] = {"name": "gpu", "gpu": {"any": {}}}
HOPPER: dict[str, Any] = {"name": "hopper", "gpu": {"architecture": "hopper"}}
SELECTING = st.lists(st.sampled_from([A100, H100, ANY, HOPPER]), min_size=1, max_size=3, unique_by=lambda t: t["name"])


def scaled(target: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.integers(0, 2).map(lambda replicas: {**target, "replicas": replicas})


TARGETS = SELECTING.flatmap(lambda targets: st.tuples(*map(scaled, targets)))
SPECS = st.fixed_dictionaries(
    {"budgets": BUDGETS, "targets": TARGETS.map(list)},
    optional={
        "serving": st.builds(lambda p: {"kvCacheFreeGpuMemoryPercent": p}, st.sampled_from([50, 90])),
        "parallelism": st.builds(lambda n: {"tensor": n}, st.sampled_from([1, 2, 3])),
        "precision": st.builds(lambda q: {"quantization": q}, st.sampled_from(["none", "fp8"])),
        "build": st.builds(lambda n: {"maxAttempts": n}, st.integers(1, 3)),
        "model": st.just(GATED),
    },
)
NODES = {
    "h100": node("h100", "NVIDIA-H100-80GB-HBM3"),
    "h200": node("h200", "NVIDIA-H200", "9.0", 143771),
    "l40s": node("l40s", "NVIDIA-L40S", "8.9", 46068),
}
MAY_PASS = {"reason": "NetworkUnreachable", "message": "no route", "retryable": True}
NEVER = {"reason": "ToolFailed", "message": "assertion failed", "retryable": False}
INDEX = st.integers(0, 9)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(spec=SPECS, served=st.booleans())
    def begin(self, spec: dict[str, Any], served: bool) -> None:
        """Half of the histories begin where something serves: most of what can go wrong is seen only there."""
        if served:
            self.world.put(engine("one", **spec))
            self.all_goes_well_at_last()

    # Users.

    @rule(name=NAMES, spec=SPECS)
    def apply(self, name: str, spec: dict[str, Any]) -> None:
        self.world.put(engine(name, **spec))

    @rule(name=NAMES)
    def delete_engine(self, name: str) -> None:
        if found := self.world.get(LLM_ENGINE, name):
            self.world.delete(found)

    @rule(index=INDEX)
    def delete_something(self, index: int) -> None:
        """A person deletes a Job, a Deployment, a Service or a revision by hand."""
        found = [o for kind in (JOB, DEPLOYMENT, SERVICE, CONTROLLER_REVISION) for o in self.world.find(kind)]
        if found:
            self.world.delete(found[index % len(found)])

    # The cluster.

    @rule(index=INDEX)
    def finish_job(self, index: int) -> None:
        self.world.start_jobs()
        if jobs := self.world.unfinished_jobs():
            self.world.finish(jobs[index % len(jobs)])

    @rule(index=INDEX, failure=st.sampled_from([MAY_PASS, NEVER, REFUSED, None]))
    def fail_job(self, index: int, failure: dict[str, Any] | None) -> None:
        self.world.start_jobs()
        if jobs := self.world.unfinished_jobs():
            self.world.fail(jobs[index % len(jobs)], failure)

    @rule(index=INDEX)
    def lose_pod(self, index: int) -> None:
        if jobs := self.world.find(JOB):
            self.world.lose_pod(jobs[index % len(jobs)])

    @rule(index=INDEX, ready=st.booleans())
    def roll_out(self, index: int, ready: bool) -> None:
        if found := self.world.find(DEPLOYMENT):
            self.world.roll_out(found[index % len(found)], ready=ready)

    @rule(index=INDEX)
    def the_store_damages_an_artifact(self, index: int) -> None:
        if kept := sorted(self.world.published):
            self.world.damaged.add(kept[index % len(kept)])

    @rule(index=INDEX)
    def a_server_starts_again(self, index: int) -> None:
        if found := self.world.find(DEPLOYMENT):
            self.world.serve(found[index % len(found)])

    @rule(name=st.sampled_from(sorted(NODES)))
    def a_node_joins_or_leaves(self, name: str) -> None:
        if found := self.world.cache.get(NODE, "", name):
            self.world.delete(found)
        else:
            self.world.put({"apiVersion": "v1", "kind": "Node", **NODES[name]})

    @rule(suffix=st.sampled_from(["", "-SHARED", "-MIG-3g.40gb", "-MIG-INVALID"]))
    def labels_drift(self, suffix: str) -> None:
        if self.world.cache.get(NODE, "", "h100"):
            self.world.put({"apiVersion": "v1", "kind": "Node", **node("h100", f"NVIDIA-H100-80GB-HBM3{suffix}")})

    @rule()
    def the_secret_is_corrected(self) -> None:
        self.world.change_secret()

    @rule()
    def the_secret_goes(self) -> None:
        self.world.missing_secrets.add(TOKEN)

    @rule(seconds=st.sampled_from([1, 20, 400, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    # The operator.

    @rule()
    def operator_looks(self) -> None:
        kept = {s: r for s, r in self.serving().items() if self.wanted(s, r)}
        self.world.reconcile()
        for service, revision in kept.items():
            assert self.serving().get(service), f"{service} served {revision} and the operator took that away"

    @precondition(lambda self: self.world.find(LLM_ENGINE))
    @rule()
    def all_goes_well_at_last(self) -> None:
        """Whatever happened before: when everything works again, every engine ends served, or says who must act."""
        for made in NODES.values():
            self.world.put({"apiVersion": "v1", "kind": "Node", **made})
        self.world.change_secret()
        self.world.run_everything(60)
        self.world.settle()
        for found in self.world.find(LLM_ENGINE):
            status = {c["type"]: c["status"] for c in found["status"]["conditions"]}
            waiting = [t for t in found["status"]["targets"] if t["reason"] not in ("Serving", "Unsupported")]
            of_gone_gpus = bool(waiting) and all(self.lacks_its_node(t) for t in waiting)
            assert "True" in (status["Ready"], status.get("Stalled")) or of_gone_gpus, found["status"]
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
            if "tokenSecretRef" in found["spec"]["model"]["huggingFace"]:
                assert found["status"]["reason"] not in ("DownloadRefused", "SecretMissing"), (
                    "the Secret is right by now"
                )

    # What must always hold.

    def serving(self) -> dict[str, str]:
        """Services whose selected revision has a ready server."""
        deployments = {d["metadata"]["name"]: d for d in self.world.find(DEPLOYMENT)}
        return {
            service: revision
            for service, revision in self.world.served()
            if revision in deployments and deployments[revision].get("status", {}).get("availableReplicas")
        }

    def wanted(self, service: str, revision: str) -> bool:
        """Whether a target of the spec still stands for what the Service is for."""
        engine_name, _, name = service.partition("-")
        found = self.world.get(LLM_ENGINE, engine_name)
        targets = [Target.model_validate(t) for t in found["spec"]["targets"]] if found else []
        if any(t.name == name and t.gpu.product for t in targets):
            return True
        stored = self.world.get(CONTROLLER_REVISION, revision)
        if stored is None:  # a person has deleted it, and with it what is remembered of the class
            return False
        gpu = GpuClass.model_validate(stored["data"]["artifacts"][-1]["spec"]["inputs"]["gpu"])
        owner = taker(targets, gpu)
        return owner is not None and name.startswith(f"{owner.name}-")

    def lacks_its_node(self, target: dict[str, Any]) -> bool:
        products = {label(n, "nvidia.com/gpu.product") for n in self.world.find(NODE)}
        return target["reason"] == "NoMatchingNode" and target["gpu"].partition(" ")[0] not in products

    @invariant()
    def no_key_is_built_twice(self) -> None:
        for name, count in self.world.builds.items():
            assert count <= 1, f"{name} was built {count} times"

    @invariant()
    def servers_run_only_from_published_engines(self) -> None:
        revisions = {r["metadata"]["name"]: r for r in self.world.find(CONTROLLER_REVISION)}
        for deployment in self.world.find(DEPLOYMENT):
            revision = revisions.get(label(deployment, REVISION) or "")
            if revision is not None:
                engine_artifact = revision["data"]["artifacts"][-1]["name"]
                found = self.world.get(ENGINE_ARTIFACT, engine_artifact)
                being_made_again = found is not None and found.get("status", {}).get("phase") != "Ready"
                kept = engine_artifact in self.world.published
                assert kept or being_made_again, f"{engine_artifact} is served and not in the store"

    @invariant()
    def what_a_revision_needs_is_kept(self) -> None:
        for revision in self.world.find(CONTROLLER_REVISION):
            for artifact in revision["data"]["artifacts"]:
                found = self.world.get(ENGINE_ARTIFACT, artifact["name"])
                if found is not None and found.get("status", {}).get("phase") == "Ready":
                    assert artifact["name"] in self.world.published, f"{artifact['name']} is needed and its files gone"


Histories.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestHistories = Histories.TestCase
