"""The plain client with the oldest versions that it allows, warnings as errors: `make check` runs it on its own."""

from __future__ import annotations

import sys

import tokenwire
from tokenwire import testing
from tokenwire.admin.v1 import admin_pb2_grpc
from tokenwire.v1 import chat_pb2_grpc, embedding_pb2_grpc, generation_pb2_grpc, model_pb2_grpc, tokenization_pb2_grpc

STUBS = (
    admin_pb2_grpc.AdminServiceStub,
    chat_pb2_grpc.ChatServiceStub,
    embedding_pb2_grpc.EmbeddingServiceStub,
    generation_pb2_grpc.GenerationServiceStub,
    model_pb2_grpc.ModelServiceStub,
    tokenization_pb2_grpc.TokenizationServiceStub,
)

if __name__ == "__main__":
    with testing.FakeServer() as server, tokenwire.Client(server.target) as client:
        answer = client.chat("hello").choices[0].content
        with client.stream_chat("hello") as stream:
            list(stream)
    heavy = {"pydantic", "fastapi", "ray", "vllm"} & set(sys.modules)
    sys.exit(0 if answer and stream.text == answer and all(STUBS) and not heavy else 1)
