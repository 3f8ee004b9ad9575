"""The sync client."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from tokenwire import _arguments as arguments
from tokenwire import _requests as requests
from tokenwire import _rpcs as rpcs
from tokenwire._settings import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S, ChannelOptions, Settings
from tokenwire._status import from_rpc_error
from tokenwire._streams import ChatAccumulator, GenerateAccumulator
from tokenwire._sync_stream import Stream
from tokenwire.errors import ClientClosedError
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2


class Client:
    """A connection to a Tokenwire server. It connects with the first call, and any number of threads may share it.

    Every call has a deadline, is made again where that is safe (see docs/client.md), and raises what
    `tokenwire.errors` draws. Responses are the contract's own messages.

    Args:
        target: `host:port`, `grpc://host:port` (plain) or `grpcs://host:port` (TLS).
        api_key: Sent as a bearer token with every call; None or "" sends none.
        timeout: Seconds for a whole call with its retries, above 0; each call may set its own.
        secure: True for TLS, False for a plain connection. Must be given for a `host:port` that is not this
            machine's loopback, which is plain by default.
        tls: Credentials from `grpc.ssl_channel_credentials`, for an authority or a client certificate of your own.
            Implies `secure`.
        max_retries: Attempts after the first, 0 or more. gRPC's own retries stop at 4.
        connections: HTTP/2 connections to spread calls over, 1 or more. A proxy allows so many streams on each, often
            100; further calls wait.
        metadata: Further metadata of every call, such as `[("application", "llm")]`.
        options: gRPC channel options that go ahead of the client's own.

    Raises:
        ValueError: An argument is out of its range, or it is not clear whether to use TLS.

    Example:
        with tokenwire.Client("localhost:9000") as client:
            print(tokenwire.text(client.chat("Why is the sky blue?")))
    """

    def __init__(
        self,
        target: str,
        *,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        secure: bool | None = None,
        tls: grpc.ChannelCredentials | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        connections: int = 1,
        metadata: Sequence[tuple[str, str]] = (),
        options: ChannelOptions | None = None,
    ) -> None:
        self._settings = Settings.of(
            target,
            api_key=api_key,
            timeout=timeout,
            secure=secure,
            tls=tls,
            max_retries=max_retries,
            connections=connections,
            metadata=metadata,
            options=options,
        )
        self._channels = [self._settings.channel() for _ in range(connections)]
        self._turn = itertools.cycle(self._channels)
        self._closed = threading.Event()

    def __repr__(self) -> str:
        return f"Client({self._settings.place.address!r})"

    def chat(self, messages: arguments.Messages, **given: Unpack[arguments.ChatArguments]) -> chat_pb2.ChatResponse:
        """Continues a conversation, and answers when all choices have ended.

        Args:
            messages: A str (one user message), or a list of `{"role": ..., "content": ...}` and `ChatMessage`.
            **given: Any of `tokenwire.ChatArguments`: the model, sampling, output, tools, timeout.

        Raises:
            TypeError: An argument is unknown or of another type; the text begins with its name.
            ValueError: An argument has a value that it cannot have.
            ApiError: The call failed.
        """
        return self._unary(rpcs.CHAT, requests.chat_request(messages, given), given.get("timeout"))

    def stream_chat(
        self, messages: arguments.Messages, **given: Unpack[arguments.ChatArguments]
    ) -> Stream[chat_pb2.ChatDelta, chat_pb2.ChatResponse]:
        """`chat`, as tokens come. Arguments are checked at once; the request is sent when the stream is read."""
        request = requests.chat_request(messages, given)
        attempts = self._settings.attempts(given.get("timeout"))
        return Stream(self._opener(rpcs.STREAM_CHAT, request), ChatAccumulator(), attempts, self._closed.is_set)

    def generate(
        self, prompt: arguments.Prompt, **given: Unpack[arguments.GenerateArguments]
    ) -> generation_pb2.GenerateResponse:
        """Completes a prompt as it stands, with no chat template.

        Args:
            prompt: Text, or token ids.
            **given: Any of `tokenwire.GenerateArguments`.

        Raises:
            TypeError: An argument is unknown or of another type; the text begins with its name.
            ValueError: An argument has a value that it cannot have.
            ApiError: The call failed.
        """
        return self._unary(rpcs.GENERATE, requests.generate_request(prompt, given), given.get("timeout"))

    def stream_generate(
        self, prompt: arguments.Prompt, **given: Unpack[arguments.GenerateArguments]
    ) -> Stream[generation_pb2.GenerateDelta, generation_pb2.GenerateResponse]:
        """`generate`, as tokens come. Arguments are checked at once; the request is sent when the stream is read."""
        request = requests.generate_request(prompt, given)
        attempts = self._settings.attempts(given.get("timeout"))
        return Stream(self._opener(rpcs.STREAM_GENERATE, request), GenerateAccumulator(), attempts, self._closed.is_set)

    def embed(self, inputs: arguments.Inputs, **given: Unpack[arguments.EmbedArguments]) -> embedding_pb2.EmbedResponse:
        """Turns texts into vectors.

        Args:
            inputs: One text, or a list of 1 to 2048 texts and lists of token ids.
            **given: Any of `tokenwire.EmbedArguments`.

        Raises:
            TypeError: An argument is unknown or of another type; the text begins with its name.
            ValueError: An argument has a value that it cannot have.
            ApiError: The call failed.
        """
        return self._unary(rpcs.EMBED, requests.embed_request(inputs, given), given.get("timeout"))

    def tokenize(
        self,
        text: str,
        *,
        model: str | None = None,
        add_special_tokens: bool | None = None,
        return_tokens: bool | None = None,
        timeout: float | None = None,
    ) -> tokenization_pb2.TokenizeResponse:
        """Turns text into token ids, with the special tokens that `generate` would add unless told otherwise."""
        request = requests.plain_request(
            rpcs.TOKENIZE.request,
            text=text,
            model=model,
            add_special_tokens=add_special_tokens,
            return_tokens=return_tokens,
        )
        return self._unary(rpcs.TOKENIZE, request, timeout)

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        model: str | None = None,
        skip_special_tokens: bool | None = None,
        timeout: float | None = None,
    ) -> str:
        """Turns token ids into text, special tokens included unless told otherwise."""
        request = requests.plain_request(
            rpcs.DETOKENIZE.request, token_ids=token_ids, model=model, skip_special_tokens=skip_special_tokens
        )
        return self._unary(rpcs.DETOKENIZE, request, timeout).text

    def render_chat(
        self, messages: arguments.Messages, **given: Unpack[arguments.RenderArguments]
    ) -> tokenization_pb2.RenderChatResponse:
        """The prompt that `chat` would give the model, as text and as token ids."""
        return self._unary(rpcs.RENDER_CHAT, requests.render_request(messages, given), given.get("timeout"))

    def tokenizer_info(
        self, model: str | None = None, *, timeout: float | None = None
    ) -> tokenization_pb2.GetTokenizerInfoResponse:
        """Facts of a model's tokenizer: vocabulary, special tokens, chat template."""
        request = requests.plain_request(rpcs.TOKENIZER_INFO.request, model=model)
        return self._unary(rpcs.TOKENIZER_INFO, request, timeout)

    def models(self, *, timeout: float | None = None) -> list[model_pb2.Model]:
        """All models and adapters, however many pages the server makes of them. `timeout` is for each page."""
        found: list[model_pb2.Model] = []
        token = ""
        while True:
            page = self._unary(rpcs.LIST_MODELS, model_pb2.ListModelsRequest(page_token=token), timeout)
            found.extend(page.models)
            token = page.next_page_token
            if not token:
                return found

    def model(self, model: str, *, timeout: float | None = None) -> model_pb2.Model:
        """Facts of one model by its id; raises `NotFoundError` where there is none."""
        request = requests.plain_request(rpcs.GET_MODEL.request, model=model)
        return self._unary(rpcs.GET_MODEL, request, timeout).model

    def version(self, *, timeout: float | None = None) -> model_pb2.GetVersionResponse:
        """Versions of the server, its engine and the contract."""
        return self._unary(rpcs.GET_VERSION, model_pb2.GetVersionRequest(), timeout)

    def close(self) -> None:
        """Closes the connections. Calls that still run end with `ClientClosedError`."""
        self._closed.set()
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _channel(self) -> grpc.Channel:
        if self._closed.is_set():
            raise ClientClosedError("the client is closed")
        return next(self._turn)

    def _opener(self, rpc: rpcs.Rpc[Any, Any], request: Any) -> Callable[[float], Any]:
        def open_call(seconds: float) -> Any:
            rpcs.stamp_timeout(request, seconds)
            method = self._channel().unary_stream(rpc.path, rpc.serialize, rpc.parse)
            return method(request, timeout=seconds, metadata=self._settings.metadata)

        return open_call

    def _unary(
        self, rpc: rpcs.Rpc[rpcs.RequestT, rpcs.ResponseT], request: rpcs.RequestT, timeout: float | None
    ) -> rpcs.ResponseT:
        attempts = self._settings.attempts(timeout)
        while True:
            seconds = attempts.remaining()
            rpcs.stamp_timeout(request, seconds)
            method = self._channel().unary_unary(rpc.path, rpc.serialize, rpc.parse)
            # A future, because a blocking call that is interrupted (Ctrl-C) goes on at the server.
            call = method.future(request, timeout=seconds, metadata=self._settings.metadata)
            try:
                return call.result()
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
            finally:
                call.cancel()  # does nothing once the call has ended
            delay = None if self._closed.is_set() else attempts.delay_after(failure)
            if self._closed.is_set() or (delay is not None and self._closed.wait(delay)):
                raise ClientClosedError("the client was closed while the call ran") from None
            if delay is None:
                raise failure
