"""`/tokenize`, `/detokenize` and `/tokenizer_info`, in vLLM's shapes."""

from __future__ import annotations

from typing import Any

from tokenwire.v1 import chat_pb2, tokenization_pb2
from tokenwire_server.rest.openai.chat import read_template
from tokenwire_server.rest.openai.fields import Fields, unsupported
from tokenwire_server.rest.openai.messages import read_messages
from tokenwire_server.rest.openai.sampling import refuse_unsupported
from tokenwire_server.rest.openai.tools import read_tools

__all__ = ["info_reply", "read_detokenize", "read_tokenize", "tokenize_reply"]

_Tokenize = tokenization_pb2.TokenizeRequest | tokenization_pb2.RenderChatRequest


def read_tokenize(body: dict[str, Any]) -> tuple[_Tokenize, bool]:
    """The request of either form, `prompt` or `messages`, and whether the tokens' texts are wanted.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    model = fields.string("model") or ""
    refuse_unsupported(fields)
    strings = bool(fields.boolean("return_token_strs"))
    special = fields.boolean("add_special_tokens")
    if fields.get("messages") is None:
        request = tokenization_pb2.TokenizeRequest(
            model=model, text=fields.required_string("prompt"), return_tokens=strings
        )
        if special is not None:
            request.add_special_tokens = special
        return request, strings
    if special:
        raise unsupported("add_special_tokens", "beside 'messages' is not supported by this server")
    chat = chat_pb2.ChatRequest()
    read_template(fields, chat)
    read_tools(Fields({"tools": fields.get("tools")}), chat)
    render = tokenization_pb2.RenderChatRequest(model=model, messages=read_messages(fields), tools=chat.tools)
    if chat.HasField("template"):
        render.template.CopyFrom(chat.template)
    return render, strings


def tokenize_reply(ids: Any, max_model_len: int, strings: Any) -> dict[str, Any]:
    """The reply; `strings` is None where they were not asked."""
    tokens = list(ids)
    texts = None if strings is None else list(strings)
    return {"count": len(tokens), "max_model_len": max_model_len, "tokens": tokens, "token_strs": texts}


def read_detokenize(body: dict[str, Any]) -> tokenization_pb2.DetokenizeRequest:
    """The request.

    Raises:
        OpenAIError: 400 naming the parameter.
    """
    fields = Fields(body)
    tokens = fields.integers("tokens")
    if tokens is None:
        raise fields.missing("tokens")
    return tokenization_pb2.DetokenizeRequest(model=fields.string("model") or "", token_ids=tokens)


def info_reply(info: tokenization_pb2.GetTokenizerInfoResponse) -> dict[str, Any]:
    """What `tokenizer_config.json` says, as far as the contract has it."""
    reply: dict[str, Any] = {
        "tokenizer_class": info.tokenizer_class,
        **dict(info.special_tokens),
        "model_max_length": info.max_model_len,
        "vocab_size": info.vocab_size,
        "eos_token_ids": list(info.eos_token_ids),
    }
    if info.chat_template:
        reply["chat_template"] = info.chat_template
    return reply
