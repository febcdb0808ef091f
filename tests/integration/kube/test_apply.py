"""What is applied and comes back with all the server's defaults still counts as what was wanted."""

from __future__ import annotations

import pytest

from trtllm_operator.kube.apply import Applier
from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.diff import differences
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import CONFIG_MAP, DEPLOYMENT, JOB, SERVICE, Obj

pytestmark = pytest.mark.apiserver
RESOURCES = [DEPLOYMENT, SERVICE, JOB, CONFIG_MAP]
LABELS = {"app": "server"}


def pod(name: str) -> Obj:
    """A Pod template with everything a server of models has."""
    return {
        "metadata": {"labels": LABELS},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 60,
            "securityContext": {"runAsNonRoot": True, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "h200"]}]}
                        ]
                    }
                }
            },
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": LABELS},
                }
            ],
            "volumes": [
                {"name": "store", "persistentVolumeClaim": {"claimName": "engines", "readOnly": True}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
                {"name": "code", "configMap": {"name": "runner", "items": [{"key": "a", "path": "a"}]}},
            ],
            "containers": [
                {
                    "name": name,
                    "image": "registry.example/server:1",
                    "command": ["serve"],
                    "args": ["--port", "8000"],
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    ],
                    "ports": [
                        {"name": "http", "containerPort": 8000, "protocol": "TCP"},
                        {"name": "grpc", "containerPort": 8001, "protocol": "TCP"},
                    ],
                    "resources": {
                        "requests": {"cpu": "1000m", "memory": "2048Mi"},
                        "limits": {"memory": "2048Mi", "nvidia.com/gpu": 2},
                    },
                    "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": "http"}, "periodSeconds": 5},
                    "volumeMounts": [
                        {"name": "store", "mountPath": "/store", "readOnly": True},
                        {"name": "shm", "mountPath": "/dev/shm"},
                    ],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def wanted(namespace: str) -> list[Obj]:
    meta = {"namespace": namespace, "name": "server", "labels": LABELS}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": LABELS},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
                "template": pod("server"),
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {
                "selector": LABELS,
                "ports": [
                    {"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"},
                    {"name": "grpc", "port": 8001, "targetPort": "grpc", "protocol": "TCP"},
                ],
            },
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": {"a": "b"}},
    ]


async def filled(client: Client, namespace: str) -> tuple[Applier, Cache]:
    """As an operator finds it when it starts."""
    cache = Cache(RESOURCES)
    for resource in RESOURCES:
        for obj in await client.list(resource, namespace=namespace):
            cache.put(resource, obj)
    return Applier(client, cache, RESOURCES, hash_annotation="example.dev/applied"), cache


async def test_written_once_and_never_again(client: Client, namespace: str) -> None:
    applier, _ = await filled(client, namespace)
    for obj in wanted(namespace):
        assert list(differences(await applier.apply(obj), obj)) == []
    written = client.writes()
    for _ in range(2):
        applier, _ = await filled(client, namespace)
        for obj in wanted(namespace):
            await applier.apply(obj)
    assert client.writes() == written, "a restart wrote although nothing changed"


async def test_a_changed_wish_is_one_write(client: Client, namespace: str) -> None:
    applier, cache = await filled(client, namespace)
    for obj in wanted(namespace):
        await applier.apply(obj)
    written = client.writes()
    deployment = wanted(namespace)[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["env"].pop()
    for _ in range(3):
        live = await applier.apply(deployment)
    assert client.writes() == written + 1
    assert [env["name"] for env in live["spec"]["template"]["spec"]["containers"][0]["env"]] == ["A"]
    assert cache.get(DEPLOYMENT, namespace, "server") is not None


async def test_a_job_is_created_once_and_then_left_alone(client: Client, namespace: str) -> None:
    applier, cache = await filled(client, namespace)
    template = pod("build")
    template["spec"] |= {"restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": namespace, "name": "build"},
        "spec": {"backoffLimit": 0, "template": template},
    }
    first = await applier.create(job)
    assert cache.get(JOB, namespace, "build") is not None
    written = client.writes()
    again = await applier.create(job)
    assert client.writes() == written, "what is known to be there is not asked for again"
    forgetful = Applier(client, Cache(RESOURCES), RESOURCES, hash_annotation="example.dev/applied")
    unknown = await forgetful.create(job)
    assert {o["metadata"]["uid"] for o in (first, again, unknown)} == {first["metadata"]["uid"]}
    assert await applier.delete(again)


async def test_a_change_the_server_forbids_is_a_permanent_error(client: Client, namespace: str) -> None:
    applier, _ = await filled(client, namespace)
    deployment = wanted(namespace)[0]
    await applier.apply(deployment)
    other = {"matchLabels": {**LABELS, "another": "label"}}
    template = {**deployment["spec"]["template"], "metadata": {"labels": other["matchLabels"]}}
    with pytest.raises(ApiError, match="field is immutable") as refused:
        await applier.apply(deployment | {"spec": {**deployment["spec"], "selector": other, "template": template}})
    assert refused.value.is_permanent
