"""The table of failures is closed: whatever a step, a Pod or the plan can say is in it, and documented."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trtllm_operator
from trtllm_operator.artifacts import attempt, diagnosis, placement
from trtllm_operator.artifacts.failure_docs import PAGE, reference
from trtllm_operator.artifacts.failures import KINDS, SECTIONS, Failure, pause_seconds
from trtllm_operator.runner import classify
from trtllm_operator.runner.report import REASONS

SOURCES = Path(trtllm_operator.__file__).parent


def raised(folder: str) -> Iterator[tuple[str, str, bool | None]]:
    """(where, reason, retryable) of every StepError that the code can make; None: decided at run time."""
    for path in sorted((SOURCES / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "StepError" and node.args):
                continue
            if not isinstance(reason := node.args[0], ast.Constant):
                continue
            given = next((k.value for k in node.keywords if k.arg == "retryable"), ast.Constant(False))
            retryable = bool(given.value) if isinstance(given, ast.Constant) else None
            yield f"{path.name}:{node.lineno}", str(reason.value), retryable


def test_every_reason_a_step_can_give_is_in_the_table() -> None:
    assert set(KINDS) >= REASONS
    assert {p.reason for p in classify._KNOWN} <= REASONS
    for folder in ("runner", "steps"):
        for where, reason, _ in raised(folder):
            assert reason in KINDS, f"{where} gives {reason}, which nobody is told how to deal with"


def test_what_a_step_calls_passing_is_tried_again() -> None:
    servers = SECTIONS["Servers"]
    for folder in ("runner", "steps"):
        for where, reason, retryable in raised(folder):
            if retryable and reason not in servers:
                assert KINDS[reason].retry, f"{where} says that {reason} may pass, and the table that it does not"


@pytest.mark.parametrize("module", [attempt, diagnosis, placement], ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_reason_read_from_a_pod_is_in_the_table(module: object) -> None:
    """Failure(...), Waiting(...) and Obstacles(...) with a literal reason, and the tables of the module."""
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Failure", "Waiting", "Obstacles"):
            reason = node.args[0]
            if isinstance(reason, ast.Constant):
                assert reason.value in KINDS, f"line {node.lineno}"


def test_the_tables_of_the_diagnosis_name_reasons_of_the_table() -> None:
    named = {*diagnosis._POD_REASONS.values(), *diagnosis._DISRUPTIONS.values()}
    assert named | {reason for reason, _ in diagnosis._START_PATTERNS} <= set(KINDS)


def test_no_reason_stands_in_two_sections() -> None:
    assert sum(len(kinds) for kinds in SECTIONS.values()) == len(KINDS)


def test_what_is_never_tried_again_says_what_to_change() -> None:
    silent = [r for r, kind in KINDS.items() if kind.retry is None and not kind.waits and not kind.remedy]
    assert set(silent) <= set(SECTIONS["Servers"]), f"{silent} stop a build and leave its owner without advice"
    assert [r for r, kind in KINDS.items() if kind.stalls and not kind.remedy] == []


def test_retries_have_limits_and_grow_slower() -> None:
    for reason, kind in KINDS.items():
        if kind.retry:
            assert 1 <= kind.retry.times <= 30, reason
            assert list(kind.retry.pauses_seconds) == sorted(kind.retry.pauses_seconds), reason


def test_the_source_s_own_pause_is_kept_to_within_an_hour() -> None:
    assert pause_seconds(Failure("HubRateLimited", ""), 1) == 30
    assert pause_seconds(Failure("HubRateLimited", "", retry_after_seconds=200), 1) == 200
    assert pause_seconds(Failure("HubRateLimited", "", retry_after_seconds=200), 4) == 300
    assert pause_seconds(Failure("HubRateLimited", "", retry_after_seconds=10**9), 1) == 3600


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == reference(), (
        "docs/failures.md is not up to date: run `python -m trtllm_operator.artifacts.failure_docs`"
    )
