"""The operator's process with what the chart gives it: its configuration and its rights, nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.cluster.waiting import wait_until
from tests.integration.api.kubectl import Kubectl
from tests.integration.api.objects import MINIMAL_ENGINE
from tests.integration.packaging.rendered import NAMESPACE, RELEASE, ROOT, chart

pytestmark = pytest.mark.apiserver

START_SECONDS = 60
STOP_SECONDS = 30


def as_operator(kubectl: Kubectl, directory: Path) -> Path:
    """A kubeconfig with a token of the chart's ServiceAccount."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kubectl.ok("create", "token", RELEASE).strip()}
    path = directory / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def operator_log(installed: Kubectl, tmp_path: Path) -> Iterator[Path]:
    """The operator runs while a test does; its log."""
    settings = chart()["ConfigMap", NAMESPACE, RELEASE]["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(settings)
    environment = os.environ | {
        "KUBECONFIG": str(as_operator(installed, tmp_path)),
        "LLMENGINE_CONFIG": str(tmp_path / "config.yaml"),
        "LLMENGINE_PORT": "0",
        "POD_NAMESPACE": NAMESPACE,
        "PYTHONPATH": str(ROOT / "operator"),
    }
    path = tmp_path / "operator.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trtllm_operator.main"], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield path
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def test_c91_it_works_in_the_user_s_namespace_with_the_rights_of_the_chart(
    installed: Kubectl, operator_log: Path
) -> None:
    user = Kubectl(installed.kubeconfig, "team-b")
    user.ok("create", "namespace", "team-b")
    user.ok("create", "-f", "-", given=MINIMAL_ENGINE)

    def looked_at() -> bool:
        log = operator_log.read_text()
        assert "forbidden" not in log.lower(), log
        return bool(user.get("llmengine", "smollm2")["status"]["observedGeneration"] == 1)

    wait_until(looked_at, START_SECONDS, "the operator to look at an LLMEngine", hint=operator_log.read_text)
    jobs = user.get("jobs")["items"]
    assert [job["metadata"]["ownerReferences"][0]["name"] for job in jobs] == ["smollm2"], "no inspection was begun"


def test_it_keeps_a_lease_in_its_own_namespace(installed: Kubectl, operator_log: Path) -> None:
    def held() -> bool:
        leases = installed.get("leases", "--field-selector=metadata.name=llmengine-operator", "-A")["items"]
        holders = {lease["metadata"]["namespace"]: lease["spec"].get("holderIdentity") for lease in leases}
        return holders.keys() == {NAMESPACE} and bool(holders[NAMESPACE])

    wait_until(held, START_SECONDS, "the operator to hold its lease", hint=operator_log.read_text)
    assert "forbidden" not in operator_log.read_text().lower()
