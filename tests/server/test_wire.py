"""The doors over real gRPC: bytes that are no message, sizes, statuses, cancels, health, reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status.rpc_status import aio as rpc_status

from tests.conftest import MAX_MESSAGE_BYTES, EchoServer
from tokenwire.admin.v1 import admin_pb2, admin_pb2_grpc
from tokenwire.v1 import chat_pb2, chat_pb2_grpc, generation_pb2, generation_pb2_grpc, sampling_pb2
from tokenwire_server.backend import contract_services
from tokenwire_server.errors import StatusError, error_details

CHAT = "/tokenwire.v1.ChatService/Chat"
STREAM_CHAT = "/tokenwire.v1.ChatService/StreamChat"


def chat_request(text: str, **kwargs: Any) -> chat_pb2.ChatRequest:
    message = chat_pb2.ChatMessage(role=chat_pb2.ROLE_USER, content=[chat_pb2.ContentPart(text=text)])
    return chat_pb2.ChatRequest(messages=[message], **kwargs)


async def status_of(call: Any) -> StatusError:
    """The google.rpc.Status that a call ends with; it must not answer first."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for event in call:
                pytest.fail(f"an event came before the error: {event!r}")
        else:
            await call
    status = await rpc_status.from_call(call)
    assert status is not None, caught.value.details()
    assert status.code == caught.value.code().value[0]
    assert status.message == caught.value.details()
    return StatusError(status)


def raw(server: EchoServer, method: str, data: bytes) -> Any:
    make = server.channel.unary_stream if "/Stream" in method else server.channel.unary_unary
    return make(method)(data)


async def load(server: EchoServer) -> admin_pb2.ReplicaLoad:
    stub = admin_pb2_grpc.AdminServiceStub(server.channel)
    return (await stub.GetLoad(admin_pb2.GetLoadRequest())).replicas[0]


async def idle(server: EchoServer) -> None:
    """Returns when nothing runs and nothing waits; the test's timeout is the limit."""
    while True:
        now = await load(server)
        if not (now.running_count or now.waiting_count or now.open_count or now.queued_count):
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("method", [CHAT, STREAM_CHAT])
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x12\xff\xff\xff\xff\x0f", b"\x0a\x02\xc3\x28"])
async def test_bytes_that_are_no_message_are_an_invalid_argument(
    echo_server: EchoServer, method: str, data: bytes
) -> None:
    error = await status_of(raw(echo_server, method, data))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "tokenwire.v1.ChatRequest" in error.status.message


@pytest.mark.parametrize("method", [CHAT, STREAM_CHAT])
async def test_a_message_over_the_limit_is_named_as_that(echo_server: EchoServer, method: str) -> None:
    data = chat_request("x" * MAX_MESSAGE_BYTES).SerializeToString()
    error = await status_of(raw(echo_server, method, data))
    assert error.reason == "REQUEST_TOO_LARGE"
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def knobs(**kwargs: Any) -> chat_pb2.ChatRequest:
    return chat_request("a b", sampling=sampling_pb2.SamplingParams(**kwargs))


def message(role: chat_pb2.Role.ValueType, *parts: chat_pb2.ContentPart) -> chat_pb2.ChatMessage:
    return chat_pb2.ChatMessage(role=role, content=parts)


PART = chat_pb2.ContentPart(text="a")

BAD = {
    "no messages": (chat_pb2.ChatRequest(), "messages", "EMPTY"),
    "no role": (chat_pb2.ChatRequest(messages=[message(chat_pb2.ROLE_UNSPECIFIED, PART)]), "messages[0].role", None),
    "unknown role": (chat_pb2.ChatRequest(messages=[message(99, PART)]), "messages[0].role", None),  # type: ignore[arg-type]
    "no content": (chat_pb2.ChatRequest(messages=[message(chat_pb2.ROLE_USER)]), "messages[0].content", "EMPTY"),
    "empty part": (
        chat_pb2.ChatRequest(messages=[message(chat_pb2.ROLE_USER, chat_pb2.ContentPart())]),
        "messages[0].content[0].part",
        "REQUIRED",
    ),
    "max_tokens -1": (knobs(max_tokens=-1), "sampling.max_tokens", "BELOW_MIN"),
    "max_tokens 0": (knobs(max_tokens=0), "sampling.max_tokens", "BELOW_MIN"),
    "temperature NaN": (knobs(temperature=float("nan")), "sampling.temperature", "INVALID_VALUE"),
    "temperature inf": (knobs(temperature=float("inf")), "sampling.temperature", "ABOVE_MAX"),
    "temperature -1": (knobs(temperature=-1), "sampling.temperature", "BELOW_MIN"),
    "top_p 0": (knobs(top_p=0), "sampling.top_p", "BELOW_MIN"),
    "top_p 2": (knobs(top_p=2), "sampling.top_p", "ABOVE_MAX"),
    "top_k -2": (knobs(top_k=-2), "sampling.top_k", "BELOW_MIN"),
    "n 0": (knobs(n=0), "sampling.n", "BELOW_MIN"),
    "n over the contract's": (knobs(n=129), "sampling.n", "ABOVE_MAX"),
    "n over the server's": (knobs(n=9), "sampling.n", "ABOVE_MAX"),
    "empty stop": (knobs(stop=["a", ""]), "sampling.stop[1]", "EMPTY"),
    "many stops": (knobs(stop=["a"] * 17), "sampling.stop", "TOO_MANY"),
    "bias range": (knobs(logit_bias={1: 101}), "sampling.logit_bias[1]", "ABOVE_MAX"),
    "bias id": (knobs(logit_bias={1 << 20: 1}), "sampling.logit_bias[0]", "OUT_OF_VOCABULARY"),
    "stop id": (knobs(stop_token_ids=[1, 1 << 20]), "sampling.stop_token_ids[1]", "OUT_OF_VOCABULARY"),
    "min above max": (knobs(min_tokens=9, max_tokens=2), "sampling.min_tokens", "ABOVE_MAX"),
    "request id": (chat_request("a", request_id="a b"), "request_id", "INVALID_VALUE"),
    "negative timeout": (chat_request("a", timeout={"seconds": -1}), "timeout", "BELOW_MIN"),
    "stop without text": (
        chat_request("a", sampling={"stop": ["x"]}, output={"return_text": False}),
        "sampling.stop",
        "INVALID_VALUE",
    ),
    "a template": (
        chat_request("a", template={"kwargs": {"chat_template": "{{ 7 * 7 }}"}}),
        "template.kwargs[chat_template]",
        "INVALID_VALUE",
    ),
    "a list for the template": (
        chat_request("a", template={"kwargs": {"x": [1]}}),
        "template.kwargs[x]",
        "INVALID_TYPE",
    ),
    "continue a user": (
        chat_request("a", template={"continue_final_message": True}),
        "template.continue_final_message",
        "INVALID_VALUE",
    ),
}


@pytest.mark.parametrize("method", [CHAT, STREAM_CHAT])
@pytest.mark.parametrize("name", BAD)
async def test_what_is_wrong_is_named_before_the_first_message(echo_server: EchoServer, method: str, name: str) -> None:
    request, field, kind = BAD[name]
    error = await status_of(raw(echo_server, method, request.SerializeToString()))
    assert error.reason == "INVALID_FIELD", error.status.message
    bad = error_details(error.status, error_details_pb2.BadRequest)
    assert bad is not None
    assert field in [violation.field for violation in bad.field_violations]
    if kind:
        assert kind in [v.reason for v in bad.field_violations if v.field == field]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (chat_request("a", tools=[{"function": {"name": "f"}}]), "tools[0]"),
        (chat_request("a", structured_output={"regex": "a"}), "structured_output"),
        (chat_request("a", adapter="x"), "adapter"),
    ],
)
async def test_what_is_not_served_yet_is_unimplemented_and_says_which_field(
    echo_server: EchoServer, request_: chat_pb2.ChatRequest, field: str
) -> None:
    error = await status_of(raw(echo_server, STREAM_CHAT, request_.SerializeToString()))
    assert error.code is grpc.StatusCode.UNIMPLEMENTED
    assert error.reason == "FEATURE_UNSUPPORTED"
    bad = error_details(error.status, error_details_pb2.BadRequest)
    assert bad is not None
    assert bad.field_violations[0].field == field


async def test_an_unknown_model_is_not_found_and_the_known_one_named(echo_server: EchoServer) -> None:
    error = await status_of(raw(echo_server, CHAT, chat_request("a", model="nope").SerializeToString()))
    assert error.reason == "MODEL_NOT_FOUND"
    assert "echo" in error.status.message


async def test_a_prompt_longer_than_the_context_says_both_numbers(echo_server: EchoServer) -> None:
    error = await status_of(raw(echo_server, STREAM_CHAT, chat_request("w " * 5000).SerializeToString()))
    assert error.reason == "CONTEXT_LENGTH_EXCEEDED"
    assert "maximum context length is 4096 tokens" in error.status.message


async def test_a_stream_is_start_deltas_finishes_end(echo_server: EchoServer) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(echo_server.channel)
    call = stub.StreamChat(chat_request("a b c", sampling={"n": 2}, request_id="mine.1"))
    events = [event async for event in call]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == ["start"] + ["delta"] * 6 + ["finish"] * 2 + ["end"]
    assert events[0].start.request_id == "mine.1"
    assert ("x-request-id", "mine.1") in list(await call.trailing_metadata())
    assert sorted(event.finish.index for event in events if event.HasField("finish")) == [0, 1]
    assert events[-1].end.usage.output_token_count == 6
    whole = await stub.Chat(chat_request("a b c", sampling={"n": 2}))
    for choice in whole.choices:
        assert choice.content == "a b c"
        assert choice.content == "".join(e.delta.content for e in events if e.delta.index == choice.index)
    assert whole.usage == events[-1].end.usage


async def test_no_initial_metadata_comes_before_the_first_token(echo_server: EchoServer) -> None:
    stub = generation_pb2_grpc.GenerationServiceStub(echo_server.channel)
    call = stub.StreamGenerate(generation_pb2.GenerateRequest(text="[[fault:hang:0]] a b"))
    headers = asyncio.ensure_future(call.initial_metadata())
    done, _ = await asyncio.wait([headers], timeout=0.3)
    assert not done
    call.cancel()
    await asyncio.wait([headers])
    await idle(echo_server)


@pytest.mark.parametrize("tokens_first", [0, 2])
async def test_a_fault_keeps_its_status_and_the_service_goes_on(echo_server: EchoServer, tokens_first: int) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(echo_server.channel)
    call = stub.StreamChat(chat_request(f"[[fault:ENGINE_DEAD:{tokens_first}]] a b c d"))
    seen: list[str | None] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for event in call:
            seen += [event.WhichOneof("event")]
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert seen.count("delta") == tokens_first
    assert (await stub.Chat(chat_request("still here"))).choices[0].content == "still here"


async def test_a_foreign_exception_is_internal_and_its_text_stays_in_the_log(
    echo_server: EchoServer, caplog: pytest.LogCaptureFixture
) -> None:
    error = await status_of(raw(echo_server, CHAT, chat_request("[[fault:crash:0]] a").SerializeToString()))
    assert error.code is grpc.StatusCode.INTERNAL
    assert "scripted" not in error.status.message
    assert "scripted fault that is no status" in caplog.text


async def test_a_refusal_that_passes_carries_retry_info_and_pushback(echo_server: EchoServer) -> None:
    call = raw(echo_server, CHAT, chat_request("[[fault:QUEUE_FULL:0]] a").SerializeToString())
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    assert "grpc-status-details-bin" in dict(await call.trailing_metadata())


@pytest.mark.parametrize("how", ["cancel", "deadline", "timeout field"])
@pytest.mark.parametrize("text", ["[[fault:hang:0]] a b", "a b c d"], ids=["before the first token", "mid-stream"])
async def test_a_call_that_ends_early_ends_in_the_engine_too(echo_server: EchoServer, how: str, text: str) -> None:
    stub = chat_pb2_grpc.ChatServiceStub(echo_server.channel)
    request = chat_request(text, sampling={"max_tokens": 4000})
    if how == "timeout field":
        request.timeout.FromMilliseconds(150)
    calls = [stub.StreamChat(request, timeout=0.15 if how == "deadline" else None) for _ in range(20)]

    async def read(call: Any) -> grpc.StatusCode:
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        except asyncio.CancelledError:
            return grpc.StatusCode.CANCELLED
        return grpc.StatusCode.OK

    tasks = [asyncio.ensure_future(read(call)) for call in calls]
    while (await load(echo_server)).open_count < len(calls) and not all(task.done() for task in tasks):
        await asyncio.sleep(0.005)
    if how == "cancel":
        for call in calls:
            call.cancel()
    codes = set(await asyncio.gather(*tasks))
    assert codes == {grpc.StatusCode.CANCELLED if how == "cancel" else grpc.StatusCode.DEADLINE_EXCEEDED}
    await idle(echo_server)


async def test_a_unary_call_obeys_its_timeout_field(echo_server: EchoServer) -> None:
    request = chat_request("[[fault:hang:0]] a")
    request.timeout.FromMilliseconds(50)
    error = await status_of(raw(echo_server, CHAT, request.SerializeToString()))
    assert error.reason == "DEADLINE_EXCEEDED"
    await idle(echo_server)


async def test_admin_cancels_by_request_id(echo_server: EchoServer) -> None:
    chat = chat_pb2_grpc.ChatServiceStub(echo_server.channel)
    admin = admin_pb2_grpc.AdminServiceStub(echo_server.channel)
    call = chat.StreamChat(chat_request("a b", request_id="doomed", sampling={"max_tokens": 4000}))

    async def events() -> AsyncIterator[chat_pb2.StreamChatResponse]:
        async for event in call:
            if event.HasField("start"):
                reply = await admin.CancelRequests(admin_pb2.CancelRequestsRequest(request_ids=["doomed", "other"]))
                assert (reply.replicas[0].ok, reply.replicas[0].affected_count) == (True, 1)
            yield event

    finishes = [event.finish async for event in events() if event.HasField("finish")]
    assert [finish.finish_reason for finish in finishes] == [6]  # ABORTED


async def test_health_knows_the_whole_each_service_and_the_model(echo_server: EchoServer) -> None:
    stub = health_pb2_grpc.HealthStub(echo_server.channel)
    for name in ("", "echo", *contract_services()):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="nope"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.Watch(health_pb2.HealthCheckRequest()):
            pass
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
