"""The RPCs that the clients call: path, and how their messages are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True)
class Rpc(Generic[RequestT, ResponseT]):
    """One RPC. `response` is the type of its answer, or of each event where it streams."""

    path: str
    request: type[RequestT]
    response: type[ResponseT]

    def serialize(self, request: RequestT) -> bytes:
        """Bytes of a request."""
        return request.SerializeToString()

    def parse(self, data: bytes) -> ResponseT:
        """A response from its bytes."""
        return self.response.FromString(data)


CHAT = Rpc("/tokenwire.v1.ChatService/Chat", chat_pb2.ChatRequest, chat_pb2.ChatResponse)
STREAM_CHAT = Rpc("/tokenwire.v1.ChatService/StreamChat", chat_pb2.ChatRequest, chat_pb2.StreamChatResponse)
GENERATE = Rpc(
    "/tokenwire.v1.GenerationService/Generate", generation_pb2.GenerateRequest, generation_pb2.GenerateResponse
)
STREAM_GENERATE = Rpc(
    "/tokenwire.v1.GenerationService/StreamGenerate",
    generation_pb2.GenerateRequest,
    generation_pb2.StreamGenerateResponse,
)
EMBED = Rpc("/tokenwire.v1.EmbeddingService/Embed", embedding_pb2.EmbedRequest, embedding_pb2.EmbedResponse)
TOKENIZE = Rpc(
    "/tokenwire.v1.TokenizationService/Tokenize", tokenization_pb2.TokenizeRequest, tokenization_pb2.TokenizeResponse
)
DETOKENIZE = Rpc(
    "/tokenwire.v1.TokenizationService/Detokenize",
    tokenization_pb2.DetokenizeRequest,
    tokenization_pb2.DetokenizeResponse,
)
RENDER_CHAT = Rpc(
    "/tokenwire.v1.TokenizationService/RenderChat",
    tokenization_pb2.RenderChatRequest,
    tokenization_pb2.RenderChatResponse,
)
TOKENIZER_INFO = Rpc(
    "/tokenwire.v1.TokenizationService/GetTokenizerInfo",
    tokenization_pb2.GetTokenizerInfoRequest,
    tokenization_pb2.GetTokenizerInfoResponse,
)
LIST_MODELS = Rpc("/tokenwire.v1.ModelService/ListModels", model_pb2.ListModelsRequest, model_pb2.ListModelsResponse)
GET_MODEL = Rpc("/tokenwire.v1.ModelService/GetModel", model_pb2.GetModelRequest, model_pb2.GetModelResponse)
GET_VERSION = Rpc("/tokenwire.v1.ModelService/GetVersion", model_pb2.GetVersionRequest, model_pb2.GetVersionResponse)

SERVICES = ("ChatService", "EmbeddingService", "GenerationService", "ModelService", "TokenizationService")
"""Services of `tokenwire.v1`, to which the retry policy applies."""


def stamp_timeout(request: Any, seconds: float) -> None:
    """Writes what is left of the deadline into the request's `timeout`, where it has one.

    A proxy passes a deadline's end on but not its value, so the server reads the field. At least 1 ms: 0 is refused.
    """
    if "timeout" in request.DESCRIPTOR.fields_by_name:
        request.timeout.FromMilliseconds(max(1, int(seconds * 1000)))
