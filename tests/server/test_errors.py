from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from tokenwire_server.errors import DOMAIN, REASONS, StatusError, Violation, error_details


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_makes_a_status_with_its_code_and_error_info(reason: str) -> None:
    error = StatusError.of(reason, "text")
    assert error.status.code == REASONS[reason].grpc_code
    assert error.reason == reason
    assert error.code.value[0] == error.status.code
    info = error_details(error.status, error_details_pb2.ErrorInfo)
    assert info is not None
    assert info.domain == DOMAIN


def test_a_message_is_cut_so_that_the_trailer_holds_it() -> None:
    assert len(StatusError.of("INTERNAL", "x" * 5000).status.message) == 1024


def test_many_violations_fit_a_trailer() -> None:
    error = StatusError.invalid(Violation(f"messages[{i}].content", "y" * 400, "EMPTY") for i in range(500))
    bad = error_details(error.status, error_details_pb2.BadRequest)
    assert bad is not None
    assert len(bad.field_violations) == 16
    assert bad.field_violations[0].field == "messages[0].content"
    # grpc's hard limit is 16 KiB, and the message travels twice.
    assert len(error.status.SerializeToString()) + len(error.status.message) < 12 * 1024


def test_retry_delay_is_read_back() -> None:
    assert StatusError.retry_later("QUEUE_FULL", "full", 1.5).retry_delay_s == 1.5
    assert StatusError.of("INTERNAL", "x").retry_delay_s is None


def test_not_found_names_what_there_is() -> None:
    error = StatusError.not_found("MODEL_NOT_FOUND", "model", "nope", ["b", "a"])
    assert error.code is grpc.StatusCode.NOT_FOUND
    assert "`nope`" in error.status.message
    assert "a, b" in error.status.message
    resource = error_details(error.status, error_details_pb2.ResourceInfo)
    assert resource is not None
    assert resource.resource_name == "nope"


def test_internal_says_nothing_but_the_request_id() -> None:
    assert "req_7" in StatusError.internal("req_7").status.message
