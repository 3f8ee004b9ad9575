"""A fake Tokenwire server for tests of programs that use the client.

It is a real gRPC server in this process, on a free port of the loopback, so that a test goes through the same
connection, deadlines, retries and errors as the program does. It needs no model: it says what it is told to.

Example:
    def test_greeting():
        with FakeServer() as server, tokenwire.Client(server.target) as client:
            server.reply("Hello there")
            assert greet(client) == "Hello there"
            assert server.calls[0].request.messages[0].content[0].text == "Say hello."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from tokenwire._fake_answers import Reply
from tokenwire._fake_handlers import Handlers
from tokenwire._fake_script import Failure, Script, SeenCall
from tokenwire.v1 import chat_pb2, output_pb2

__all__ = ["FakeServer", "SeenCall"]

_DOMAIN = "tokenwire.dev"


class FakeServer:
    """Answers all RPCs of `tokenwire.v1` with what the test scripts, else with what it was asked.

    Chat and generation take the next text of `reply`; where none is left, they repeat the last message or the prompt.
    A text comes in deltas of one word. A token is one byte of UTF-8, so that token ids, logprobs and token counts
    follow from the text. Vectors depend on their input alone. `n`, `logprobs`, `return_token_ids` and `dimensions` are
    heeded; other sampling arguments are recorded only.

    Args:
        models: Ids of the models that it serves, at least one; a request for another gets NOT_FOUND.
        api_key: What callers must send; "" lets everybody in.
        dimensions: Length of its vectors.
        page_size: Models in one page of the list.
        workers: Calls that it can answer at a time; one with `hold` counts until it is cancelled.
    """

    def __init__(
        self,
        models: Sequence[str] = ("fake",),
        *,
        api_key: str = "",
        dimensions: int = 8,
        page_size: int = 100,
        workers: int = 16,
    ) -> None:
        self._script = Script()
        self._handlers = Handlers(
            self._script, _failure, models=models, api_key=api_key, dimensions=dimensions, page_size=page_size
        )
        self._workers = workers
        self._server: grpc.Server | None = None
        self._port = 0

    @property
    def target(self) -> str:
        """`127.0.0.1:port`, for `Client` and `AsyncClient`; set once the server has started."""
        return f"127.0.0.1:{self._port}"

    @property
    def calls(self) -> list[SeenCall]:
        """The calls so far, oldest first, retries among them."""
        return self._script.calls()

    def reply(
        self,
        *texts: str,
        reasoning: str = "",
        tool_calls: Sequence[chat_pb2.ToolCall] = (),
        finish_reason: output_pb2.FinishReason.ValueType = output_pb2.FINISH_REASON_STOP,
        hold: bool = False,
        end: bool = True,
    ) -> None:
        """Queues the answer to one call of chat or generation.

        Args:
            *texts: Text of output 0, 1 and so on; the last serves all further ones. None is the empty text.
            reasoning: Reasoning before the text; chat only.
            tool_calls: Calls after the text; chat only.
            finish_reason: Why each output ends.
            hold: Sends the text and then waits until the caller cancels.
            end: False ends a stream with status OK but without its end event.
        """
        self._script.add_reply(Reply(texts or ("",), reasoning, tuple(tool_calls), finish_reason, hold, end))

    def fail(
        self,
        code: grpc.StatusCode,
        message: str = "scripted failure",
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_delay: float | None = None,
        field_violations: Sequence[tuple[str, str]] = (),
        trailers: Sequence[tuple[str, str | bytes]] = (),
        after: int = 0,
        times: int = 1,
    ) -> None:
        """Queues an error for the next call of any RPC.

        Args:
            code: The status code. CANCELLED without a reason is what a caller sees when a replica dies.
            message: The status message.
            reason: `ErrorInfo.reason`; "" sends no ErrorInfo.
            metadata: `ErrorInfo.metadata`.
            retry_delay: Seconds of a RetryInfo.
            field_violations: (field, description) of a BadRequest.
            trailers: Further trailing metadata.
            after: Deltas that a stream sends first. 0 fails it before its first message.
            times: How many calls fail so.
        """
        failure = _failure(code, message, reason, metadata, retry_delay, field_violations)
        given = Failure(code, message, (*failure.trailers, *trailers), after)
        self._script.add_failure(given, times)

    def wait_calls(self, count: int, timeout: float = 5.0) -> bool:
        """Waits until so many calls have come in all.

        Args:
            count: How many, those before among them.
            timeout: Seconds to wait.

        Returns:
            False where fewer have come in time.
        """
        return self._script.wait_calls(count, timeout)

    def wait_cancelled(self, timeout: float = 5.0) -> bool:
        """Waits until a call was cancelled, one for each time that this is called.

        Args:
            timeout: Seconds to wait.

        Returns:
            False where none was cancelled in time.
        """
        return self._script.wait_cancelled(timeout)

    def reset(self) -> None:
        """Forgets what was queued and what was seen, so that tests can share a server."""
        self._script.clear()

    def start(self) -> Self:
        """Starts to serve on a free port. `with` does it too.

        Raises:
            RuntimeError: It runs already.
        """
        if self._server is not None:
            raise RuntimeError("the fake server runs already")
        # A port of one server must not be shared with another by accident, as SO_REUSEPORT allows.
        options = [("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 10_000)]
        server = grpc.server(ThreadPoolExecutor(self._workers), options=options)
        self._handlers.register(server)
        self._port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        """Ends all calls and frees the port."""
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _failure(
    code: grpc.StatusCode,
    message: str,
    reason: str,
    metadata: Mapping[str, str] | None = None,
    retry_delay: float | None = None,
    field_violations: Sequence[tuple[str, str]] = (),
) -> Failure:
    """An error as the server would send it: its `google.rpc.Status` is a trailer."""
    details: list[Message] = []
    if reason:
        details.append(error_details_pb2.ErrorInfo(reason=reason, domain=_DOMAIN, metadata=metadata or {}))
    if retry_delay is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(int(retry_delay * 1000))
        details.append(retry)
    if field_violations:
        bad = error_details_pb2.BadRequest()
        for field, description in field_violations:
            bad.field_violations.add(field=field, description=description)
        details.append(bad)
    if not details:
        return Failure(code, message, ())
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return Failure(code, message, (("grpc-status-details-bin", status.SerializeToString()),))
