"""The chart's objects on a real API server."""

from __future__ import annotations

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.api.kubectl import Kubectl
from tests.integration.packaging.rendered import NAMESPACE, bundle, chart


@pytest.fixture(scope="session")
def installed(apiserver: ApiServer) -> Kubectl:
    """kubectl in the operator's namespace once everything that the chart makes is there."""
    kubectl = Kubectl(apiserver.kubeconfig, NAMESPACE)
    (namespace,) = (obj for (kind, _, _), obj in bundle("manifests").items() if kind == "Namespace")
    kubectl.ok("apply", "-f", "-", given=namespace)
    objects = {"apiVersion": "v1", "kind": "List", "items": list(chart().values())}
    kubectl.ok("apply", "--server-side", "-f", "-", given=objects)
    for name in ("llmengines.llmengine.dev", "engineartifacts.llmengine.dev"):
        kubectl.ok("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
    return kubectl
