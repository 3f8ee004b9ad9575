"""The endpoints: read, translate, ask the backend, translate back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2
from tokenwire_server.backend import Backend, CallContext
from tokenwire_server.rest.body import parse_json, read_body
from tokenwire_server.rest.fanout import gather, merge
from tokenwire_server.rest.openai.chat import chat_reply, read_chat
from tokenwire_server.rest.openai.chat_frames import ChatFrames
from tokenwire_server.rest.openai.completion_frames import CompletionFrames
from tokenwire_server.rest.openai.completions import completion_reply, read_completion
from tokenwire_server.rest.openai.embeddings import embedding_reply, read_embedding
from tokenwire_server.rest.openai.encoding import dumps
from tokenwire_server.rest.openai.errors import describe
from tokenwire_server.rest.openai.models import model_list, model_object
from tokenwire_server.rest.openai.params import ParamNames
from tokenwire_server.rest.streams import EventStream, Frames, StreamStyle, unless_gone

__all__ = ["OpenAIRoutes"]

_CHAT = "tokenwire.v1.ChatService"
_GENERATION = "tokenwire.v1.GenerationService"
_EMBEDDING = "tokenwire.v1.EmbeddingService"
_MODEL = "tokenwire.v1.ModelService"

_Inference = chat_pb2.ChatRequest | generation_pb2.GenerateRequest | embedding_pb2.EmbedRequest
_Call = TypeVar("_Call")


class OpenAIRoutes:
    """Handlers of `/v1`.

    Args:
        backend: Answers every call.
        max_body_bytes: Largest body, in bytes.
        keep_alive_s: Seconds without an event after which a stream sends a comment.
    """

    def __init__(self, backend: Backend, *, max_body_bytes: int, keep_alive_s: float) -> None:
        self._backend = backend
        self._max_body_bytes = max_body_bytes
        self._keep_alive_s = keep_alive_s

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        parsed, call, names = await self._read(request, read_chat, "messages")
        _set_timeout(parsed.request, call)
        if parsed.stream is not None:
            events = self._stream(f"{_CHAT}/StreamChat", parsed.request, call)
            frames = ChatFrames(parsed, call.request_id)
            return self._event_stream(events, frames, call, names)
        work = self._backend.unary(f"{_CHAT}/Chat", parsed.request, call)
        response = cast("chat_pb2.ChatResponse", await unless_gone(request.receive, work))
        return _json(chat_reply(response, parsed, call.request_id))

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`: a backend call for each prompt."""
        parsed, call, names = await self._read(request, read_completion, "prompt")
        calls = _numbered(call, len(parsed.requests))
        for one in parsed.requests:
            _set_timeout(one, call)
        pairs = list(zip(parsed.requests, calls, strict=True))
        if parsed.stream is not None:
            events = merge([self._stream(f"{_GENERATION}/StreamGenerate", one, its) for one, its in pairs])
            frames = CompletionFrames(parsed, call.request_id)
            return self._event_stream(events, frames, call, names)
        work = gather([self._backend.unary(f"{_GENERATION}/Generate", one, its) for one, its in pairs])
        responses = cast("list[generation_pb2.GenerateResponse]", await unless_gone(request.receive, work))
        return _json(completion_reply(responses, parsed, call.request_id))

    async def embeddings(self, request: Request) -> Response:
        """`POST /v1/embeddings`."""
        parsed, call, _ = await self._read(request, read_embedding, "input")
        _set_timeout(parsed.request, call)
        work = self._backend.unary(f"{_EMBEDDING}/Embed", parsed.request, call)
        response = cast("embedding_pb2.EmbedResponse", await unless_gone(request.receive, work))
        return _json(embedding_reply(response, parsed))

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`: all pages of the contract's list."""
        call: CallContext = request.state.call
        models: list[model_pb2.Model] = []
        page = model_pb2.ListModelsRequest()
        while True:
            answer = cast("model_pb2.ListModelsResponse", await self._backend.unary(f"{_MODEL}/ListModels", page, call))
            models.extend(answer.models)
            if not answer.next_page_token:
                return _json(model_list(models))
            page = model_pb2.ListModelsRequest(page_token=answer.next_page_token)

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{id}`; ids may hold slashes."""
        name = request.path_params["model"]
        if not name:
            raise HTTPException(404)
        question = model_pb2.GetModelRequest(model=name)
        answer = await self._backend.unary(f"{_MODEL}/GetModel", question, request.state.call)
        return _json(model_object(cast("model_pb2.GetModelResponse", answer).model))

    async def _read(
        self, request: Request, translate: Callable[[dict[str, Any]], _Call], prompt: str
    ) -> tuple[_Call, CallContext, ParamNames]:
        call: CallContext = request.state.call
        data = await read_body(request, self._max_body_bytes)
        call.request_size = len(data)
        body = parse_json(data)
        names = ParamNames(body, prompt)
        request.state.names = names
        return translate(body), call, names

    def _event_stream(
        self, events: AsyncGenerator[Any, None], frames: Frames[Any], call: CallContext, names: ParamNames
    ) -> Response:
        def error_frame(error: Exception) -> bytes:
            return b"data: " + describe(error, names, call.request_id).body() + b"\n\n"

        style = StreamStyle(on_error=error_frame, last=b"data: [DONE]\n\n")
        return EventStream(events, frames, style, request_id=call.request_id, keep_alive_s=self._keep_alive_s)

    def _stream(self, method: str, request: Message, call: CallContext) -> AsyncGenerator[Any, None]:
        return cast("AsyncGenerator[Any, None]", self._backend.stream(method, request, call))


def _numbered(call: CallContext, count: int) -> list[CallContext]:
    """A context for each prompt: two calls of one id would look like a duplicate."""
    if count == 1:
        return [call]
    return [replace(call, request_id=f"{call.request_id[:120]}-{index}") for index in range(count)]


def _set_timeout(request: _Inference, call: CallContext) -> None:
    # A proxy passes neither deadline nor header on, so the time allowed goes in the message.
    if call.deadline is not None:
        seconds = max(call.deadline - call.received_at, 0.001)
        request.timeout.FromTimedelta(timedelta(seconds=seconds))


def _json(value: Any) -> Response:
    return Response(dumps(value), media_type="application/json")
