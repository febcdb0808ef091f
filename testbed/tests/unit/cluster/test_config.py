"""The nodes file: what it may say, and what is said of what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cluster import ClusterError, config


def load(tmp_path: Path, text: str) -> config.Cluster:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    return config.load(path)


def test_the_default_nodes_are_two_gpu_generations_and_none() -> None:
    found = config.load(config.DEFAULT_NODES_FILE)
    assert [(node.name, node.gpu and node.gpu.compute_capability) for node in found.nodes] == [
        ("a100", "8.0"),
        ("h100", "9.0"),
        ("cpu", None),
    ]


def test_addresses_follow_from_the_networks(tmp_path: Path) -> None:
    addresses = load(tmp_path, "{nodes: [], network: {services: 203.0.113.0/24}}").network
    assert addresses.kubernetes_service_address == "203.0.113.1"
    assert addresses.dns_service_address == "203.0.113.10"
    assert (addresses.host_address, addresses.cluster_address) == ("198.19.0.1", "198.19.0.2")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{nodes: [{name: a, color: red}]}", "nodes.0.color: Extra inputs are not permitted"),
        ("{nodes: [{name: Bad_Name}]}", "nodes.0.name: String should match pattern"),
        ("{nodes: [{name: a}, {name: a}]}", "several nodes are called a"),
        ("{nodes: [{name: a, gpu: {name: X}}]}", "nodes.0.gpu.computeCapability: Field required"),
        ("nodes: [", "is not YAML"),
        ("[]", "valid dictionary"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ClusterError, match=r"nodes\.yaml") as refused:
        load(tmp_path, text)
    assert complaint in str(refused.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="No such file"):
        config.load(tmp_path / "none.yaml")
