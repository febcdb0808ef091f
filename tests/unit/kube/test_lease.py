"""Who may work, decided from a Lease as it was read and our own clock."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.kube.lease import LeaseSettings, Seen, decide


def lease(holder: str | None, version: str = "7", duration: int = 15) -> dict[str, Any]:
    spec = {"leaseDurationSeconds": duration} | ({"holderIdentity": holder} if holder is not None else {})
    return {"metadata": {"resourceVersion": version}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "seen", "now", "decision"),
    [
        pytest.param(None, None, 0, "create", id="there is none"),
        pytest.param(lease("me"), None, 0, "renew", id="ours, as a restarted container finds it"),
        pytest.param(lease(""), None, 0, "take", id="released"),
        pytest.param(lease(None), None, 0, "take", id="never held"),
        pytest.param(lease("other"), None, 100, "wait", id="another's, seen for the first time"),
        pytest.param(lease("other"), Seen("7", 100), 114.9, "wait", id="another's, not renewed for less than it lasts"),
        pytest.param(lease("other"), Seen("7", 100), 115, "take", id="another's, not renewed for as long as it lasts"),
        pytest.param(lease("other"), Seen("6", 0), 1000, "wait", id="another's, renewed since we last looked"),
        pytest.param(lease("other", duration=60), Seen("7", 100), 159, "wait", id="the holder's duration counts"),
    ],
)
def test_decision(found: dict[str, Any] | None, seen: Seen | None, now: float, decision: str) -> None:
    assert decide(found, seen, "me", now) == decision


def test_a_lease_without_content_is_free() -> None:
    assert decide({"metadata": {"resourceVersion": "1"}}, None, "me", 0) == "take"


@pytest.mark.parametrize("duration", [5, 15, 60])
def test_the_holder_stops_before_another_can_start_and_has_time_to_try_again(duration: int) -> None:
    settings = LeaseSettings("ns", "name", duration_seconds=duration, identity="me")
    assert settings.deadline_seconds < duration
    assert settings.renew_seconds < settings.deadline_seconds


def test_a_pod_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "operator-0")
    assert LeaseSettings("ns", "name").identity == "operator-0"
