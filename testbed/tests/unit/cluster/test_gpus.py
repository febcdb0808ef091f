"""Node labels and devices are what GPU feature discovery and NVIDIA's device plugin would say."""

from __future__ import annotations

import pytest

from testbed.cluster import config, gpus


def gpu(**changes: object) -> config.Gpu:
    content: dict[str, object] = {
        "name": "NVIDIA H100 80GB HBM3",
        "computeCapability": "9.0",
        "memoryMiB": 81559,
        "count": 2,
        "driver": "580.159.04",
        "cuda": "13.0",
    }
    return config.Gpu.model_validate(content | changes)


# From a published dump of a real node's labels (GPU Operator, H100 SXM5), without those of the driver's version and of
# components that are not feature discovery.
REAL_H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
}


def test_labels_are_those_of_a_real_node() -> None:
    found = gpus.labels(gpu())
    assert {key: found.get(key) for key in REAL_H100} == REAL_H100


def test_the_machine_says_that_it_is_a_stand_in() -> None:
    assert gpus.labels(gpu())["nvidia.com/gpu.machine"] == "llmengine-stand-in"


def test_a_driver_version_keeps_its_leading_zero() -> None:
    found = gpus.labels(gpu())
    parts = [found[f"nvidia.com/cuda.driver-version.{part}"] for part in ("major", "minor", "revision", "full")]
    assert parts == ["580", "159", "04", "580.159.04"]
    assert found["nvidia.com/cuda.runtime-version.full"] == "13.0"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"),
        ("NVIDIA  Graphics (Device)", "NVIDIA-Graphics-Device"),
    ],
)
def test_a_name_becomes_a_label_as_feature_discovery_writes_it(name: str, label: str) -> None:
    assert gpus.sanitise(name) == label


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 3), "blackwell"),
        ((11, 0), "undefined"),
        ((12, 1), "blackwell"),
        ((13, 0), "rubin"),
    ],
)
def test_the_family_is_that_of_feature_discovery_0_20(capability: tuple[int, int], family: str) -> None:
    assert gpus.family(*capability) == family


def test_single_mig_describes_the_slice_but_keeps_the_capability() -> None:
    mig = {"strategy": "single", "profile": "1g.10gb", "instances": 7, "memoryMiB": 9728}
    node = config.Node(name="mig", gpu=gpu(mig=mig))
    assert node.gpu is not None
    found = gpus.labels(node.gpu)
    assert found["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    assert (found["nvidia.com/gpu.count"], found["nvidia.com/gpu.memory"]) == ("14", "9728")
    assert (found["nvidia.com/gpu.compute.major"], found["nvidia.com/mig.strategy"]) == ("9", "single")
    devices = gpus.devices(node)
    assert list(devices) == ["nvidia.com/gpu"]
    assert len(devices["nvidia.com/gpu"]) == 14
    assert devices["nvidia.com/gpu"][0]["gpu"]["memory_total_mib"] == 9728


def test_mixed_mig_has_a_resource_of_its_own_and_parents_offer_nothing() -> None:
    mig = {"strategy": "mixed", "profile": "1g.10gb+me", "instances": 1, "memoryMiB": 9728}
    node = config.Node(name="mig", gpu=gpu(mig=mig))
    assert node.gpu is not None
    found = gpus.labels(node.gpu)
    assert found["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert found["nvidia.com/gpu.replicas"] == "0"
    assert found["nvidia.com/mig-1g.10gb.me.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me"
    assert list(gpus.devices(node)) == ["nvidia.com/mig-1g.10gb.me"]


def test_shared_gpus_are_marked_and_offered_several_times() -> None:
    node = config.Node(name="shared", gpu=gpu(sharing={"strategy": "time-slicing", "replicas": 4}))
    assert node.gpu is not None
    found = gpus.labels(node.gpu)
    assert found["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-SHARED"
    assert (found["nvidia.com/gpu.count"], found["nvidia.com/gpu.replicas"]) == ("2", "4")
    devices = gpus.devices(node)["nvidia.com/gpu"]
    assert len(devices) == 8
    assert len({device["gpu"]["uuid"] for device in devices}) == 2


def test_uuids_are_the_same_on_every_run_and_differ_between_nodes() -> None:
    def uuids(name: str) -> list[str]:
        return [device["id"] for device in gpus.devices(config.Node(name=name, gpu=gpu()))["nvidia.com/gpu"]]

    assert uuids("one") == uuids("one")
    assert len({*uuids("one"), *uuids("two")}) == 4
    assert all(identifier.startswith("GPU-") for identifier in uuids("one"))


def test_a_node_without_gpus_offers_none() -> None:
    assert gpus.devices(config.Node(name="cpu")) == {}
