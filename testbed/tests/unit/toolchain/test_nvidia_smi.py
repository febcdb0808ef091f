"""nvidia-smi's formats, against what a real H200 node printed."""

import json
import subprocess
import sys
from typing import Any

import pytest
from trtllm_standin.nvidia_smi import run

from testbed.tests.unit.toolchain.standin import PACKAGES, ROOTFS, gpu

# One H200, driver 580.159.04, as a real node printed it.
H200 = {
    "index": 0,
    "uuid": "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
    "name": "NVIDIA H200",
    "compute_cap": "9.0",
    "memory_total_mib": 143771,
    "memory_reserved_mib": 616,
    "driver_version": "580.159.04",
}


def smi(*arguments: str, gpus: list[dict[str, Any]] | None = None) -> tuple[int, str]:
    return run(arguments, {"LLMENGINE_STANDIN_GPUS": json.dumps([H200] if gpus is None else gpus)})


def test_csv_as_a_real_node_prints_it() -> None:
    fields = "index,name,uuid,pci.bus_id,compute_cap,memory.total,memory.reserved,driver_version,mig.mode.current"
    status, text = smi(f"--query-gpu={fields}", "--format=csv")
    assert status == 0
    assert text == (
        "index, name, uuid, pci.bus_id, compute_cap, memory.total [MiB], memory.reserved [MiB], driver_version, "
        "mig.mode.current\n"
        "0, NVIDIA H200, GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, 00000000:00:06.0, 9.0, 143771 MiB, 616 MiB, "
        "580.159.04, Disabled\n"
    )


def test_free_memory_leaves_out_what_is_reserved() -> None:
    assert smi("--query-gpu=memory.free", "--format=csv,noheader") == (0, "143155 MiB\n")


def test_without_header_and_units() -> None:
    query = "--query-gpu=name,compute_cap,memory.total"
    assert smi(query, "--format=csv,noheader,nounits") == (0, "NVIDIA H200, 9.0, 143771\n")
    assert smi(query, "--format=csv,nounits") == (
        0,
        "name, compute_cap, memory.total\nNVIDIA H200, 9.0, 143771\n",
    )


def test_the_list() -> None:
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)\n"
    assert smi("-L") == smi("--list-gpus") == (0, listed)


def test_one_of_several_gpus_is_selected() -> None:
    gpus = [gpu(index=0), gpu(index=1)]
    assert smi("-i", "1", "--query-gpu=index", "--format=csv,noheader", gpus=gpus) == (0, "1\n")


def test_the_table_says_that_it_is_a_stand_in() -> None:
    status, text = smi()
    assert status == 0
    assert "STAND-IN" in text
    assert "NVIDIA H200" in text


@pytest.mark.parametrize(
    ("environ", "arguments", "status", "message"),
    [
        ({}, ["-L"], 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"),
        ({"LLMENGINE_STANDIN_GPUS": "[]"}, ["-L"], 6, "No devices were found"),
        ({"LLMENGINE_STANDIN_GPUS": "nonsense"}, [], 9, "is not a JSON list of GPUs"),
        ({"LLMENGINE_STANDIN_GPUS": json.dumps([H200])}, ["--nosuch"], 2, "Invalid combination of input arguments"),
        (
            {"LLMENGINE_STANDIN_GPUS": json.dumps([H200])},
            ["--query-gpu=nosuch", "--format=csv"],
            2,
            'Field "nosuch" is not a valid field to query.',
        ),
    ],
)
def test_failures_have_the_real_statuses(
    environ: dict[str, str], arguments: list[str], status: int, message: str
) -> None:
    got, text = run(arguments, environ)
    assert got == status
    assert message in text


def test_the_program_runs_without_the_packages_that_compute() -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(ROOTFS / "usr/local/bin/nvidia-smi"), "-L"],
        env={"PYTHONPATH": str(PACKAGES), "LLMENGINE_STANDIN_GPUS": json.dumps([H200])},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("GPU 0: NVIDIA H200")
