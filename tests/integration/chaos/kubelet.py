"""The scheduler, the nodes and their kubelets, played on a real API server: Pods are placed, run, report and end.

Jobs, Deployments, the garbage collector and namespaces are the real controller-manager's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from testbed.cluster.config import Gpu
from testbed.cluster.gpus import labels as gpu_labels
from tests.integration.chaos.steps import Workshop
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import NODE, POD, SECRET, Obj
from trtllm_operator.objects import ARTIFACT, ATTEMPT, MANAGED, label
from trtllm_operator.runner.report import StepError

LOOK_SECONDS = 0.1
HEARTBEAT_SECONDS = 5
GPU = "nvidia.com/gpu"
HOST = {"memory": "1Ti", "cpu": "128", "pods": "1000", "ephemeral-storage": "10Ti"}


@dataclass(frozen=True)
class Machine:
    """One node. `gpus` limits what runs on it at once."""

    name: str
    gpu: Gpu | None = None

    @property
    def gpus(self) -> int:
        return self.gpu.count if self.gpu else 0


def h100(count: int = 8) -> Machine:
    return Machine("h100", _gpu("NVIDIA H100 80GB HBM3", "9.0", 81559, count))


def a100(count: int = 8) -> Machine:
    return Machine("a100", _gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, count))


def _gpu(name: str, capability: str, memory_mib: int, count: int) -> Gpu:
    return Gpu(
        name=name, compute_capability=capability, memory_mib=memory_mib, count=count, driver="580.159.04", cuda="13.0"
    )


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def gpus_asked(pod: Obj) -> int:
    """GPUs a Pod holds while it runs: an init container's are its own too."""
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    return max(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in containers)


class Kubelets:
    """All nodes of one API server; an async context manager.

    `started` counts the Pods of attempts that ran, by namespace and artifact; `order` has the artifacts of Pods with
    GPUs as they began. With `working` cleared, Pods run on and do not end; so do those of attempts at artifacts whose
    names begin with `holding`.
    """

    def __init__(self, client: Client, directory: Path, machines: Sequence[Machine]) -> None:
        self._client = client
        self._directory = directory
        self._machines = {m.name: m for m in machines}
        self._workshops: dict[str, Workshop] = {}
        self.started: Counter[tuple[str, str]] = Counter()
        self.order: list[tuple[str, str]] = []
        self._arrivals: dict[str, int] = {}
        self.made: Counter[tuple[str, str]] = Counter()
        """Pods that there were of a Job, by namespace and the Job's name."""
        self.holding: tuple[str, ...] = ()
        self.working = asyncio.Event()
        self.working.set()

    def workshop(self, namespace: str) -> Workshop:
        if namespace not in self._workshops:
            self._workshops[namespace] = Workshop(self._directory / namespace)
        return self._workshops[namespace]

    async def __aenter__(self) -> Self:
        self._session = self._client.new_session()
        for machine in self._machines.values():
            await self._register(machine)
        self._tasks = [asyncio.create_task(self._play()), asyncio.create_task(self._beat())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def check(self) -> None:
        """Raises what ended the play, if anything did."""
        for task in self._tasks:
            if task.done():
                task.result()

    # Nodes.

    async def _register(self, machine: Machine) -> None:
        labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": machine.name}
        if machine.gpu:
            labels |= gpu_labels(machine.gpu)
        meta = {"name": machine.name, "labels": labels}
        await self._client.apply(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        await self._heartbeat(machine)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for machine in self._machines.values():
                with contextlib.suppress(ApiError):
                    await self._heartbeat(machine)

    async def _heartbeat(self, machine: Machine) -> None:
        offered = HOST | ({GPU: str(machine.gpus)} if machine.gpus else {})
        ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now()}
        status = {"capacity": offered, "allocatable": offered, "conditions": [ready]}
        await self._client.apply(NODE, _named("Node", {"name": machine.name}, status), subresource="status")

    # Pods.

    async def _play(self) -> None:
        while True:
            try:
                pods = await self._client.list(POD, label_selector=f"{MANAGED}=true")
            except ApiError as error:
                if not error.is_overload:
                    raise
                await asyncio.sleep(LOOK_SECONDS)
                continue
            for pod in sorted(pods, key=self._arrived):
                try:
                    await self._step(pod, pods)
                except ApiError as error:
                    # Deleted, or changed, since it was listed; or the server is away.
                    if not (error.is_not_found or error.is_conflict or error.is_overload):
                        raise
            await asyncio.sleep(LOOK_SECONDS)

    def _arrived(self, pod: Obj) -> int:
        """Its place in the order in which Pods were first seen: the scheduler's queue."""
        uid = pod["metadata"]["uid"]
        if uid not in self._arrivals and (job := label(pod, "job-name")):
            self.made[pod["metadata"]["namespace"], job] += 1
        return self._arrivals.setdefault(uid, len(self._arrivals))

    async def _step(self, pod: Obj, pods: list[Obj]) -> None:
        """The next thing that happens to a Pod."""
        phase = pod.get("status", {}).get("phase")
        if "deletionTimestamp" in pod["metadata"]:
            await self._end(pod)
        elif phase in ("Succeeded", "Failed"):
            return
        elif "nodeName" not in pod["spec"]:
            await self._place(pod, pods)
        elif phase == "Pending":
            await self._start(pod)
        elif "job-name" in pod["metadata"]["labels"] and self.working.is_set() and not self._holds(pod):
            await self._finish(pod)

    def _holds(self, pod: Obj) -> bool:
        return bool(label(pod, ATTEMPT)) and (label(pod, ARTIFACT) or "").startswith(self.holding or ("-",))

    async def _end(self, pod: Obj) -> None:
        """A Pod told to end ends, as a kubelet says it: first that it failed, then that it is gone."""
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            await self._say(pod, {"phase": "Failed", "reason": "Deleted", "containerStatuses": []})
        await self._call("DELETE", pod, "", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    async def _place(self, pod: Obj, pods: list[Obj]) -> None:
        """On the first node that its affinity allows and that has the GPUs; where one allows it and has none, that is
        said as the scheduler does."""
        asked, full = gpus_asked(pod), False
        for machine in self._machines.values():
            if not _allows(pod, machine, asked):
                continue
            held = sum(
                gpus_asked(p)
                for p in pods
                if p["spec"].get("nodeName") == machine.name
                and p.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            )
            if asked and held + asked > machine.gpus:
                full = True
                continue
            target = {"apiVersion": "v1", "kind": "Node", "name": machine.name}
            meta = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
            await self._call("POST", pod, "binding", binding)
            pod["spec"]["nodeName"] = machine.name
            return
        if full and not pod["status"].get("conditions"):
            said = {
                "reason": "Unschedulable",
                "message": f"0/{len(self._machines)} nodes are available: 1 Insufficient {GPU}.",
            }
            await self._say(pod, {"phase": "Pending", "conditions": [_condition("PodScheduled", False) | said]})

    async def _start(self, pod: Obj) -> None:
        serves = "job-name" not in pod["metadata"]["labels"]
        running = {"running": {"startedAt": now()}}
        status = {
            "phase": "Running",
            "startTime": now(),
            "podIP": "198.18.0.1",
            "podIPs": [{"ip": "198.18.0.1"}],
            "conditions": [_condition(t, serves or t != "Ready") for t in ("Initialized", "ContainersReady", "Ready")],
            "containerStatuses": [_container(c, running, ready=serves) for c in pod["spec"]["containers"]],
        }
        await self._say(pod, status)
        artifact = label(pod, ARTIFACT)
        if artifact and label(pod, ATTEMPT):
            self.started[pod["metadata"]["namespace"], artifact] += 1
            if gpus_asked(pod):
                self.order.append((pod["metadata"]["namespace"], artifact))

    async def _finish(self, pod: Obj) -> None:
        failure: StepError | None = None
        reports: dict[str, dict[str, Any]] = {}
        try:
            workshop = self.workshop(pod["metadata"]["namespace"])
            reports = await asyncio.to_thread(workshop.run, pod, await self._token(pod))
        except StepError as error:
            failure = error

        def ended(container: Obj) -> Obj:
            report = failure.report() if failure else {"result": reports[container["name"]]}
            code, reason = (64, "Error") if failure else (0, "Completed")
            terminated = {"exitCode": code, "reason": reason, "message": json.dumps(report), "finishedAt": now()}
            return _container(container, {"terminated": terminated})

        spec = pod["spec"]
        status = {
            "phase": "Failed" if failure else "Succeeded",
            "startTime": pod["status"]["startTime"],
            "conditions": [_condition("Initialized", True), _condition("Ready", False)],
            "initContainerStatuses": [ended(c) for c in spec.get("initContainers") or ()],
            "containerStatuses": [ended(c) for c in spec["containers"]],
        }
        await self._say(pod, status)

    async def _token(self, pod: Obj) -> str | None:
        """What the Secret holds that the Pod mounts for the hub."""
        mounted = next((v["secret"] for v in pod["spec"]["volumes"] if v["name"] == "token"), None)
        if mounted is None:
            return None
        secret = await self._client.get(SECRET, pod["metadata"]["namespace"], mounted["secretName"])
        return base64.b64decode(secret["data"][mounted["items"][0]["key"]]).decode()

    async def _say(self, pod: Obj, status: Mapping[str, Any]) -> None:
        meta = {key: pod["metadata"][key] for key in ("namespace", "name", "uid")}
        pod["status"] = await self._client.apply(POD, _named("Pod", meta, status), subresource="status")

    async def _call(self, method: str, pod: Obj, subresource: str, body: Mapping[str, Any]) -> None:
        path = POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"], subresource)
        async with self._session.request(
            method, self._client.config.server + path, json=body, timeout=aiohttp.ClientTimeout(total=15)
        ) as response:
            if response.status >= 400 and response.status not in (404, 409):
                raise AssertionError(f"{method} {path}: {response.status} {await response.text()}")


def _named(kind: str, meta: Mapping[str, Any], status: Mapping[str, Any]) -> Obj:
    return {"apiVersion": "v1", "kind": kind, "metadata": dict(meta), "status": dict(status)}


def _condition(type_: str, value: bool) -> Obj:
    return {"type": type_, "status": str(value), "lastTransitionTime": now()}


def _container(container: Obj, state: Obj, *, ready: bool = False) -> Obj:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "restartCount": 0,
        "ready": ready,
        "state": state,
    }


def _allows(pod: Obj, machine: Machine, asked: int) -> bool:
    """Whether the required node affinity selects the machine; what asks for no GPU goes where there are none."""
    if not asked:
        return machine.gpu is None
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    labels = (gpu_labels(machine.gpu) if machine.gpu else {}) | {"kubernetes.io/arch": "amd64"}
    return bool(machine.gpu) and any(
        all(labels.get(e["key"]) in e["values"] for e in term["matchExpressions"]) for term in required
    )
