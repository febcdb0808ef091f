from __future__ import annotations

import json
from pathlib import Path

import pytest

from trtllm_operator.runner import report as runner_report
from trtllm_operator.steps import report as steps_report

BOTH = pytest.mark.parametrize("report", [runner_report, steps_report], ids=["runner", "steps"])


@BOTH
def test_a_result_ends_with_0(report, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert report.run_step(lambda: {"files": 2}, log) == 0
    assert json.loads(log.read_text()) == {"result": {"files": 2}}


@BOTH
@pytest.mark.parametrize(("retryable", "status"), [(False, 64), (True, 75)])
def test_a_failure_ends_with_the_status_that_says_whether_it_may_pass(
    report, retryable, status, tmp_path: Path
) -> None:
    def step():
        raise report.StepError("DiskFull", "full", retryable=retryable)

    log = tmp_path / "log"
    assert report.run_step(step, log) == status
    assert json.loads(log.read_text()) == {"failure": {"reason": "DiskFull", "message": "full", "retryable": retryable}}


@BOTH
def test_an_error_of_ours_is_told_in_one_line_without_a_traceback(report, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert report.run_step(lambda: {}["missing"], log) == 64
    failure = json.loads(log.read_text())["failure"]
    assert failure["reason"] == "Internal"
    assert "KeyError" in failure["message"]
    assert "Traceback" not in failure["message"]


@BOTH
@pytest.mark.parametrize("character", ["x", "ü", "🂡", '"'])
def test_a_long_message_is_cut_to_what_kubelet_keeps(report, character) -> None:
    failure = report.StepError("DiskFull", "begins " + character * 6000)
    data = report.encode(failure.report())
    assert 3500 < len(data) <= 4096
    assert json.loads(data)["failure"]["message"].startswith("begins ")


@BOTH
def test_a_reason_outside_the_closed_list_is_refused_at_once(report) -> None:
    with pytest.raises(ValueError, match="NoSuchReason"):
        report.StepError("NoSuchReason", "")


def test_both_rooms_report_alike() -> None:
    """The two stand alone and so each has its copy of the format."""
    error = ("DiskFull", "message " * 2000)
    assert runner_report.encode(runner_report.StepError(*error).report()) == steps_report.encode(
        steps_report.StepError(*error).report()
    )
    for name in ("PERMANENT_STATUS", "RETRYABLE_STATUS", "MAX_MESSAGE_BYTES"):
        assert getattr(runner_report, name) == getattr(steps_report, name)
