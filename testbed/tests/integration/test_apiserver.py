"""The API server that the other integration tests rely on is the strict one that the local cluster runs."""

from __future__ import annotations

import json
import subprocess

import pytest

from testbed.cluster.apiserver import ApiServer
from testbed.cluster.binaries import kubectl as kubectl_binary

pytestmark = pytest.mark.apiserver


def kubectl(server: ApiServer, *arguments: str, given: object = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [kubectl_binary(), f"--kubeconfig={server.kubeconfig}", *arguments],
        input=None if given is None else json.dumps(given),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_objects_are_stored(apiserver: ApiServer) -> None:
    made = kubectl(apiserver, "create", "configmap", "stored", "--from-literal=key=value")
    assert made.returncode == 0, made.stderr
    assert kubectl(apiserver, "get", "configmap", "stored", "-o", "jsonpath={.data.key}").stdout == "value"


def test_a_user_without_roles_is_refused(apiserver: ApiServer) -> None:
    refused = kubectl(apiserver, "get", "secrets", "--as=nobody")
    assert "is forbidden" in refused.stderr, "RBAC does not restrict an unknown user"


def test_a_privileged_pod_is_refused_where_pods_are_restricted(apiserver: ApiServer) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "restricted"}}
    for thing in (namespace, account):
        made = kubectl(apiserver, "apply", "-f-", given=thing)
        assert made.returncode == 0, made.stderr
    container = {"name": "main", "image": "docker.io/local/none:1", "securityContext": {"privileged": True}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged", "namespace": "restricted"},
        "spec": {"containers": [container]},
    }
    refused = kubectl(apiserver, "apply", "-f-", given=pod)
    assert 'violates PodSecurity "restricted' in refused.stderr
