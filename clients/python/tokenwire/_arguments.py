"""The keyword arguments of the calls. Names, meanings and ranges are those of the contract's fields.

None is the same as leaving the argument out: the field stays unset and the server's default holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, sampling_pb2

Content = str | chat_pb2.ContentPart | Sequence[str | chat_pb2.ContentPart]
"""What one message says: a text, a part, or a list of both."""

Messages = str | Sequence[chat_pb2.ChatMessage | Mapping[str, Any]]
"""A conversation: one user message as text, or a list, oldest first. A mapping has `role` ("system", "developer",
"user", "assistant" or "tool") and any of `content`, `name`, `tool_calls`, `tool_call_id` and `reasoning`."""

Prompt = str | Sequence[int] | generation_pb2.TokenIds
"""A prompt: text, or token ids taken as they are."""

Inputs = str | Sequence[str | Sequence[int] | generation_pb2.TokenIds | embedding_pb2.EmbedInput]
"""What to embed: one text, or a list of texts and of lists of token ids. A list of one input has one input."""


class CallArguments(TypedDict, total=False):
    """Arguments of every inference call."""

    model: str | None
    """Id of the model, or `model:adapter`. May be left out where the server has one model only."""
    priority: int | None
    """Order in the engine's queue where it schedules by priority: lower goes first. Default 0."""
    request_id: str | None
    """Name of this request in logs, errors and the response: `[A-Za-z0-9._-]`, at most 128. Default: the server's."""
    timeout: float | None
    """Seconds for the whole call with all its retries, above 0. Default: the client's."""


class SamplingArguments(TypedDict, total=False):
    """How tokens are chosen: the fields of `SamplingParams`."""

    max_tokens: int | None
    """Largest number of tokens of each output, at least 1. Default: what is left of the model's context."""
    min_tokens: int | None
    """Tokens before which nothing ends an output, 0 to `max_tokens`. Default 0."""
    temperature: float | None
    """Randomness, 0 (greedy) to 2. Default: the model's, else 1."""
    top_p: float | None
    """Nucleus sampling, above 0 to 1. Default: the model's, else 1 (off)."""
    top_k: int | None
    """Number of most likely tokens to choose from; -1 or 0 is off. Default: the model's, else off."""
    min_p: float | None
    """Smallest share of the most likely token's probability, 0 to 1. Default 0 (off)."""
    presence_penalty: float | None
    """-2 to 2. Default 0."""
    frequency_penalty: float | None
    """-2 to 2. Default 0."""
    repetition_penalty: float | None
    """Above 0, at most 10. Default 1 (off)."""
    seed: int | None
    """Seed of the random numbers. Default: none."""
    n: int | None
    """Number of outputs, 1 to 128. Default 1."""
    stop: str | Sequence[str] | None
    """Text, or at most 16 texts, that end an output."""
    stop_token_ids: Sequence[int] | None
    """At most 128 token ids that end an output."""
    include_stop_str_in_output: bool | None
    """Keeps the matched stop text. Default False."""
    ignore_eos: bool | None
    """Goes on after an end-of-sequence token. Default False."""
    bad_words: str | Sequence[str] | None
    """At most 128 words that must not come."""
    allowed_token_ids: Sequence[int] | None
    """The only token ids that may come, at most 4096. Default: all."""
    logit_bias: Mapping[int, float] | None
    """What is added to the logit of a token id, -100 to 100. At most 1024 entries."""
    truncate_prompt_tokens: int | None
    """Keeps only the last so many tokens of the prompt, at least 1. Default: no truncation."""
    skip_special_tokens: bool | None
    """Leaves special tokens out of the text. Default True."""
    spaces_between_special_tokens: bool | None
    """Puts spaces between special tokens that are kept. Default True."""


class OutputArguments(TypedDict, total=False):
    """What comes back: the fields of `OutputOptions`, and the forms of `StructuredOutput`, of which at most one."""

    logprobs: int | None
    """Number of most likely tokens to report at each position, 0 to 20. Default: no logprobs."""
    prompt_logprobs: int | None
    """The same for the prompt. Default: none."""
    return_token_ids: bool | None
    """Returns token ids of outputs and prompt. Default False."""
    return_text: bool | None
    """Returns text. Default True."""
    echo: bool | None
    """Puts the prompt before each output. Default False."""
    stream_interval: int | None
    """Smallest number of tokens in a delta but for the first and last, 1 to 1024. Default 1."""
    structured_output: sampling_pb2.StructuredOutput | None
    """What the output must conform to, as the contract's message."""
    json_schema: str | Mapping[str, Any] | None
    """A JSON Schema, as JSON text or as what `json.dumps` takes."""
    json_object: bool | None
    """Any JSON object. True, or left out."""
    regex: str | None
    """A regular expression that the whole output matches."""
    choice: Sequence[str] | sampling_pb2.ChoiceList | None
    """1 to 256 texts, one of which is the output."""
    grammar: str | None
    """A context-free grammar in EBNF."""
    structural_tag: str | None
    """A structural tag, as JSON text."""


class RoutingArguments(TypedDict, total=False):
    """Adapter and prefix cache."""

    adapter: str | None
    """LoRA adapter to apply, by its name in the server's catalogue. Default: none."""
    cache_salt: str | None
    """Keeps this prompt's prefix cache apart from that of other salts. At most 256 characters."""
    session_id: str | None
    """Groups requests that share a prefix. At most 256 characters."""


class GenerateArguments(CallArguments, SamplingArguments, OutputArguments, RoutingArguments, total=False):
    """Arguments of `generate` and `stream_generate`."""


class TemplateArguments(TypedDict, total=False):
    """What the chat template sees besides the messages."""

    tools: Sequence[chat_pb2.Tool] | None
    """Tools that the model may call, at most 128."""
    reasoning: chat_pb2.ReasoningOptions | None
    """How the model reasons, and whether the reasoning is sent."""
    template: chat_pb2.ChatTemplateOptions | None
    """How the chat template is applied."""


class ChatArguments(GenerateArguments, TemplateArguments, total=False):
    """Arguments of `chat` and `stream_chat`."""

    tool_choice: chat_pb2.ToolChoice | Literal["none", "auto", "required"] | None
    """Whether and which tool is called. Default: "auto" where there are tools, else "none"."""
    parallel_tool_calls: bool | None
    """Allows more than one tool call in a turn. Default True."""


class EmbedArguments(CallArguments, total=False):
    """Arguments of `embed`."""

    dimensions: int | None
    """Length of the vectors, at least 1, for models trained to be cut. Default: the model's own."""
    truncate_prompt_tokens: int | None
    """Keeps only the last so many tokens of each input, at least 1. Default: no truncation."""


class RenderArguments(TemplateArguments, total=False):
    """Arguments of `render_chat`."""

    model: str | None
    """Id of the model. May be left out where the server has one model only."""
    timeout: float | None
    """Seconds for the whole call with all its retries, above 0. Default: the client's."""
