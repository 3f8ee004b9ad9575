"""The endpoints of chat, completions, embeddings and models: read, translate, ask the backend, translate back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.rest.fanout import gather, merge
from tokenwire_server.rest.openai.chat import chat_reply, read_chat
from tokenwire_server.rest.openai.chat_frames import ChatFrames
from tokenwire_server.rest.openai.completion_frames import CompletionFrames
from tokenwire_server.rest.openai.completions import completion_reply, read_completion
from tokenwire_server.rest.openai.embeddings import embedding_reply, read_embedding
from tokenwire_server.rest.openai.errors import describe
from tokenwire_server.rest.openai.models import model_list, model_object
from tokenwire_server.rest.openai.params import ParamNames
from tokenwire_server.rest.route_base import CHAT, MODEL, RouteBase, json_response, set_timeout
from tokenwire_server.rest.streams import StreamStyle, unless_gone

__all__ = ["OpenAIRoutes"]

_GENERATION = "tokenwire.v1.GenerationService"
_EMBEDDING = "tokenwire.v1.EmbeddingService"

_names_of_chat = partial(ParamNames, prompt="messages")
_names_of_completions = partial(ParamNames, prompt="prompt")
_names_of_embeddings = partial(ParamNames, prompt="input")


class OpenAIRoutes(RouteBase):
    """Handlers of `/v1`."""

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        parsed, call, names = await self._read(request, read_chat, _names_of_chat)
        set_timeout(parsed.request, call)
        if parsed.stream is not None:
            events = self._stream(f"{CHAT}/StreamChat", parsed.request, call)
            return self._event_stream(events, ChatFrames(parsed, call.request_id), _style(call, names), call)
        response: chat_pb2.ChatResponse = await self._unary(request, f"{CHAT}/Chat", parsed.request, call)
        return json_response(chat_reply(response, parsed, call.request_id))

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`: a backend call for each prompt."""
        parsed, call, names = await self._read(request, read_completion, _names_of_completions)
        calls = _numbered(call, len(parsed.requests))
        for one in parsed.requests:
            set_timeout(one, call)
        pairs = list(zip(parsed.requests, calls, strict=True))
        if parsed.stream is not None:
            events = merge([self._stream(f"{_GENERATION}/StreamGenerate", one, its) for one, its in pairs])
            return self._event_stream(events, CompletionFrames(parsed, call.request_id), _style(call, names), call)
        work = gather([self._backend.unary(f"{_GENERATION}/Generate", one, its) for one, its in pairs])
        responses = cast("list[generation_pb2.GenerateResponse]", await unless_gone(request.receive, work))
        return json_response(completion_reply(responses, parsed, call.request_id))

    async def embeddings(self, request: Request) -> Response:
        """`POST /v1/embeddings`."""
        parsed, call, _ = await self._read(request, read_embedding, _names_of_embeddings)
        set_timeout(parsed.request, call)
        response: embedding_pb2.EmbedResponse
        response = await self._unary(request, f"{_EMBEDDING}/Embed", parsed.request, call)
        return json_response(embedding_reply(response, parsed))

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`: all pages of the contract's list."""
        call: CallContext = request.state.call
        models: list[model_pb2.Model] = []
        page = model_pb2.ListModelsRequest()
        while True:
            answer = cast("model_pb2.ListModelsResponse", await self._backend.unary(f"{MODEL}/ListModels", page, call))
            models.extend(answer.models)
            if not answer.next_page_token:
                return json_response(model_list(models))
            page = model_pb2.ListModelsRequest(page_token=answer.next_page_token)

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{id}`; ids may hold slashes."""
        name = request.path_params["model"]
        if not name:
            raise HTTPException(404)
        question = model_pb2.GetModelRequest(model=name)
        answer = await self._backend.unary(f"{MODEL}/GetModel", question, request.state.call)
        return json_response(model_object(cast("model_pb2.GetModelResponse", answer).model))


def _style(call: CallContext, names: ParamNames) -> StreamStyle:
    def error_frame(error: Exception) -> bytes:
        return b"data: " + describe(error, names, call.request_id).body() + b"\n\n"

    return StreamStyle(on_error=error_frame, last=b"data: [DONE]\n\n")


def _numbered(call: CallContext, count: int) -> list[CallContext]:
    """A context for each prompt: two calls of one id would look like a duplicate."""
    if count == 1:
        return [call]
    return [replace(call, request_id=f"{call.request_id[:120]}-{index}") for index in range(count)]
