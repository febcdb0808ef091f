"""What an answer of the API server means for what happens next."""

from __future__ import annotations

import pytest

from trtllm_operator.kube.errors import ApiError


def error(status: int, reason: str = "", message: str = "", **details: object) -> ApiError:
    return ApiError.from_status(status, {"reason": reason, "message": message, "details": details})


def test_kinds_of_conflict() -> None:
    assert error(409, "Conflict").is_conflict
    assert error(409, "AlreadyExists").is_already_exists
    assert not error(409, "AlreadyExists").is_conflict


@pytest.mark.parametrize(
    ("refused", "permanent"),
    [
        (error(422, "Invalid"), True),
        (error(400, "BadRequest"), True),
        (error(500, "", "failed to create typed patch object (ns/a; v1, Kind=X): .spec.b: field not declared"), True),
        (error(500, "InternalError", "etcdserver: leader changed"), False),
        (error(403, "Forbidden"), False),
        (error(409, "Conflict"), False),
        (error(503), False),
    ],
)
def test_permanent(refused: ApiError, permanent: bool) -> None:
    assert refused.is_permanent is permanent


def test_a_namespace_that_goes_away_is_known() -> None:
    assert error(403, "Forbidden", causes=[{"reason": "NamespaceTerminating"}]).is_namespace_terminating
    assert not error(403, "Forbidden").is_namespace_terminating


def test_retry_after_of_the_body_counts_where_there_is_no_header() -> None:
    assert error(429, retryAfterSeconds=3).retry_after == 3


def test_the_message_says_what_was_tried() -> None:
    refused = ApiError.from_status(404, {"message": 'jobs "a" not found'}, call="get /apis/batch/v1/jobs/a")
    assert str(refused) == 'get /apis/batch/v1/jobs/a: 404 jobs "a" not found'
