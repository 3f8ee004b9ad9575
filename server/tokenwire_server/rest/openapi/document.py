"""Puts the document together: hand-written paths of the OpenAI surface, and the contract's from its descriptors."""

from __future__ import annotations

from typing import Any

from tokenwire_server.backend import contract_services
from tokenwire_server.rest.openapi.native import native_paths
from tokenwire_server.rest.openapi.openai import openai_schemas
from tokenwire_server.rest.openapi.schemas import SchemaBook

__all__ = ["build_document"]

# Path, tag, request, reply, whether it may stream.
_POSTS = (
    ("/v1/chat/completions", "Chat", "ChatCompletionRequest", "ChatCompletion", True),
    ("/v1/completions", "Completions", "CompletionRequest", "Completion", True),
    ("/v1/embeddings", "Embeddings", "EmbeddingRequest", "EmbeddingList", False),
    ("/v1/responses", "Responses", "ResponseRequest", "Response", True),
    ("/v1/messages", "Messages", "MessageRequest", "Message", True),
    ("/v1/messages/count_tokens", "Messages", "CountTokensRequest", "TokenCount", False),
    ("/tokenize", "Tokenization", "TokenizeRequest", "Tokens", False),
    ("/detokenize", "Tokenization", "DetokenizeRequest", "Detokenized", False),
)
_OPEN: list[Any] = [{}]
"""Security of what needs no key."""


def build_document(version: str) -> dict[str, Any]:
    """The document.

    Args:
        version: Of Tokenwire.
    """
    book = SchemaBook()
    native = native_paths(contract_services().values(), book)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tokenwire",
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {**_posts(), **_gets(), **native},
        "components": {
            "schemas": {**openai_schemas(), **dict(sorted(book.schemas.items()))},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _posts() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for path, tag, request, reply, streams in _POSTS:
        content: dict[str, Any] = {"application/json": {"schema": _schema(reply)}}
        if streams:
            content["text/event-stream"] = {"schema": {"type": "string"}}
        paths[path] = {
            "post": {
                "operationId": path.strip("/").replace("/", "_").replace("v1_", "create_"),
                "tags": [tag],
                "requestBody": {"required": True, "content": {"application/json": {"schema": _schema(request)}}},
                "responses": {
                    "200": {"description": "The reply.", "content": content},
                    "default": _failure("AnthropicError" if tag == "Messages" else "Error"),
                },
            }
        }
    return paths


def _gets() -> dict[str, Any]:
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    paths = {
        "/v1/models": _get("list_models", "Models", _json("ModelList")),
        "/v1/models/{model}": _get("get_model", "Models", _json("Model"), [model]),
        "/tokenizer_info": _get(
            "tokenizer_info", "Tokenization", _plain_json(), [model | {"in": "query", "required": False}]
        ),
    }
    for name in ("health", "readyz", "livez", "version"):
        paths[f"/{name}"] = _get(name, "Probes", _plain_json())
        paths[f"/{name}"]["get"]["security"] = _OPEN
    service = {"name": "service", "in": "query", "schema": {"type": "string"}}
    paths["/healthz"] = _get("healthz", "Probes", _plain_json(), [service])
    paths["/healthz"]["get"]["security"] = _OPEN
    paths["/metrics"] = _get("metrics", "Probes", {"text/plain": {"schema": {"type": "string"}}})
    return paths


def _get(name: str, tag: str, content: dict[str, Any], parameters: list[Any] | None = None) -> dict[str, Any]:
    responses = {"200": {"description": "The reply.", "content": content}, "default": _failure("Error")}
    return {"get": {"operationId": name, "tags": [tag], "parameters": parameters or [], "responses": responses}}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _schema(name)}}


def _plain_json() -> dict[str, Any]:
    return {"application/json": {"schema": {"type": "object"}}}


def _schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _failure(name: str) -> dict[str, Any]:
    return {"description": "An error.", "content": _json(name)}
