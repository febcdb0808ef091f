"""Nodes as GPU feature discovery and the device plugin describe them, and the GPU classes that follow."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trtllm_operator.api.common import NodePlacement, Toleration
from trtllm_operator.api.engineartifact import GpuClass
from trtllm_operator.api.llmengine import AnyGpu, GpuSelector
from trtllm_operator.planning.gpu_classes import (
    MAX_SLUG_LENGTH,
    architecture_of,
    find_classes,
    inventory,
    selects,
    slug,
)
from trtllm_operator.planning.gpu_nodes import read_node

ANYWHERE = NodePlacement()


def labels(product: str, capability: str, **more: Any) -> dict[str, str]:
    major, minor = capability.split(".")
    return {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        **{f"nvidia.com/{key}": str(value) for key, value in more.items()},
    }


def node(name: str, found: dict[str, str], allocatable: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": {"name": name, "labels": found}, "spec": spec}
    if allocatable is not None:
        made["status"] = {"allocatable": {"cpu": "8", "memory": "64Gi", **allocatable}}
    return made


# The label sets of real nodes, and what they offer: (labels, allocatable, class, GPUs of one node, MiB).
REAL = [
    ("NVIDIA-A100-SXM4-40GB", "8.0", 40960, 8, "ampere"),
    ("NVIDIA-A100-SXM4-80GB", "8.0", 81920, 8, "ampere"),
    ("NVIDIA-A10G", "8.6", 23028, 4, "ampere"),
    ("NVIDIA-L4", "8.9", 23034, 1, "ada-lovelace"),
    ("NVIDIA-L40S", "8.9", 46068, 8, "ada-lovelace"),
    ("NVIDIA-H100-80GB-HBM3", "9.0", 81559, 8, "hopper"),
    ("NVIDIA-H100-PCIe", "9.0", 81559, 2, "hopper"),
    ("NVIDIA-H100-NVL", "9.0", 95830, 2, "hopper"),
    ("NVIDIA-H200", "9.0", 143771, 8, "hopper"),
    ("NVIDIA-B200", "10.0", 183359, 8, "blackwell"),
    ("NVIDIA-B300-SXM6-AC", "10.3", 275040, 8, "blackwell"),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "12.0", 97887, 8, "blackwell"),
    ("A100-SXM4-40GB", "8.0", 40536, 8, "ampere"),
    ("Tesla-T4", "7.5", 15360, 1, "turing"),
]


@pytest.mark.parametrize(("product", "capability", "mib", "count", "architecture"), REAL)
def test_a_node_of_whole_gpus_is_one_class(
    product: str, capability: str, mib: int, count: int, architecture: str
) -> None:
    # The family is what feature discovery up to 0.17.0 says of Ada Lovelace: it must not matter.
    found = labels(product, capability, **{"gpu.count": count, "gpu.memory": mib, "gpu.replicas": 1})
    found["nvidia.com/gpu.family"] = "ampere"
    (gpus,) = find_classes([read_node(node("n", found, {"nvidia.com/gpu": str(count)}))])
    assert gpus.gpu == GpuClass(product=product, compute_capability=capability)
    assert (gpus.gpus_per_node, gpus.memory_mib, gpus.shared) == (count, mib, False)
    assert architecture_of(gpus.gpu.compute_capability) == architecture
    assert gpus.closed_to(ANYWHERE) == ()


@pytest.mark.parametrize(("product", "capability"), [("NVIDIA-GH200-480GB", "9.0"), ("NVIDIA-GB200", "10.0")])
def test_the_cpu_architecture_is_a_part_of_the_class(product: str, capability: str) -> None:
    found = labels(product, capability) | {"kubernetes.io/arch": "arm64"}
    (gpus,) = find_classes([read_node(node("n", found))])
    assert gpus.gpu == GpuClass(product=product, compute_capability=capability, cpu_architecture="arm64")


def test_the_label_of_memory_may_be_absent() -> None:
    found = labels("NVIDIA-GB10", "12.1", **{"gpu.count": 1})
    (gpus,) = find_classes([read_node(node("spark", found, {"nvidia.com/gpu": "1"}))])
    assert gpus.memory_mib is None


def test_slices_of_strategy_single_are_asked_for_as_gpus() -> None:
    product = "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
    found = labels(product, "8.0", **{"gpu.count": 56, "gpu.memory": 4864, "mig.strategy": "single"})
    (gpus,) = find_classes([read_node(node("n", found, {"nvidia.com/gpu": "56"}))])
    assert gpus.gpu == GpuClass(product=product, compute_capability="8.0")
    assert gpus.memory_mib == 4864


def mixed(**more: Any) -> dict[str, str]:
    return labels(
        "NVIDIA-A100-SXM4-40GB",
        "8.0",
        **{
            "gpu.count": 8,
            "gpu.memory": 40960,
            "mig.strategy": "mixed",
            "mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
            "mig-1g.5gb.memory": 4864,
            "mig-1g.5gb.count": 14,
            "mig-3g.20gb.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
            "mig-3g.20gb.memory": 19968,
            "mig-3g.20gb.count": 2,
            **more,
        },
    )


def test_slices_of_strategy_mixed_have_a_resource_each_beside_whole_gpus() -> None:
    offered = {"nvidia.com/gpu": "5", "nvidia.com/mig-1g.5gb": "14", "nvidia.com/mig-3g.20gb": "2"}
    found = find_classes([read_node(node("n", mixed(), offered))])
    assert {c.gpu.resource: (c.gpu.product, c.memory_mib) for c in found} == {
        "nvidia.com/gpu": ("NVIDIA-A100-SXM4-40GB", 40960),
        "nvidia.com/mig-1g.5gb": ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864),
        "nvidia.com/mig-3g.20gb": ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 19968),
    }
    assert next(c for c in found if c.gpu.resource == "nvidia.com/gpu").gpus_per_node == 5, "not the label's 8"


def test_a_node_all_of_whose_gpus_are_cut_offers_no_whole_one() -> None:
    for allocatable in ({"nvidia.com/mig-1g.5gb": "14", "nvidia.com/mig-3g.20gb": "2"}, None):
        found = find_classes([read_node(node("n", mixed(**{"gpu.replicas": 0}), allocatable))])
        assert [c.gpu.resource for c in found] == ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"]


GFD_MISSING = "has no label nvidia.com/gpu.product"
# Nodes whose GPUs no engine is built for, with what is said of each.
UNUSABLE: list[tuple[str, dict[str, str], dict[str, str] | None, str]] = [
    ("no discovery", {}, {"nvidia.com/gpu": "8"}, f"offers 8 nvidia.com/gpu but {GFD_MISSING}"),
    (
        "GKE",
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"nvidia.com/gpu": "8"},
        f"{GFD_MISSING} (cloud.google.com/gke-accelerator=nvidia-h100-80gb does not say enough)",
    ),
    ("Karpenter", {"karpenter.k8s.aws/instance-gpu-name": "l40s"}, None, f"has a GPU but {GFD_MISSING}"),
    ("MIG invalid", labels("NVIDIA-A100-SXM4-40GB-MIG-INVALID", "8.0"), None, "its MIG layout is not one"),
    ("no capability", {"nvidia.com/gpu.product": "NVIDIA-H200"}, None, "no label nvidia.com/gpu.compute.major"),
    (
        "several products",
        labels("NVIDIA-A10", "8.6", **{"gpu.count": 2, "gpu.replicas": 1}),
        {"nvidia.com/gpu": "4"},
        "4 nvidia.com/gpu of which 2 are NVIDIA-A10 by its labels: it has several products",
    ),
    (
        "sharing under another name",
        labels("NVIDIA-A10G", "8.6", **{"gpu.count": 1, "gpu.replicas": 4, "gpu.sharing-strategy": "time-slicing"}),
        {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "4"},
        "shares each NVIDIA-A10G between Pods as nvidia.com/gpu.shared (time-slicing)",
    ),
]


@pytest.mark.parametrize(("found", "allocatable", "said"), [u[1:] for u in UNUSABLE], ids=[u[0] for u in UNUSABLE])
def test_a_node_that_cannot_be_used_says_why(
    found: dict[str, str], allocatable: dict[str, str] | None, said: str
) -> None:
    read = read_node(node("gpu-7", found, allocatable))
    assert read.offers == ()
    assert said in (read.problem or "")
    assert "node gpu-7 " in inventory([read])


def test_a_node_without_gpus_is_nobodys_business() -> None:
    read = read_node(node("cpu", {"kubernetes.io/arch": "amd64"}, {}))
    assert (read.offers, read.problem) == ((), None)


@pytest.mark.parametrize("product", ["NVIDIA-A10G-SHARED", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"])
def test_shared_gpus_are_a_class_that_only_its_own_name_selects(product: str) -> None:
    found = labels(product, "8.6", **{"gpu.count": 1, "gpu.replicas": 4, "gpu.sharing-strategy": "time-slicing"})
    (gpus,) = find_classes([read_node(node("n", found, {"nvidia.com/gpu": "4"}))])
    assert gpus.shared
    assert selects(GpuSelector(product=product), gpus.gpu)
    for selector in (
        GpuSelector(product=product.removesuffix("-SHARED")),
        GpuSelector(any=AnyGpu()),
        GpuSelector(architecture="ampere"),
        GpuSelector(compute_capability="8.6"),
    ):
        assert not selects(selector, gpus.gpu)


def h100(name: str = "h100", count: str = "8", mib: int = 81559, driver: str = "580.159.04", **spec: Any) -> Any:
    found = labels("NVIDIA-H100-80GB-HBM3", "9.0", **{"gpu.memory": mib, "cuda.driver-version.full": driver})
    return node(name, found, {"nvidia.com/gpu": count}, **spec)


NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown"}], "allocatable": {"nvidia.com/gpu": "8"}}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (h100(unschedulable=True), "node h100 is cordoned"),
        ({**h100(), "status": NOT_READY}, "node h100 is not ready"),
        (h100(count="0"), "node h100 offers no nvidia.com/gpu now"),
        (h100(taints=[{"key": "team", "value": "research", "effect": "NoSchedule"}]), "taint team=research:NoSchedule"),
        (h100(taints=[{"key": "nvidia.com/gpu", "effect": "NoExecute"}]), "taint nvidia.com/gpu:NoExecute"),
    ],
)
def test_a_class_whose_only_node_is_closed_stays_and_says_why(made: dict[str, Any], said: str) -> None:
    (gpus,) = find_classes([read_node(made)])
    (reason,) = gpus.closed_to(ANYWHERE)
    assert said in reason
    (gpus,) = find_classes([read_node(made), read_node(h100("other"))])
    assert gpus.closed_to(ANYWHERE) == (), "one open node is enough"


@pytest.mark.parametrize("value", ["present", "true", None])
def test_the_usual_taint_of_gpu_nodes_is_tolerated_whatever_its_value(value: str | None) -> None:
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"} | ({"value": value} if value else {})
    (gpus,) = find_classes([read_node(h100(taints=[taint]))])
    assert gpus.closed_to(ANYWHERE) == ()


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "team", "value": "research"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "research", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "research", "effect": "NoExecute"}, False),
        ({"key": "team", "value": "other"}, False),
        ({"key": "pool", "operator": "Exists"}, False),
    ],
)
def test_tolerations_match_as_the_scheduler_does(toleration: dict[str, Any], tolerated: bool) -> None:
    (gpus,) = find_classes([read_node(h100(taints=[{"key": "team", "value": "research", "effect": "NoSchedule"}]))])
    placement = NodePlacement(tolerations=(Toleration.model_validate(toleration),))
    assert (gpus.closed_to(placement) == ()) is tolerated


def test_a_node_selector_closes_nodes() -> None:
    (gpus,) = find_classes([read_node(h100())])
    assert "pool=gpu" in gpus.closed_to(NodePlacement(node_selector={"pool": "gpu"}))[0]


def test_of_several_nodes_the_least_memory_and_the_most_gpus_count() -> None:
    (gpus,) = find_classes([read_node(h100("a", "4", 81559)), read_node(h100("b", "8", 81000))])
    assert (gpus.memory_mib, gpus.gpus_per_node) == (81000, 8)
    assert gpus.remarks == (), "a driver's rounding is no difference"


def test_nodes_of_one_class_that_differ_are_remarked() -> None:
    (gpus,) = find_classes([read_node(h100("a")), read_node(h100("b", mib=95830, driver="550.54.15"))])
    memory, driver = gpus.remarks
    assert "81559 MiB (a), 95830 MiB (b); planned for 81559 MiB" in memory
    assert "driver 550.54.15 (b), driver 580.159.04 (a)" in driver


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        (GpuClass(product="NVIDIA-H100-80GB-HBM3", compute_capability="9.0"), "h100-80gb-hbm3"),
        (GpuClass(product="NVIDIA-A100-SXM4-80GB", compute_capability="8.0"), "a100-sxm4-80gb"),
        (GpuClass(product="NVIDIA-L4", compute_capability="8.9"), "l4"),
        (GpuClass(product="NVIDIA-GB200", compute_capability="10.0", cpu_architecture="arm64"), "gb200-arm64"),
        (GpuClass(product="Tesla-T4", compute_capability="7.5"), "t4-HASH"),
        (GpuClass(product="A100-SXM4-40GB", compute_capability="8.0"), "a100-sxm4-4-HASH"),
        (GpuClass(product="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", compute_capability="8.0"), "a100-1g5gb-HASH"),
        (
            GpuClass(product="NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", compute_capability="12.0"),
            "rtx-pro-600-HASH",
        ),
    ],
)
def test_the_name_of_a_class_is_its_product_where_that_fits(gpu: GpuClass, name: str) -> None:
    assert re.fullmatch(name.replace("HASH", "[0-9a-f]{4}"), slug(gpu))


def test_names_of_classes_are_labels_that_differ() -> None:
    products = [p for p, *_ in REAL] + [f"NVIDIA-H100-80GB-HBM3-MIG-{p}" for p in ("1g.10gb", "1g.20gb", "7g.80gb")]
    classes = [GpuClass(product=p, compute_capability="9.0") for p in products]
    classes += [c.model_copy(update={"cpu_architecture": "arm64"}) for c in classes]
    classes += [c.model_copy(update={"resource": "nvidia.com/mig-1g.10gb"}) for c in classes]
    names = [slug(c) for c in classes]
    assert len(set(names)) == len(classes)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", n) and len(n) <= MAX_SLUG_LENGTH for n in names)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"product": "NVIDIA-A10"}, {"NVIDIA-A10"}),
        ({"architecture": "ampere"}, {"NVIDIA-A100-SXM4-80GB", "NVIDIA-A10"}),
        ({"architecture": "hopper"}, {"NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"}),
        ({"computeCapability": "8.0"}, {"NVIDIA-A100-SXM4-80GB"}),
        ({"computeCapability": "9.0"}, {"NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"}),
        ({"any": {}}, {"NVIDIA-A100-SXM4-80GB", "NVIDIA-A10", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-L4"}),
    ],
)
def test_what_a_selector_selects(selector: dict[str, Any], selected: set[str]) -> None:
    there = [
        ("NVIDIA-A100-SXM4-80GB", "8.0"),
        ("NVIDIA-A10", "8.6"),
        ("NVIDIA-H100-80GB-HBM3", "9.0"),
        ("NVIDIA-H200", "9.0"),
        ("NVIDIA-L4", "8.9"),
    ]
    chosen = GpuSelector.model_validate(selector)
    assert {p for p, cc in there if selects(chosen, GpuClass(product=p, compute_capability=cc))} == selected
