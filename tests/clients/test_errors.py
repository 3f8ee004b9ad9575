"""What a status becomes."""

from __future__ import annotations

import pickle

import grpc
import pytest

import tokenwire
from tokenwire import errors

CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: errors.NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExistsError,
    grpc.StatusCode.UNAUTHENTICATED: errors.UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPreconditionError,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnimplementedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
    grpc.StatusCode.INTERNAL: errors.InternalError,
    grpc.StatusCode.UNKNOWN: errors.ApiError,
    grpc.StatusCode.ABORTED: errors.ApiError,
    grpc.StatusCode.OUT_OF_RANGE: errors.ApiError,
    grpc.StatusCode.DATA_LOSS: errors.ApiError,
}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
async def test_each_code_has_its_class(server, flavour, code):
    server.fail(code, "no", reason="A_REASON", times=2)
    with pytest.raises(errors.ApiError) as unary:
        await flavour.call("chat", "x", request_id="mine")
    with pytest.raises(errors.ApiError) as streamed:
        await flavour.read(flavour.client.stream_chat("x", request_id="mine"), [])
    for raised in (unary.value, streamed.value):
        assert type(raised) is CODES[code]
        assert (raised.code, raised.message, raised.reason, raised.request_id) == (code, "no", "A_REASON", "mine")
        assert str(raised) == f"{code.name} (A_REASON): no [request id mine]"
    assert len(server.calls) == 2


async def test_details_are_kept(server, flavour):
    server.fail(
        grpc.StatusCode.INVALID_ARGUMENT,
        "messages: too many",
        reason="INVALID_FIELD",
        metadata={"field": "messages"},
        field_violations=[("messages", "must be at most 4096"), ("sampling.n", "must be at least 1")],
    )
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await flavour.call("chat", "x")
    error = caught.value
    assert error.field_violations == [("messages", "must be at most 4096"), ("sampling.n", "must be at least 1")]
    assert error.metadata == {"field": "messages"}
    assert error.retry_delay is None
    assert error.status is not None
    assert error.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line above
    assert (type(again), str(again), again.field_violations) == (type(error), str(error), error.field_violations)


async def test_a_status_without_details(server, client):
    server.fail(grpc.StatusCode.NOT_FOUND, "nothing here")
    with pytest.raises(errors.NotFoundError) as caught:
        client.version()
    error = caught.value
    assert (error.reason, error.metadata, error.field_violations, error.status) == ("", {}, [], None)
    assert error.request_id == "req_1"


@pytest.mark.parametrize("raw", [b"\xff\xff", b"\x08\x03"])
async def test_details_that_are_broken_or_of_another_code_are_left_aside(server, client, raw):
    server.fail(grpc.StatusCode.NOT_FOUND, trailers=[("grpc-status-details-bin", raw)])
    with pytest.raises(errors.NotFoundError) as caught:
        client.version()
    assert (caught.value.status, caught.value.reason) == (None, "")


async def test_a_cancel_on_purpose_is_told_from_a_reset(server, flavour):
    server.fail(grpc.StatusCode.CANCELLED, reason="CANCELLED")
    with pytest.raises(errors.CancelledByServerError) as caught:
        await flavour.call("chat", "x")
    assert caught.value.reason == "CANCELLED"
    assert len(server.calls) == 1


async def test_nobody_listens(make_flavour, server):
    with tokenwire.testing.FakeServer() as gone:
        target = gone.target
    with tokenwire.Client(target, max_retries=0) as client, pytest.raises(errors.UnavailableError) as caught:
        client.version()
    assert caught.value.request_id == ""


async def test_the_deadline_of_a_call(server, flavour):
    server.reply("x", hold=True)
    server.reply("one two", hold=True)
    with pytest.raises(errors.DeadlineExceededError):
        await flavour.call("chat", "x", timeout=0.1)
    stream = flavour.client.stream_chat("x", timeout=0.3)
    with pytest.raises(errors.DeadlineExceededError):
        await flavour.read(stream, [])
    assert "one two".startswith(stream.text)


async def test_a_closed_client_says_so(server, make_flavour):
    flavour = make_flavour()
    await flavour.close()
    await flavour.close()
    with pytest.raises(errors.ClientClosedError):
        await flavour.call("chat", "x")
    with pytest.raises(errors.ClientClosedError):
        await flavour.read(flavour.client.stream_chat("x"), [])
