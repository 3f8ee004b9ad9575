"""The fake server's RPCs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message

from tokenwire import _fake_answers as answers
from tokenwire import _rpcs as rpcs
from tokenwire._fake_script import Failure, Script
from tokenwire.v1 import chat_pb2, embedding_pb2, model_pb2, tokenization_pb2

Refusal = Callable[[grpc.StatusCode, str, str], Failure]
"""Makes an error of code, message and reason."""


class Watch:
    """Tells whether a call ended before its answer was complete."""

    def __init__(self, script: Script, context: grpc.ServicerContext) -> None:
        self._script = script
        self._generation = script.generation
        self._complete = False
        self.over = threading.Event()
        if not context.add_callback(self._ended):
            self._ended()

    def complete(self) -> None:
        """The answer is ready; what ends the call from here on is no cancel."""
        self._complete = True

    def _ended(self) -> None:
        if not self._complete:
            self._script.note_cancelled(self._generation)
        self.over.set()


class Handlers:
    """Answers every RPC of `tokenwire.v1` from a script."""

    def __init__(
        self, script: Script, refusal: Refusal, *, models: Sequence[str], api_key: str, dimensions: int, page_size: int
    ) -> None:
        self._script = script
        self._refusal = refusal
        self._models = list(models)
        self._api_key = api_key
        self._dimensions = dimensions
        self._page_size = page_size

    def register(self, server: grpc.Server) -> None:
        """Adds all services to a server."""
        unary: dict[rpcs.Rpc[Any, Any], Any] = {
            rpcs.CHAT: answers.chat_response,
            rpcs.GENERATE: answers.generate_response,
        }
        streams: dict[rpcs.Rpc[Any, Any], Any] = {
            rpcs.STREAM_CHAT: answers.chat_events,
            rpcs.STREAM_GENERATE: answers.generate_events,
        }
        plain: dict[rpcs.Rpc[Any, Any], Any] = {
            rpcs.EMBED: self._embed,
            rpcs.TOKENIZE: _tokenize,
            rpcs.DETOKENIZE: _detokenize,
            rpcs.RENDER_CHAT: _render,
            rpcs.TOKENIZER_INFO: _tokenizer_info,
            rpcs.LIST_MODELS: self._list_models,
            rpcs.GET_MODEL: lambda request: model_pb2.GetModelResponse(model=self._model(request.model)),
            rpcs.GET_VERSION: lambda _: model_pb2.GetVersionResponse(
                tokenwire="0.0.0", engine="fake", api="tokenwire.v1"
            ),
        }
        by_service: dict[str, dict[str, Any]] = {}
        for table, adapt in ((unary, self._unary), (streams, self._stream), (plain, self._plain)):
            for rpc, answer in table.items():
                service, method = rpc.path.strip("/").split("/")
                make = grpc.unary_stream_rpc_method_handler if table is streams else grpc.unary_unary_rpc_method_handler
                handler = make(adapt(rpc, method, answer), rpc.request.FromString, _serialize)
                by_service.setdefault(service, {})[method] = handler
        for service, handlers in by_service.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def _unary(self, rpc: Any, method: str, answer: Any) -> Any:
        def handle(request: Any, context: grpc.ServicerContext) -> Message:
            watch = Watch(self._script, context)
            asked, failure = self._begin(method, request, context, watch)
            if failure is not None:
                _abort(context, watch, failure)
            reply = self._script.next_reply(answers.prompt_of(request))
            if reply.hold:
                watch.over.wait()
            watch.complete()
            response: Message = answer(asked, reply)
            return response

        return handle

    def _stream(self, rpc: Any, method: str, answer: Any) -> Any:
        def handle(request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
            watch = Watch(self._script, context)
            asked, failure = self._begin(method, request, context, watch)
            if failure is not None and failure.after == 0:
                _abort(context, watch, failure)
            reply = self._script.next_reply(answers.prompt_of(request))
            deltas = 0
            for event in answer(asked, reply):
                if failure is not None and deltas == failure.after:
                    _abort(context, watch, failure)
                yield event
                deltas += event.HasField("delta")
            if failure is not None:
                _abort(context, watch, failure)
            if reply.hold:
                watch.over.wait()
                return
            for ending in answers.endings(asked, reply):
                if "end" in ending:
                    watch.complete()
                yield rpc.response(**ending)
            watch.complete()

        return handle

    def _plain(self, rpc: Any, method: str, answer: Any) -> Any:
        def handle(request: Any, context: grpc.ServicerContext) -> Message:
            watch = Watch(self._script, context)
            _, failure = self._begin(method, request, context, watch)
            if failure is not None:
                _abort(context, watch, failure)
            watch.complete()
            response: Message = answer(request)
            return response

        return handle

    def _begin(
        self, method: str, request: Any, context: grpc.ServicerContext, watch: Watch
    ) -> tuple[answers.Asked, Failure | None]:
        """Records the call and checks what the real server checks first."""
        metadata = context.invocation_metadata()
        number, failure = self._script.seen(method, request, metadata)
        request_id = getattr(request, "request_id", "") or f"req_{number}"
        context.set_trailing_metadata((("x-request-id", request_id),))
        if failure is None:
            failure = self._refused(request, dict(metadata))
        return self._asked(request, request_id), failure

    def _refused(self, request: Any, metadata: dict[str, str | bytes]) -> Failure | None:
        if self._api_key and metadata.get("authorization") != f"Bearer {self._api_key}":
            return self._refusal(grpc.StatusCode.UNAUTHENTICATED, "The API key is missing or wrong.", "UNAUTHENTICATED")
        model = getattr(request, "model", "")
        if model and model.partition(":")[0] not in self._models:
            text = f"The model `{model}` does not exist or you do not have access to it."
            return self._refusal(grpc.StatusCode.NOT_FOUND, text, "MODEL_NOT_FOUND")
        return None

    def _asked(self, request: Any, request_id: str) -> answers.Asked:
        known = "sampling" in request.DESCRIPTOR.fields_by_name
        blank = chat_pb2.ChatRequest()
        return answers.Asked(
            request_id=request_id,
            model=getattr(request, "model", "") or self._models[0],
            prompt=answers.prompt_of(request).encode() if known else b"",
            sampling=request.sampling if known else blank.sampling,
            output=request.output if known else blank.output,
        )

    def _embed(self, request: embedding_pb2.EmbedRequest) -> embedding_pb2.EmbedResponse:
        response = embedding_pb2.EmbedResponse(request_id=request.request_id, model=request.model or self._models[0])
        for index, one in enumerate(request.inputs):
            embedding = answers.vector(answers.input_bytes(one), request.dimensions or self._dimensions)
            embedding.index = index
            response.embeddings.append(embedding)
        total = sum(embedding.prompt_token_count for embedding in response.embeddings)
        response.usage.prompt_token_count = response.usage.total_token_count = total
        return response

    def _list_models(self, request: model_pb2.ListModelsRequest) -> model_pb2.ListModelsResponse:
        first = int(request.page_token or 0)
        last = first + (request.page_size or self._page_size)
        page = model_pb2.ListModelsResponse(models=[self._model(model) for model in self._models[first:last]])
        if last < len(self._models):
            page.next_page_token = str(last)
        return page

    def _model(self, model: str) -> model_pb2.Model:
        return model_pb2.Model(
            id=model,
            task=model_pb2.MODEL_TASK_GENERATE,
            max_model_len=answers.MAX_MODEL_LEN,
            vocab_size=256,
            embedding_dimensions=self._dimensions,
            chat=True,
        )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _abort(context: grpc.ServicerContext, watch: Watch, failure: Failure) -> NoReturn:
    watch.complete()
    context.set_trailing_metadata((*context.trailing_metadata(), *failure.trailers))
    context.abort(failure.code, failure.message)
    raise AssertionError  # abort raises


def _tokenize(request: tokenization_pb2.TokenizeRequest) -> tokenization_pb2.TokenizeResponse:
    data = request.text.encode()
    tokens = [bytes([byte]).decode("latin-1") for byte in data] if request.return_tokens else []
    return tokenization_pb2.TokenizeResponse(token_ids=data, tokens=tokens, max_model_len=answers.MAX_MODEL_LEN)


def _detokenize(request: tokenization_pb2.DetokenizeRequest) -> tokenization_pb2.DetokenizeResponse:
    data = bytes(token % 256 for token in request.token_ids)
    return tokenization_pb2.DetokenizeResponse(text=data.decode("utf-8", "replace"))


def _render(request: tokenization_pb2.RenderChatRequest) -> tokenization_pb2.RenderChatResponse:
    turns = (
        f"{chat_pb2.Role.Name(message.role).removeprefix('ROLE_').lower()}: {answers.message_text(message)}\n"
        for message in request.messages
    )
    text = "".join(turns) + "assistant:"
    return tokenization_pb2.RenderChatResponse(text=text, token_ids=text.encode(), max_model_len=answers.MAX_MODEL_LEN)


def _tokenizer_info(_: tokenization_pb2.GetTokenizerInfoRequest) -> tokenization_pb2.GetTokenizerInfoResponse:
    return tokenization_pb2.GetTokenizerInfoResponse(
        tokenizer_class="ByteTokenizer", vocab_size=256, max_model_len=answers.MAX_MODEL_LEN
    )
