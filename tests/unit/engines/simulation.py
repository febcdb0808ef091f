"""A model of a cluster for the pure planners: an API server's memory, the controllers around it, and time.

It keeps objects, lets the real reconciler act on them through a client that answers from memory, and plays the parts
that are not ours:
the Job and Deployment controllers, the kubelet and the garbage collector. Nothing runs by itself: a test says what
happens next, so that every order of events can be tried.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from trtllm_operator.artifacts.plan import Snapshot
from trtllm_operator.catalog import load_catalog
from trtllm_operator.kube.apply import Applier
from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Call, Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.ownership import NameTakenError
from trtllm_operator.kube.resource import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    JOB,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Obj,
    Resource,
    key_of,
)
from trtllm_operator.objects import ATTEMPT, CHECK, IDENTITY, REVISION, TARGET, label
from trtllm_operator.reconcile.metrics import DomainMetrics
from trtllm_operator.reconcile.observe import observe_artifact
from trtllm_operator.reconcile.reader import Reader
from trtllm_operator.reconcile.reconciler import Reconciler
from trtllm_operator.reconcile.secret_reader import SecretReader
from trtllm_operator.reconcile.watches import (
    ENGINE_ARTIFACT,
    INDEXED_LABELS,
    LLM_ENGINE,
    RESOURCES,
    Key,
    reduced_config_map,
)

from ..artifacts.world import CONFIG, NOW, RUNNER, node

T = TypeVar("T")
CATALOG = load_catalog()
NAMESPACE = "team"
TOKEN = "hub-token"
GATED = {"huggingFace": {"repo": "meta-llama/Llama-3.2-1B", "revision": "main", "tokenSecretRef": {"name": TOKEN}}}
"""A model that the Secret opens."""
REFUSED = {"reason": "DownloadRefused", "message": "401: check Secret hub-token", "retryable": False}
REPORT: dict[str, Any] = {
    "revision": "c" * 40,
    "largestFileBytes": 100 << 20,
    "config": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "num_hidden_layers": 30,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "tensors": None,
}


def engine(name: str = "smol", **changes: Any) -> dict[str, Any]:
    """An LLMEngine for two GPU generations, without an endpoint; `changes` replace fields of its spec."""
    targets = [
        {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}, "replicas": 1},
        {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1},
    ]
    spec = {
        "model": {"huggingFace": {"repo": "HuggingFaceTB/SmolLM2-135M-Instruct", "revision": "main"}},
        "release": "1.2.1",
        "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
        "targets": targets,
        "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
        "front": {"replicas": 0},
    }
    return {
        "apiVersion": LLM_ENGINE.api_version,
        "kind": LLM_ENGINE.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {**spec, **changes},
    }


def claim(name: str, *modes: str) -> dict[str, Any]:
    """A PersistentVolumeClaim; ReadWriteMany unless said otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"accessModes": list(modes) or ["ReadWriteMany"]},
    }


@dataclass
class Api:
    """The calls of `kube.client.Client` that the operator makes, answered from the world's memory."""

    world: World
    calls: Counter[Call] = field(default_factory=Counter)

    async def get(self, resource: Resource, namespace: str, name: str) -> Obj:
        if resource == SERVICE_ACCOUNT:
            return {"imagePullSecrets": [{"name": pull} for pull in self.world.pull_secrets]}
        return self._live(resource, namespace, name)

    async def version(self, resource: Resource, _namespace: str, name: str) -> str | None:
        assert resource == SECRET
        return self.world.secret_version(name)

    async def list(self, _resource: Resource, **_selection: str) -> list[Obj]:
        return []

    async def logs(self, _namespace: str, name: str, container: str, **_limits: int) -> str:
        raise ApiError(404, "NotFound", f"no log of {container} in {name}")

    async def create(self, resource: Resource, obj: Obj) -> Obj:
        if self._there(resource, NAMESPACE, obj["metadata"]["name"]) is not None:
            raise ApiError(409, "AlreadyExists", obj["metadata"]["name"])
        return self._written(self.world.put(obj))

    async def apply(self, resource: Resource, obj: Obj, *, subresource: str = "") -> Obj:
        meta = obj["metadata"]
        if subresource:
            live = self._live(resource, meta["namespace"], meta["name"])
            return self._written(self.world.put({**live, subresource: obj[subresource]}))
        there = self._there(resource, meta["namespace"], meta["name"]) or {}
        if there and any(meta.get(f, there["metadata"][f]) != there["metadata"][f] for f in ("uid", "resourceVersion")):
            raise ApiError(409, "Conflict", f"{meta['name']} is another one by now")
        return self._written(self.world.put({**there, **obj, "metadata": {**there.get("metadata", {}), **meta}}))

    async def merge(self, _resource: Resource, obj: Obj, changes: Obj) -> Obj:
        merged = {field: {**obj[field], **changes.get(field, {})} for field in ("metadata", "spec")}
        status: Obj = {"status": {}} if "spec" in changes else {}
        return self._written(self.world.put({**obj, **merged, **status}))

    async def replace(self, _resource: Resource, obj: Obj) -> Obj:
        return self._written(self.world.released(obj))

    async def delete(self, resource: Resource, obj: Obj, *, propagation: str = "Background") -> bool:
        assert propagation == "Background"
        meta = obj["metadata"]
        there = self.world.cache.get(resource, meta["namespace"], meta["name"])
        if there is None or there["metadata"]["uid"] != meta["uid"]:
            return False
        self._written(there)
        self.world.delete(obj)
        return True

    def _live(self, resource: Resource, namespace: str, name: str) -> Obj:
        if (live := self._there(resource, namespace, name)) is None:
            raise ApiError(404, "NotFound", name)
        return live

    def _there(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        known = self.world.cache.get(resource, namespace, name)
        return known or self.world.unwatched.get((resource, name))

    def _written(self, obj: Obj) -> Obj:
        self.world.writes += 1
        return obj


def finished(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call in which nothing waits for anything, so that it needs no event loop."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("it waits for something")


class World:
    """The cluster. `published`: what the store holds; `damaged`: what of that is not whole; `builds`: how often each
    was built since it was last taken away; `texts`: digest of the calibration texts on the claim."""

    def __init__(self) -> None:
        self.cache = Cache(RESOURCES, indexed_labels=INDEXED_LABELS, reduced={CONFIG_MAP: reduced_config_map})
        self.now = NOW
        self.version = 0
        self.writes = 0
        self.published: set[str] = set()
        self.damaged: set[str] = set()
        self.builds: Counter[str] = Counter()
        self.texts = "e" * 64
        self.secrets: Counter[str] = Counter()
        """Their versions."""
        self.unwatched: dict[tuple[Resource, str], Obj] = {}
        """Objects of others, without our labels."""
        self.missing_secrets: set[str] = set()
        """Those that do not exist; all others that are named do."""
        self.pull_secrets: tuple[str, ...] = ()
        """Those of the ServiceAccount."""
        self._by_kind: dict[str, Resource] = {r.kind: r for r in RESOURCES}
        client = cast("Client", Api(self))
        looks = itertools.count(step=1000)
        self.reconciler = Reconciler(
            client=client,
            cache=self.cache,
            applier=Applier(client, self.cache, RESOURCES, hash_annotation="llmengine.dev/applied", identity=IDENTITY),
            catalog=CATALOG,
            config=CONFIG,
            runner=RUNNER,
            reader=Reader(client, clock=lambda: self.now.timestamp()),
            secrets=SecretReader(client, clock=lambda: float(next(looks))),
            now=lambda: self.now,
        )
        for made in (
            node("a100", "NVIDIA-A100-SXM4-80GB", "8.0", 81920),
            node("h100", "NVIDIA-H100-80GB-HBM3"),
            node("cpu"),
        ):
            self.put({"apiVersion": "v1", "kind": "Node", **made})
        self.put(claim("engines"))

    def watch_by(self, metrics: Callable[[Cache, Client], DomainMetrics]) -> None:
        """Let the operator count what happens from now on."""
        made = metrics(self.cache, self.reconciler.client)
        self.reconciler = replace(self.reconciler, metrics=made)

    # What the API server does.

    def put(self, obj: Mapping[str, Any]) -> Obj:
        """Store an object: a new one, or the same with another spec (its generation then grows)."""
        new = copy.deepcopy(dict(obj))
        resource, meta = self._by_kind[new["kind"]], new["metadata"]
        old = self.cache.get(resource, meta.get("namespace", ""), meta["name"])
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        meta["uid"] = old["metadata"]["uid"] if old else f"uid-{self.version}"
        meta["creationTimestamp"] = old["metadata"]["creationTimestamp"] if old else self.stamp()
        changed = old is None or old.get("spec") != new.get("spec")
        meta["generation"] = (old["metadata"]["generation"] if old else 0) + int(changed)
        if old and "status" in old:
            new.setdefault("status", old["status"])
        self.cache.put(resource, new)
        return new

    def take(self, obj: Obj) -> None:
        """Store an object as it was recorded elsewhere, its uid, generation and times too."""
        resource, meta = self._by_kind[obj["kind"]], obj["metadata"]
        if old := self.cache.get(resource, meta.get("namespace", ""), meta["name"]):
            self.version += 1
            self.cache.remove(resource, key_of(old), old["metadata"]["uid"], self.version)
        self.version = max(self.version, int(meta["resourceVersion"])) + 1
        self.cache.put(resource, {**obj, "metadata": {**meta, "resourceVersion": str(self.version)}})
        self.now = max(self.now, datetime.fromisoformat(meta["creationTimestamp"]))

    def set_status(self, obj: Obj, status: Mapping[str, Any]) -> None:
        self.put({**obj, "status": dict(status)})

    def delete(self, obj: Obj) -> None:
        """As the API server does: at once, or marked while finalizers hold it; what it owns goes with it."""
        meta = obj["metadata"]
        resource = self._by_kind[obj["kind"]]
        live = self.cache.get(resource, meta.get("namespace", ""), meta["name"])
        if live is None or live["metadata"]["uid"] != meta["uid"]:
            return
        if live["metadata"].get("finalizers"):
            marked = {**live, "metadata": {**live["metadata"], "deletionTimestamp": self.stamp()}}
            self.put(marked)
            return
        self._gone(resource, live)

    def _gone(self, resource: Resource, live: Obj) -> None:
        self.version += 1
        self.cache.remove(resource, key_of(live), live["metadata"]["uid"], self.version)
        for owned in self.cache.owned_by(live["metadata"]["uid"]):
            self.delete(owned)

    def find(self, resource: Resource) -> list[Obj]:
        return self.cache.find(resource)

    def get(self, resource: Resource, name: str) -> Obj | None:
        return self.cache.get(resource, NAMESPACE, name)

    def stamp(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def pass_time(self, seconds: float) -> None:
        self.now = datetime.fromtimestamp(self.now.timestamp() + seconds, UTC)

    def change_secret(self, name: str = TOKEN) -> None:
        """A person makes a Secret, or puts another value into it."""
        self.version += 1
        self.secrets[name] = self.version
        self.missing_secrets.discard(name)

    def secret_version(self, name: str) -> str | None:
        return None if name in self.missing_secrets else str(self.secrets[name])

    # What the operator does.

    def reconcile(self) -> int:
        """Every key once; the number of writes that took."""
        before = self.writes
        for found in self.find(LLM_ENGINE):
            self._reconcile(Key("LLMEngine", NAMESPACE, found["metadata"]["name"]))
        for found in self.find(ENGINE_ARTIFACT):
            self._reconcile(Key("EngineArtifact", NAMESPACE, found["metadata"]["name"]))
        return self.writes - before

    def settle(self, limit: int = 50) -> None:
        """Until the operator has nothing to write."""
        for _ in range(limit):
            if self.reconcile() == 0:
                return
        raise AssertionError(f"the operator still writes after {limit} rounds in which nothing happened")

    def observe(self, artifact: Obj) -> Snapshot:
        """What the plan of an artifact sees."""
        return observe_artifact(artifact, self.cache, catalog=CATALOG, config=CONFIG, runner=RUNNER, now=self.now)

    def _reconcile(self, key: Key) -> None:
        """One pass of the product's own reconciler; a name that is taken is looked at again like any that failed."""
        with contextlib.suppress(NameTakenError):
            finished(self.reconciler.reconcile(key))

    def released(self, obj: Obj) -> Obj:
        """An object is replaced by one without the finalizers that held it."""
        kept = self.put(obj)
        if "deletionTimestamp" in kept["metadata"] and not kept["metadata"].get("finalizers"):
            self._gone(self._by_kind[kept["kind"]], kept)
        return kept

    # What the controllers and kubelets around it do.

    def start_jobs(self) -> None:
        """The Job controller makes a Pod for each Job that has none."""
        for job in self.find(JOB):
            name = job["metadata"]["name"]
            if job["spec"].get("suspend"):
                self.set_status(job, {"conditions": [{"type": "Suspended", "status": "True"}]})
            elif not job.get("status", {}).get("conditions") and not self.pods_of(job):
                template = job["spec"]["template"]
                labels = {**template["metadata"]["labels"], "job-name": name}
                self.put(
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {
                            "name": f"{name}-pod",
                            "namespace": NAMESPACE,
                            "labels": labels,
                            "ownerReferences": [{"uid": job["metadata"]["uid"], "controller": True, "kind": "Job"}],
                        },
                        "spec": {**template["spec"], "nodeName": "h100"},
                        "status": {},
                    }
                )

    def pods_of(self, job: Obj) -> list[Obj]:
        return [p for p in self.find(POD) if label(p, "job-name") == job["metadata"]["name"]]

    def running_pods_of(self, job: Obj) -> list[Obj]:
        return [p for p in self.pods_of(job) if p.get("status", {}).get("phase") != "Failed"]

    def run_jobs(self, rounds: int = 8) -> None:
        """Jobs run to their ends, and no server does anything."""
        for _ in range(rounds):
            self.reconcile()
            self.start_jobs()
            for job in self.unfinished_jobs():
                self.finish(job)
            self.pass_time(20)
        self.settle()

    def unfinished_jobs(self) -> list[Obj]:
        return [j for j in self.find(JOB) if not j.get("status", {}).get("conditions") and self.pods_of(j)]

    def finish(self, job: Obj) -> None:
        """The Job's Pod does its work and reports it."""
        artifact = label(job, "llmengine.dev/artifact")
        result: dict[str, Any] = {"manifestDigest": "ab" * 32, "sizeBytes": 1000, "files": 2, "build": {}}
        if artifact is None and job["spec"]["template"]["spec"]["containers"][0]["name"] == "digest":
            result = {"digest": self.texts, "files": 1, "sizeBytes": 1000}
        elif artifact is None:
            hub = "huggingFace" in str(job["spec"]["template"]["spec"]["containers"][0]["command"])
            result = REPORT if hub else {**REPORT, "revision": "d" * 64}
        elif label(job, CHECK):
            result = self._check(artifact)
        elif label(job, ATTEMPT) is None:
            self._forget(artifact)
            result = {}
        elif found := self._damaged_on_the_way(artifact):
            message = f"{found} is not what was published"
            failure = {"reason": "ArtifactCorrupted", "message": message, "retryable": True, "artifact": found}
            self.fail(job, failure)
            return
        elif self._has_other_texts(artifact):
            self.fail(job, {"reason": "CalibrationChanged", "message": "others are there", "retryable": False})
            return
        else:
            if artifact not in self.published:
                self.builds[artifact] += 1
            self.published.add(artifact)
        for pod in self.running_pods_of(job):
            name = pod["spec"]["containers"][0]["name"]
            self._end_pod(pod, name, 0, json.dumps({"result": result}))
        self._end_job(job, "Complete")

    def _has_other_texts(self, artifact: str) -> bool:
        found = self.get(ENGINE_ARTIFACT, artifact)
        texts = found["spec"]["inputs"].get("calibration", {}) if found else {}
        return texts.get("digest", self.texts) != self.texts and artifact not in self.published

    def _check(self, artifact: str) -> dict[str, Any]:
        """The check's Pod reads the store's copy and takes it away unless it is whole."""
        if artifact in self.published and artifact not in self.damaged:
            return {"whole": True}
        self._forget(artifact)
        return {"whole": False, "problem": f"{artifact} is not what was published"}

    def _forget(self, artifact: str) -> None:
        self.published.discard(artifact)
        self.damaged.discard(artifact)
        self.builds.pop(artifact, None)

    def _damaged_on_the_way(self, artifact: str) -> str | None:
        """What an attempt meets in the store that is not whole: the artifact, or what it is made from."""
        if artifact in self.damaged:
            return artifact
        found = self.get(ENGINE_ARTIFACT, artifact)
        parent = found["spec"]["inputs"].get("parent") if found else None
        if artifact in self.published or parent is None:
            return None
        return parent if parent not in self.published or parent in self.damaged else None

    def serve(self, deployment: Obj) -> None:
        """A server of the Deployment starts, or starts again: it runs, unless an artifact it reads is not whole."""
        revision = self.get(CONTROLLER_REVISION, deployment["metadata"]["name"])
        if revision is None:
            return
        names = [a["name"] for a in revision["data"]["artifacts"] if a["spec"]["type"] != "Checkpoint"]
        bad = next((n for n in names if n not in self.published or n in self.damaged), None)
        failure = {"reason": "ArtifactCorrupted", "message": f"{bad} is damaged", "retryable": True, "artifact": bad}
        ended = {"exitCode": 75, "message": json.dumps({"failure": failure}), "finishedAt": self.stamp()}
        state = {"lastState": {"terminated": ended}, "restartCount": 1} if bad else {"state": {"running": {}}}
        template = deployment["spec"]["template"]
        name = f"{deployment['metadata']['name']}-pod"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{"uid": deployment["metadata"]["uid"], "controller": True, "kind": "Deployment"}],
            },
            "spec": {**template["spec"], "nodeName": "h100"},
        }
        status = {"name": "triton", "image": "i", "ready": bad is None, **state}
        self.put({**pod, "status": {"containerStatuses": [status]}})
        self.roll_out(deployment, ready=bad is None)

    def fail(self, job: Obj, failure: Mapping[str, Any] | None) -> None:
        """The Job's Pod reports a failure; with None it is killed for memory."""
        for pod in self.running_pods_of(job):
            containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            name = containers[-2 if len(containers) > 1 else 0]["name"]
            if failure is None:
                self._end_pod(pod, name, 137, "", reason="OOMKilled")
            else:
                self._end_pod(pod, name, 75 if failure["retryable"] else 64, json.dumps({"failure": failure}))
        self._end_job(job, "Failed")

    def disrupt(self, job: Obj, reason: str, evicted: str = "") -> None:
        """The cluster ends the Job's Pod, and the Job controller, which ignores that, makes another."""
        pods = self.pods_of(job)
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "by the test"}
        status: dict[str, Any] = {"phase": "Failed", "conditions": [target]}
        if evicted:
            status |= {"reason": "Evicted", "message": evicted}
        newest = pods[-1]
        self.set_status(newest, status)
        meta = {k: v for k, v in newest["metadata"].items() if k in ("namespace", "labels", "ownerReferences")}
        self.pass_time(1)
        name = f"{job['metadata']['name']}-pod-{len(pods)}"
        self.put({**newest, "metadata": {**meta, "name": name}, "status": {}})

    def refuse_image(self, job: Obj) -> None:
        """The Job's Pod waits on a node that cannot pull its image."""
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "unauthorized"}}
        for pod in self.running_pods_of(job):
            self.set_status(pod, {"containerStatuses": [{"name": "fetch", "image": "i", "state": waiting}]})

    def lose_pod(self, job: Obj) -> None:
        for pod in self.pods_of(job):
            self.delete(pod)

    def _end_pod(self, pod: Obj, container: str, code: int, message: str, reason: str = "Error") -> None:
        ended = {"exitCode": code, "message": message, "reason": reason, "finishedAt": self.stamp()}
        state = {"terminated": ended}
        self.set_status(pod, {"containerStatuses": [{"name": container, "image": "i", "state": state}]})

    def _end_job(self, job: Obj, type_: str) -> None:
        live = self.get(JOB, job["metadata"]["name"])
        assert live is not None
        condition = {"type": type_, "status": "True", "lastTransitionTime": self.stamp()}
        self.set_status(live, {"conditions": [condition], "startTime": self.stamp(), "completionTime": self.stamp()})

    def roll_out(self, deployment: Obj, *, ready: bool = True) -> None:
        """The Deployment's Pods become ready, or stop being."""
        replicas = deployment["spec"]["replicas"]
        count = replicas if ready else 0
        self.set_status(
            deployment,
            {
                "observedGeneration": deployment["metadata"]["generation"],
                "replicas": replicas,
                "updatedReplicas": replicas,
                "availableReplicas": count,
                "readyReplicas": count,
            },
        )

    def run_everything(self, rounds: int = 30, *, servers: bool = True) -> None:
        """Everything goes well until nothing changes any more, though time passes."""
        quiet = 0
        for _ in range(rounds):
            before = self.version
            self.reconcile()
            self.start_jobs()
            for job in self.unfinished_jobs():
                self.finish(job)
            for deployment in self.find(DEPLOYMENT) if servers else ():
                status = deployment.get("status", {})
                fresh = status.get("observedGeneration") == deployment["metadata"]["generation"]
                if not fresh or status.get("availableReplicas") != deployment["spec"]["replicas"]:
                    self.serve(deployment)
            self.pass_time(400)
            quiet = quiet + 1 if self.version == before else 0
            if quiet == 3:  # the longest pause of the operator is over
                return

    def jobs_of(self, type_: str) -> list[Obj]:
        """Jobs of attempts at artifacts of a type."""
        return [j for j in self.find(JOB) if (label(j, "llmengine.dev/artifact") or "").startswith(f"{type_.lower()}-")]

    def served(self) -> Iterator[tuple[str, str]]:
        """(Service, revision it selects)."""
        for service in self.find(SERVICE):
            if label(service, TARGET):
                yield service["metadata"]["name"], service["spec"]["selector"][REVISION]
