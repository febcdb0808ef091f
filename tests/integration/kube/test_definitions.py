"""The operator on an API server whose CustomResourceDefinitions are of another version."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cluster.apiserver import ApiServer
from tests.integration.api.kubectl import Kubectl
from tests.integration.api.objects import MINIMAL_ENGINE
from tests.integration.kube.operator_process import HostProcess
from tests.integration.kube.waiting import eventually
from trtllm_operator.api.crd import crds

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[3]
CONFIG = {"operatorImage": "llmengine/operator@sha256:" + "0" * 64}


def older(definition: dict[str, Any]) -> dict[str, Any]:
    """As a version may have been that had neither of two fields."""
    out = copy.deepcopy(definition)
    schema = out["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"].pop("serving", None)
    schema["properties"]["status"]["properties"].pop("reason", None)
    columns = out["spec"]["versions"][0]["additionalPrinterColumns"]
    out["spec"]["versions"][0]["additionalPrinterColumns"] = [c for c in columns if c["name"] != "Reason"]
    return out


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    """Serves definitions of an older version."""
    files = []
    for name, definition in crds().items():
        files.append(tmp_path / name)
        made = older(definition) if name.startswith("llmengine") else definition
        files[-1].write_text(yaml.safe_dump(made))
    with ApiServer(definitions=files) as server:
        yield server


async def test_c112_an_operator_whose_fields_would_be_lost_says_so_and_ends_and_a_new_definition_keeps_old_objects(
    server: ApiServer, tmp_path: Path
) -> None:
    kubectl = Kubectl(server.kubeconfig, "default")
    kubectl.ok("wait", "--for=condition=Established", "--timeout=30s", "crd/llmengines.llmengine.dev")
    kubectl.ok("create", "-f", "-", given=MINIMAL_ENGINE)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    environment = {
        "KUBECONFIG": str(server.kubeconfig),
        "LLMENGINE_CONFIG": str(tmp_path / "config.yaml"),
        "LLMENGINE_PORT": "0",
        "POD_NAMESPACE": "default",
        "PYTHONPATH": str(ROOT / "operator"),
    }

    async def published() -> bool:
        return '"LLMEngine"' in kubectl.ok("get", "--raw", "/openapi/v3/apis/llmengine.dev/v1alpha1")

    await eventually(published, "the schema to be published")
    async with HostProcess(["-m", "trtllm_operator.main"], environment, tmp_path / "older.log") as process:
        assert await process.over() == 1
        said = process.log.read_text()
    assert "llmengines.llmengine.dev has no spec.serving, status.reason" in said
    assert "apply the CustomResourceDefinitions of this version" in said
    assert kubectl.get("leases")["items"] == [], "the version before goes on working"

    kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", given=crds()["llmengines.yaml"])

    async def upgraded() -> bool:
        return '"serving"' in kubectl.ok("get", "--raw", "/openapi/v3/apis/llmengine.dev/v1alpha1")

    await eventually(upgraded, "the new schema to be published")
    async with HostProcess(["-m", "trtllm_operator.main"], environment, tmp_path / "newer.log"):

        async def looked_at() -> bool:
            return "reason" in kubectl.get("llmengine", MINIMAL_ENGINE["metadata"]["name"]).get("status", {})

        await eventually(looked_at, "the operator to work")
    assert kubectl.get("llmengine", MINIMAL_ENGINE["metadata"]["name"])["spec"] == MINIMAL_ENGINE["spec"]
