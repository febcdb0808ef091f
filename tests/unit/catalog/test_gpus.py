"""Product labels and the GPU table."""

from __future__ import annotations

import pytest

from trtllm_operator.catalog import load_catalog, parse_product
from trtllm_operator.planning import TargetGpu

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("label", "name", "mig", "shared"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB-HBM3", None, False),
        ("A100-SXM4-40GB", "A100-SXM4-40GB", None, False),
        ("Tesla-T4", "T4", None, False),
        ("NVIDIA-A10G-SHARED", "A10G", None, True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-SXM4-40GB", "1g.5gb", False),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100-SXM4-40GB", "1g.5gb", True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", "A100-SXM4-40GB", "1g.5gb.me", False),
        ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", "H100-80GB-HBM3", "INVALID", False),
    ],
)
def test_a_label_is_taken_apart(label: str, name: str, mig: str | None, shared: bool) -> None:
    assert parse_product(label) == (name, mig, shared)


@pytest.mark.parametrize(
    ("label", "capability"),
    [
        ("NVIDIA-L4", "8.9"),
        ("NVIDIA-L40S", "8.9"),
        ("NVIDIA-A10", "8.6"),
        ("NVIDIA-A10G", "8.6"),
        ("NVIDIA-A100-SXM4-80GB", "8.0"),
        ("NVIDIA-H200", "9.0"),
        ("NVIDIA-GH200-480GB", "9.0"),
        ("NVIDIA-B200", "10.0"),
        ("NVIDIA-B300-SXM6-AC", "10.3"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "12.0"),
    ],
)
def test_names_that_contain_each_other_are_not_confused(label: str, capability: str) -> None:
    gpu = CATALOG.gpu(label)
    assert gpu is not None, f"{label} is in the table"
    assert gpu.compute_capability == capability


@pytest.mark.parametrize("label", ["NVIDIA-L", "NVIDIA-A100", "NVIDIA-H100", "L40", "", "GeForce-RTX-4080"])
def test_a_part_of_a_name_is_no_match(label: str) -> None:
    assert CATALOG.gpu(label) is None


def test_a_slice_has_its_own_memory_and_no_peers() -> None:
    label = "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb"
    gpu = CATALOG.gpu(label)
    assert gpu is not None
    target = TargetGpu.of(gpu, label)
    assert target.memory_mib == 10 * 10**9 // 2**20
    assert target.gpus_per_node == 1


def test_what_the_node_says_wins_over_the_table() -> None:
    gpu = CATALOG.gpu("NVIDIA-A100-SXM4-40GB")
    assert gpu is not None
    target = TargetGpu.of(gpu, memory_mib=39538, gpus_per_node=4)
    assert (target.memory_mib, target.gpus_per_node) == (39538, 4)
