"""The async client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from tokenwire import _arguments as arguments
from tokenwire import _requests as requests
from tokenwire import _rpcs as rpcs
from tokenwire._async_stream import AsyncStream, cancelled_from_outside
from tokenwire._settings import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S, ChannelOptions, Settings
from tokenwire._status import from_rpc_error
from tokenwire._streams import ChatAccumulator, GenerateAccumulator
from tokenwire.errors import ClientClosedError
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2


class AsyncClient:
    """`Client` for asyncio: the same arguments and methods, to be awaited.

    It may be made anywhere, and belongs to the event loop of its first call. Cancelling a task that waits for a call
    cancels the call at the server.

    Args:
        target: `host:port`, `grpc://host:port` (plain) or `grpcs://host:port` (TLS).
        api_key: Sent as a bearer token with every call; None or "" sends none.
        timeout: Seconds for a whole call with its retries, above 0; each call may set its own.
        secure: True for TLS, False for a plain connection; see `Client`.
        tls: Credentials from `grpc.ssl_channel_credentials`. Implies `secure`.
        max_retries: Attempts after the first, 0 or more. gRPC's own retries stop at 4.
        connections: HTTP/2 connections to spread calls over, 1 or more.
        metadata: Further metadata of every call.
        options: gRPC channel options that go ahead of the client's own.

    Raises:
        ValueError: An argument is out of its range, or it is not clear whether to use TLS.

    Example:
        async with tokenwire.AsyncClient("localhost:9000") as client:
            print(tokenwire.text(await client.chat("Why is the sky blue?")))
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
        # Made with the first call, since a channel of grpc.aio belongs to the loop that runs when it is made.
        self._channels: list[grpc.aio.Channel] = []
        self._turn: Iterator[grpc.aio.Channel] = iter(())
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncClient({self._settings.place.address!r})"

    async def chat(
        self, messages: arguments.Messages, **given: Unpack[arguments.ChatArguments]
    ) -> chat_pb2.ChatResponse:
        """Continues a conversation; see `Client.chat`."""
        return await self._unary(rpcs.CHAT, requests.chat_request(messages, given), given.get("timeout"))

    def stream_chat(
        self, messages: arguments.Messages, **given: Unpack[arguments.ChatArguments]
    ) -> AsyncStream[chat_pb2.ChatDelta, chat_pb2.ChatResponse]:
        """`chat`, as tokens come. Not to be awaited: arguments are checked at once, reading the stream sends them."""
        request = requests.chat_request(messages, given)
        attempts = self._settings.attempts(given.get("timeout"))
        return AsyncStream(self._opener(rpcs.STREAM_CHAT, request), ChatAccumulator(), attempts, self._is_closed)

    async def generate(
        self, prompt: arguments.Prompt, **given: Unpack[arguments.GenerateArguments]
    ) -> generation_pb2.GenerateResponse:
        """Completes a prompt as it stands; see `Client.generate`."""
        return await self._unary(rpcs.GENERATE, requests.generate_request(prompt, given), given.get("timeout"))

    def stream_generate(
        self, prompt: arguments.Prompt, **given: Unpack[arguments.GenerateArguments]
    ) -> AsyncStream[generation_pb2.GenerateDelta, generation_pb2.GenerateResponse]:
        """`generate`, as tokens come. Not to be awaited; see `stream_chat`."""
        request = requests.generate_request(prompt, given)
        attempts = self._settings.attempts(given.get("timeout"))
        opener = self._opener(rpcs.STREAM_GENERATE, request)
        return AsyncStream(opener, GenerateAccumulator(), attempts, self._is_closed)

    async def embed(
        self, inputs: arguments.Inputs, **given: Unpack[arguments.EmbedArguments]
    ) -> embedding_pb2.EmbedResponse:
        """Turns texts into vectors; see `Client.embed`."""
        return await self._unary(rpcs.EMBED, requests.embed_request(inputs, given), given.get("timeout"))

    async def tokenize(
        self,
        text: str,
        *,
        model: str | None = None,
        add_special_tokens: bool | None = None,
        return_tokens: bool | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> tokenization_pb2.TokenizeResponse:
        """Turns text into token ids; see `Client.tokenize`."""
        request = requests.plain_request(
            rpcs.TOKENIZE.request,
            text=text,
            model=model,
            add_special_tokens=add_special_tokens,
            return_tokens=return_tokens,
        )
        return await self._unary(rpcs.TOKENIZE, request, timeout)

    async def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        model: str | None = None,
        skip_special_tokens: bool | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> str:
        """Turns token ids into text; see `Client.detokenize`."""
        request = requests.plain_request(
            rpcs.DETOKENIZE.request, token_ids=token_ids, model=model, skip_special_tokens=skip_special_tokens
        )
        return (await self._unary(rpcs.DETOKENIZE, request, timeout)).text

    async def render_chat(
        self, messages: arguments.Messages, **given: Unpack[arguments.RenderArguments]
    ) -> tokenization_pb2.RenderChatResponse:
        """The prompt that `chat` would give the model, as text and as token ids."""
        return await self._unary(rpcs.RENDER_CHAT, requests.render_request(messages, given), given.get("timeout"))

    async def tokenizer_info(
        self,
        model: str | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> tokenization_pb2.GetTokenizerInfoResponse:
        """Facts of a model's tokenizer: vocabulary, special tokens, chat template."""
        request = requests.plain_request(rpcs.TOKENIZER_INFO.request, model=model)
        return await self._unary(rpcs.TOKENIZER_INFO, request, timeout)

    async def models(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> list[model_pb2.Model]:
        """All models and adapters, however many pages the server makes of them. `timeout` is for each page."""
        found: list[model_pb2.Model] = []
        token = ""
        while True:
            page = await self._unary(rpcs.LIST_MODELS, model_pb2.ListModelsRequest(page_token=token), timeout)
            found.extend(page.models)
            token = page.next_page_token
            if not token:
                return found

    async def model(
        self,
        model: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> model_pb2.Model:
        """Facts of one model by its id; raises `NotFoundError` where there is none."""
        request = requests.plain_request(rpcs.GET_MODEL.request, model=model)
        return (await self._unary(rpcs.GET_MODEL, request, timeout)).model

    async def version(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> model_pb2.GetVersionResponse:
        """Versions of the server, its engine and the contract."""
        return await self._unary(rpcs.GET_VERSION, model_pb2.GetVersionRequest(), timeout)

    async def close(self) -> None:
        """Closes the connections. Calls that still run end with `ClientClosedError`."""
        self._closed = True
        for channel in self._channels:
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _is_closed(self) -> bool:
        return self._closed

    def _channel(self) -> grpc.aio.Channel:
        if self._closed:
            raise ClientClosedError("the client is closed")
        if not self._channels:
            self._channels = [self._settings.aio_channel() for _ in range(self._settings.connections)]
            self._turn = itertools.cycle(self._channels)
        return next(self._turn)

    def _opener(self, rpc: rpcs.Rpc[Any, Any], request: Any) -> Callable[[float], Any]:
        def open_call(seconds: float) -> Any:
            rpcs.stamp_timeout(request, seconds)
            method = self._channel().unary_stream(rpc.path, rpc.serialize, rpc.parse)
            return method(request, timeout=seconds, metadata=self._settings.metadata)

        return open_call

    async def _unary(
        self,
        rpc: rpcs.Rpc[rpcs.RequestT, rpcs.ResponseT],
        request: rpcs.RequestT,
        timeout: float | None,  # noqa: ASYNC109 - becomes the gRPC deadline, which the server sees
    ) -> rpcs.ResponseT:
        attempts = self._settings.attempts(timeout)
        while True:
            seconds = attempts.remaining()
            rpcs.stamp_timeout(request, seconds)
            method = self._channel().unary_unary(rpc.path, rpc.serialize, rpc.parse)
            try:
                return await method(request, timeout=seconds, metadata=self._settings.metadata)
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
            except asyncio.CancelledError:
                if self._closed and not cancelled_from_outside():
                    raise ClientClosedError("the client was closed while the call ran") from None
                raise
            delay = attempts.delay_after(failure)
            if delay is None:
                raise failure
            await asyncio.sleep(delay)
