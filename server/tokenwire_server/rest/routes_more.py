"""The endpoints of Responses, Anthropic's Messages, and tokenization."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.v1 import chat_pb2, tokenization_pb2
from tokenwire_server.backend import CallContext
from tokenwire_server.rest.anthropic.errors import anthropic_error
from tokenwire_server.rest.anthropic.messages import MessageCall, MessageNames, read_count, read_message
from tokenwire_server.rest.anthropic.replies import MessageFrames, message_reply
from tokenwire_server.rest.openai.errors import describe
from tokenwire_server.rest.openai.fields import unsupported
from tokenwire_server.rest.openai.params import ParamNames
from tokenwire_server.rest.openai.responses import ResponseCall, ResponseNames, read_response
from tokenwire_server.rest.openai.responses_frames import ResponseFrames
from tokenwire_server.rest.openai.responses_reply import response_reply
from tokenwire_server.rest.openai.tokenize import info_reply, read_detokenize, read_tokenize, tokenize_reply
from tokenwire_server.rest.route_base import CHAT, TOKENIZATION, RouteBase, json_response, set_timeout
from tokenwire_server.rest.streams import StreamStyle

__all__ = ["AnthropicRoutes", "ResponsesRoutes", "TokenizeRoutes"]


class ResponsesRoutes(RouteBase):
    """Handlers of `/v1/responses`."""

    async def create(self, request: Request) -> Response:
        """`POST /v1/responses`."""
        parsed, call, names = await self._read(request, read_response, ResponseNames)
        _keep_origins(names, parsed)
        set_timeout(parsed.request, call)
        if parsed.stream:
            frames = ResponseFrames(parsed, call.request_id)

            def error_frame(error: Exception) -> bytes:
                return frames.error(describe(error, names, call.request_id))

            events = self._stream(f"{CHAT}/StreamChat", parsed.request, call)
            return self._event_stream(events, frames, StreamStyle(on_error=error_frame), call)
        response: chat_pb2.ChatResponse = await self._unary(request, f"{CHAT}/Chat", parsed.request, call)
        return json_response(response_reply(response, parsed, call.request_id))


class AnthropicRoutes(RouteBase):
    """Handlers of `/v1/messages`."""

    async def create(self, request: Request) -> Response:
        """`POST /v1/messages`."""
        parsed, call, names = await self._read(request, read_message, MessageNames)
        _keep_origins(names, parsed)
        set_timeout(parsed.request, call)
        if parsed.stream:
            events = self._stream(f"{CHAT}/StreamChat", parsed.request, call)
            return self._event_stream(events, MessageFrames(parsed, call.request_id), _style(call, names), call)
        response: chat_pb2.ChatResponse = await self._unary(request, f"{CHAT}/Chat", parsed.request, call)
        return json_response(message_reply(response, parsed, call.request_id))

    async def count(self, request: Request) -> Response:
        """`POST /v1/messages/count_tokens`."""
        (message, origins), call, names = await self._read(request, read_count, MessageNames)
        if isinstance(names, MessageNames):
            names.origins = origins
        answer: tokenization_pb2.RenderChatResponse
        answer = await self._unary(request, f"{TOKENIZATION}/RenderChat", message, call)
        return json_response({"input_tokens": len(answer.token_ids)})


class TokenizeRoutes(RouteBase):
    """Handlers of `/tokenize`, `/detokenize` and `/tokenizer_info`."""

    async def tokenize(self, request: Request) -> Response:
        """`POST /tokenize`, of a `prompt` or of `messages`."""
        (message, strings), call, _ = await self._read(request, read_tokenize, _names)
        if isinstance(message, tokenization_pb2.TokenizeRequest):
            answer = await self._unary(request, f"{TOKENIZATION}/Tokenize", message, call)
            return json_response(
                tokenize_reply(answer.token_ids, answer.max_model_len, answer.tokens if strings else None)
            )
        answer = await self._unary(request, f"{TOKENIZATION}/RenderChat", message, call)
        texts = await self._texts(request, message.model, answer, call) if strings else None
        return json_response(tokenize_reply(answer.token_ids, answer.max_model_len, texts))

    async def _texts(
        self, request: Request, model: str, rendered: tokenization_pb2.RenderChatResponse, call: CallContext
    ) -> list[str]:
        """Texts of a rendered chat's tokens: the contract gives them for a text alone, so that text is asked."""
        again = tokenization_pb2.TokenizeRequest(
            model=model, text=rendered.text, add_special_tokens=False, return_tokens=True
        )
        answer = await self._unary(request, f"{TOKENIZATION}/Tokenize", again, call)
        if list(answer.token_ids) != list(rendered.token_ids):
            raise unsupported("return_token_strs", "beside 'messages' is not supported by this model's template")
        return list(answer.tokens)

    async def detokenize(self, request: Request) -> Response:
        """`POST /detokenize`."""
        message, call, _ = await self._read(request, read_detokenize, _names)
        answer: tokenization_pb2.DetokenizeResponse
        answer = await self._unary(request, f"{TOKENIZATION}/Detokenize", message, call)
        return json_response({"prompt": answer.text})

    async def info(self, request: Request) -> Response:
        """`GET /tokenizer_info`; `?model=` names one of several."""
        question = tokenization_pb2.GetTokenizerInfoRequest(model=request.query_params.get("model", ""))
        answer = await self._backend.unary(f"{TOKENIZATION}/GetTokenizerInfo", question, request.state.call)
        if not isinstance(answer, tokenization_pb2.GetTokenizerInfoResponse):
            raise TypeError("a backend answers with the RPC's own message")
        return json_response(info_reply(answer))


def _names(body: dict[str, object]) -> ParamNames:
    return ParamNames(body, "messages" if body.get("messages") is not None else "prompt")


def _keep_origins(names: ParamNames, parsed: ResponseCall | MessageCall) -> None:
    if isinstance(names, ResponseNames | MessageNames):
        names.origins = parsed.origins


def _style(call: CallContext, names: ParamNames) -> StreamStyle:
    def error_frame(error: Exception) -> bytes:
        return (
            b"event: error\ndata: "
            + anthropic_error(describe(error, names, call.request_id), call.request_id)
            + b"\n\n"
        )

    return StreamStyle(on_error=error_frame, keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n')
