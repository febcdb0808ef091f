from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from trtllm_operator.runner import report


def test_a_result_ends_with_0(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert report.run_step(lambda: {"files": 2}, log) == 0
    assert json.loads(log.read_text()) == {"result": {"files": 2}}


@pytest.mark.parametrize(("retryable", "status"), [(False, 64), (True, 75)])
def test_a_failure_ends_with_the_status_that_says_whether_it_may_pass(
    retryable: bool, status: int, tmp_path: Path
) -> None:
    def step() -> NoReturn:
        raise report.StepError("DiskFull", "full", retryable=retryable)

    log = tmp_path / "log"
    assert report.run_step(step, log) == status
    assert json.loads(log.read_text()) == {"failure": {"reason": "DiskFull", "message": "full", "retryable": retryable}}


def test_an_error_of_ours_is_told_in_one_line_without_a_traceback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    results: dict[str, dict[str, Any]] = {}
    assert report.run_step(lambda: results["missing"], log) == 64
    failure = json.loads(log.read_text())["failure"]
    assert failure["reason"] == "Internal"
    assert "KeyError" in failure["message"]
    assert "Traceback" not in failure["message"]


@pytest.mark.parametrize("character", ["x", "ü", "🂡", '"'])
def test_a_long_message_is_cut_to_what_kubelet_keeps(character: str) -> None:
    failure = report.StepError("DiskFull", "begins " + character * 6000)
    data = report.encode(failure.report())
    assert 3500 < len(data) <= 4096
    assert json.loads(data)["failure"]["message"].startswith("begins ")


def test_a_reason_outside_the_closed_list_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="NoSuchReason"):
        report.StepError("NoSuchReason", "")


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (OSError(28, "No space left on device", "/store/a"), 64, "DiskFull: a volume of the Pod is full (/store/a)"),
        (OSError(5, "Input/output error", "/store/a"), 75, "StoreFailed: a volume of the Pod failed: Input/output"),
    ],
)
def test_a_volume_that_is_full_or_fails_is_told_as_that(error: OSError, status: int, told: str, tmp_path: Path) -> None:
    def step() -> NoReturn:
        raise error

    log = tmp_path / "log"
    assert report.run_step(step, log) == status
    failure = json.loads(log.read_text())["failure"]
    assert f"{failure['reason']}: {failure['message']}".startswith(told)
