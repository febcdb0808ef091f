"""Claims that one node, or one Pod, at a time can mount."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning.claims import ClaimVerdict, judge_claim
from trtllm_operator.planning.expansion import expand
from trtllm_operator.planning.gpu_nodes import read_node

from ..artifacts.world import node

CATALOG = load_catalog()
A100 = {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}}
H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
ANY = {"name": "gpu", "gpu": {"any": {}}}
NODES = {
    "a": node("a", "NVIDIA-A100-SXM4-80GB", "8.0", 81920),
    "h1": node("h1", "NVIDIA-H100-80GB-HBM3"),
    "h2": node("h2", "NVIDIA-H100-80GB-HBM3"),
    "cpu": node("cpu"),
}
HOST = {"nodeSelector": {"kubernetes.io/hostname": "h1"}}


def verdict(modes: list[str], targets: list[dict[str, Any]], nodes: list[str], **spec: Any) -> ClaimVerdict:
    made = LLMEngineSpec.model_validate(
        {
            "model": {"huggingFace": {"repo": "owner/model"}},
            "release": "1.2.1",
            "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
            "targets": targets,
            "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
            **spec,
        }
    )
    labeled = [
        {"metadata": {**(m := NODES[n]["metadata"]), "labels": {**m["labels"], "kubernetes.io/hostname": n}}}
        for n in nodes
    ]
    read = [read_node(n) for n in labeled]
    claim = {"metadata": {"name": "engines"}, "spec": {"accessModes": modes}}
    return judge_claim(claim, made, expand(made, read, CATALOG, {}).targets, read)


@pytest.mark.parametrize(
    ("modes", "targets", "nodes", "said"),
    [
        (["ReadWriteOnce"], [A100, H100], ["a", "h1"], "a100 on a; h100 on h1"),
        (["ReadWriteOnce"], [ANY], ["a", "h1", "cpu"], "no node is for all targets"),
        (["ReadWriteOnce"], [{**H100, "replicas": 2}], ["h1", "h2"], "its 2 servers may go to 2 nodes (h1, h2)"),
        (["ReadWriteOncePod"], [H100], ["h1"], "one Pod at a time"),
        (["ReadOnlyMany"], [H100], ["h1"], "claim engines is ReadOnlyMany, and builds write to it"),
    ],
)
def test_c90_what_more_than_one_node_or_pod_must_mount_is_refused(
    modes: list[str], targets: list[dict[str, Any]], nodes: list[str], said: str
) -> None:
    refused = verdict(modes, targets, nodes).refused
    assert said in refused
    assert "use a ReadWriteMany claim, or a bucket" in refused


@pytest.mark.parametrize(
    ("modes", "targets", "nodes", "spec"),
    [
        (["ReadWriteMany"], [A100, H100], ["a", "h1", "cpu"], {}),
        (["ReadWriteOnce", "ReadWriteMany"], [A100, H100], ["a", "h1", "cpu"], {}),
        (["ReadWriteOnce"], [{**H100, "replicas": 2}], ["h1"], {}),
        (["ReadWriteOnce"], [{**H100, "replicas": 2}], ["h1", "h2", "cpu"], {"build": HOST, "serving": HOST}),
        (["ReadWriteOnce"], [H100], ["cpu"], {}),
    ],
    ids=["many", "many too", "one node", "one node by name", "no such node yet"],
)
def test_c90_what_one_node_mounts_is_not_remarked_on(
    modes: list[str], targets: list[dict[str, Any]], nodes: list[str], spec: dict[str, Any]
) -> None:
    assert verdict(modes, targets, nodes, **spec) == ClaimVerdict()


@pytest.mark.parametrize("nodes", [["h1", "h2"], ["h1", "cpu"]])
def test_c90_what_may_land_on_another_node_is_warned_of_with_the_way_to_pin_it(nodes: list[str]) -> None:
    made = verdict(["ReadWriteOnce"], [H100], nodes)
    assert made.refused == ""
    assert "kubernetes.io/hostname" in made.warning
