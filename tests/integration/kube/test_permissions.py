"""The permissions an operator on the host needs, and no more: what the chart's roles are written from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.cluster.apiserver import ApiServer
from testbed.cluster.binaries import kubectl
from tests.integration.kube.operator_process import OperatorProcess
from tests.integration.kube.sample_operator import Options
from tests.integration.kube.world import World
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.resource import SERVICE_ACCOUNT, Resource

pytestmark = pytest.mark.apiserver
RBAC = "rbac.authorization.k8s.io"
#: kopf looks for kinds that come and go; only where the operator serves all namespaces.
SCANNED = {
    "apiGroups": ["apiextensions.k8s.io"],
    "resources": ["customresourcedefinitions"],
    "verbs": ["list", "watch"],
}


def rules(world: World) -> list[dict[str, list[str]]]:
    return [
        {"apiGroups": [world.group], "resources": ["widgets"], "verbs": ["list", "watch"]},
        {"apiGroups": [world.group], "resources": ["widgets/status"], "verbs": ["patch"]},
        # Server-side apply of an object that does not exist yet takes both `create` and `patch`.
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch", "delete"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    ]


async def grant(client: Client, world: World, scope: str, allowed: list[dict[str, list[str]]]) -> None:
    """A service account `operator` that may do exactly this, in the namespace ("") or everywhere ("Cluster")."""
    namespaced = not scope
    metadata = {"name": f"{world.namespace}-operator"} | ({"namespace": world.namespace} if namespaced else {})
    role = Resource(RBAC, "v1", f"{scope.lower()}roles", f"{scope}Role", namespaced)
    binding = Resource(RBAC, "v1", f"{scope.lower()}rolebindings", f"{scope}RoleBinding", namespaced)
    await client.apply(role, {"apiVersion": f"{RBAC}/v1", "kind": role.kind, "metadata": metadata, "rules": allowed})
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": world.namespace}
    reference = {"apiGroup": RBAC, "kind": role.kind, "name": metadata["name"]}
    bound = {"apiVersion": f"{RBAC}/v1", "kind": binding.kind, "metadata": metadata}
    await client.apply(binding, bound | {"subjects": [subject], "roleRef": reference})
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": world.namespace, "name": "operator"},
    }
    await client.apply(SERVICE_ACCOUNT, account)


def kubeconfig_of_operator(apiserver: ApiServer, namespace: str, path: Path) -> Path:
    """The administrator's kubeconfig with the service account's token in place of the certificate."""
    made = subprocess.run(
        [kubectl(), f"--kubeconfig={apiserver.kubeconfig}", "-n", namespace, "create", "token", "operator"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    config = yaml.safe_load(apiserver.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": made.stdout.strip()}
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("cluster_wide", [False, True])
async def test_these_permissions_are_enough(
    client: Client, world: World, apiserver: ApiServer, tmp_path: Path, cluster_wide: bool
) -> None:
    await grant(client, world, "Cluster" if cluster_wide else "", rules(world) + ([SCANNED] if cluster_wide else []))
    kubeconfig = kubeconfig_of_operator(apiserver, world.namespace, tmp_path / "kubeconfig")
    setup = Options(world.group, world.namespace, cluster_wide=cluster_wide, lease_seconds=15)
    await world.make("w", count=2)
    async with OperatorProcess(kubeconfig, setup, tmp_path / "log") as operator:
        await world.made("w", 2)
        await world.make("w", count=1)
        await world.shows({"w-0": "red"})
        await world.made("w", 1)
        await operator.settled()
        assert "orbidden" not in operator.log.read_text()


async def test_a_missing_permission_is_named(
    client: Client, world: World, apiserver: ApiServer, tmp_path: Path
) -> None:
    await grant(client, world, "", [rule for rule in rules(world) if rule["resources"] != ["widgets"]])
    kubeconfig = kubeconfig_of_operator(apiserver, world.namespace, tmp_path / "kubeconfig")
    setup = Options(world.group, world.namespace)
    async with OperatorProcess(kubeconfig, setup, tmp_path / "log") as operator:
        await operator.says(f'cannot list resource \\"widgets\\" in API group \\"{world.group}\\"')
