"""One node with labels that nobody expects concerns whoever wants that node, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtllm_operator.artifacts.placement import obstacles
from trtllm_operator.objects import MAJOR_LABEL, MINOR_LABEL, PRODUCT_LABEL
from trtllm_operator.planning.gpu_nodes import read_node

H100 = {PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3", MAJOR_LABEL: "9", MINOR_LABEL: "0"}


def node(labels: Any, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    "odd",
    [
        {MINOR_LABEL: "10"},
        {MINOR_LABEL: "00"},
        {MAJOR_LABEL: "00000009"},
        {MAJOR_LABEL: "9" * 5000},
        {MAJOR_LABEL: "٣"},
        {PRODUCT_LABEL: "x" * 64},
        {"kubernetes.io/arch": "AMD 64"},
    ],
)
def test_odd_labels_are_a_remark_and_no_error(odd: dict[str, str]) -> None:
    read = read_node(node({**H100, **odd}))
    assert read.offers == () or read.problem is None
    if not read.offers:
        assert read.problem


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=6), scalars, max_size=3)
keys = st.sampled_from([PRODUCT_LABEL, MAJOR_LABEL, MINOR_LABEL, "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "x"])
labels = st.dictionaries(keys, st.text("0123456789aZ-.", max_size=8) | values, max_size=5) | values
POD = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], "nodeSelector": {"x": "y"}}}


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(labels, st.dictionaries(st.sampled_from(["allocatable", "conditions"]), values, max_size=2), values)
def test_no_node_stops_the_reading_of_others(labels: Any, status: dict[str, Any], taints: Any) -> None:
    odd = {**node(labels, **status), "spec": {"taints": taints}}
    read_node(odd)
    obstacles(POD, [odd, node(H100, allocatable={"nvidia.com/gpu": "8"})], "")
