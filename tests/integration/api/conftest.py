"""The CRDs of this repository on a real API server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.api.kubectl import Kubectl

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="session")
def installed(apiserver: ApiServer) -> ApiServer:
    """The API server once it serves both resources."""
    kubectl = Kubectl(apiserver.kubeconfig, "default")
    kubectl.ok("apply", "--server-side", "-f", str(CRDS / "llmengines.yaml"), "-f", str(CRDS / "engineartifacts.yaml"))
    kubectl.ok("wait", "--for=condition=Established", "--timeout=30s", "crd/llmengines.llmengine.dev")
    kubectl.ok("wait", "--for=condition=Established", "--timeout=30s", "crd/engineartifacts.llmengine.dev")
    return apiserver


@pytest.fixture
def kubectl(installed: ApiServer) -> Kubectl:
    """kubectl as an administrator, in a namespace of the test's own."""
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(installed.kubeconfig, namespace)
    kubectl.ok("create", "namespace", namespace)
    return kubectl
