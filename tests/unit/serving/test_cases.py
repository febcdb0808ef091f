"""Public reports about servers that start, serve and are replaced, by their number: the objects as rendered."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.kube.resource import DEPLOYMENT
from trtllm_operator.serving.revision import Revision
from trtllm_operator.serving.triton import DRAIN_SLEEP_SECONDS, EXIT_TIMEOUT_SECONDS, deployment, probes

from ..engines.simulation import World, engine

GIB, MIB = 2**30, 2**20
OWNER = {"kind": "LLMEngine", "metadata": {"name": "chat", "namespace": "team", "uid": "u"}}


@pytest.fixture
def made() -> dict[str, Any]:
    """A Deployment as the operator applies it."""
    world = World()
    world.put(engine())
    world.run_everything()
    return dict(world.find(DEPLOYMENT)[0])


def budget_seconds(probe: dict[str, Any]) -> int:
    return int(probe["periodSeconds"]) * int(probe["failureThreshold"])


def test_c78_loading_is_covered_by_a_start_up_probe_and_readiness_is_the_model_s(made: dict[str, Any]) -> None:
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/models/ensemble/ready"
    assert container["startupProbe"]["httpGet"]["path"] == "/v2/models/ensemble/ready"
    assert budget_seconds(container["startupProbe"]) >= 600


def test_c79_a_server_leaves_the_routes_before_it_unloads_its_models(made: dict[str, Any]) -> None:
    pod = made["spec"]["template"]["spec"]
    assert pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] == DRAIN_SLEEP_SECONDS > 0
    assert pod["terminationGracePeriodSeconds"] > DRAIN_SLEEP_SECONDS + EXIT_TIMEOUT_SECONDS


@pytest.mark.parametrize(
    ("size_bytes", "loading_seconds"),
    [
        (round(131.42 * GIB), 673),  # Llama-3.1-70B in bfloat16, from a volume of 200 MiB/s
        (round(756.0 * GIB), 3871),  # Llama-3.1-405B in bfloat16: 405.85e9 parameters of two bytes
        (round(14.96 * GIB), 77),  # Llama-3-8B in float16
    ],
)
def test_c92_the_time_to_start_is_twice_what_loading_takes_and_the_rollout_s_deadline_lies_above(
    size_bytes: int, loading_seconds: int
) -> None:
    assert round(size_bytes / (200 * MIB)) == loading_seconds
    made = probes(size_bytes)
    budget = budget_seconds(made["startupProbe"])
    assert budget >= max(600, 2 * loading_seconds)
    assert all("initialDelaySeconds" not in probe for probe in made.values()), "a small model waits for nothing"
    assert made["startupProbe"]["periodSeconds"] <= 10
    template = {"spec": {"containers": [made]}}
    spec = deployment(OWNER, Revision("chat-h100-1", "h100", (), template, {}), 1)["spec"]
    assert spec["progressDeadlineSeconds"] > budget


def test_c92_deadlines_of_engines_that_load_within_minutes_are_as_they_were() -> None:
    """A new version of the operator writes nothing to what serves."""
    template = {"spec": {"containers": [{"startupProbe": {"periodSeconds": 2, "failureThreshold": 300}}]}}
    spec = deployment(OWNER, Revision("chat-h100-1", "h100", (), template, {}), 1)["spec"]
    assert spec["progressDeadlineSeconds"] == 3600


@pytest.mark.parametrize("replicas", [1, 4])
def test_c88_within_a_deployment_no_server_waits_for_the_gpu_of_another(replicas: int) -> None:
    template = {"spec": {"containers": [probes(GIB)]}}
    revision = Revision("chat-h100-1", "h100", (), template, {})
    strategy = deployment(OWNER, revision, replicas)["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    where_one_is_free = deployment(OWNER, revision, replicas, surge=True)["spec"]["strategy"]
    assert where_one_is_free == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
