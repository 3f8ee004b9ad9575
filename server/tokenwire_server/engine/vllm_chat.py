"""Conversations at the vLLM edge: messages -> prompt, and text -> reasoning and tool-call deltas.

vLLM's own renderer, reasoning parsers, tool parsers and their grammars do the work; here is only the conversion between
the contract and what they take.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from tokenizers.decoders import DecodeStream
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.parser import ParserManager
from vllm.parser.abstract_parser import DelegatingParser
from vllm.renderers import ChatParams
from vllm.renderers.chat_utils import make_tool_call_id
from vllm.sampling_params import StructuredOutputsParams
from vllm.tool_parsers import ToolParser

from tokenwire.v1 import chat_pb2, output_pb2, tokenization_pb2
from tokenwire_server.engine.vllm_params import EventWriter, structured_outputs
from tokenwire_server.errors import StartError, StatusError

__all__ = ["ChatRules", "ChatTurn", "ChatWriter", "chat_params", "conversation"]

_ROLES = {
    chat_pb2.ROLE_SYSTEM: "system",
    chat_pb2.ROLE_DEVELOPER: "developer",
    chat_pb2.ROLE_USER: "user",
    chat_pb2.ROLE_ASSISTANT: "assistant",
    chat_pb2.ROLE_TOOL: "tool",
}

_EFFORTS = {
    chat_pb2.ReasoningOptions.EFFORT_NONE: "none",
    chat_pb2.ReasoningOptions.EFFORT_MINIMAL: "minimal",
    chat_pb2.ReasoningOptions.EFFORT_LOW: "low",
    chat_pb2.ReasoningOptions.EFFORT_MEDIUM: "medium",
    chat_pb2.ReasoningOptions.EFFORT_HIGH: "high",
}


_STREAMING = frozenset(
    {
        "deepseek_v3",
        "glm45",
        "granite",
        "hermes",
        "internlm",
        "kimi_k2",
        "llama3_json",
        "mistral",
        "openai",
        "pythonic",
        "qwen3_coder",
        "qwen3_xml",
    }
)
"""Tool parsers whose streamed calls the tests hold to the whole answer's, in every chunking. Calls of the others come
whole, at the end of the answer: some of vLLM's older ones lose or garble what they stream."""


def conversation(request: chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest) -> list[dict[str, Any]]:
    """The request's messages as vLLM's renderer takes them (OpenAI's message objects)."""
    return [_message(message) for message in request.messages]


def _message(message: chat_pb2.ChatMessage) -> dict[str, Any]:
    parts = [part.text for part in message.content]
    # A single text stays a string: templates that only know strings get it as it is.
    content: Any = parts[0] if len(parts) == 1 else [{"type": "text", "text": text} for text in parts]
    converted: dict[str, Any] = {"role": _ROLES[message.role], "content": content if parts else ""}
    if message.name:
        converted["name"] = message.name
    if message.tool_call_id:
        converted["tool_call_id"] = message.tool_call_id
    if message.reasoning:
        converted["reasoning"] = message.reasoning
    if message.tool_calls:
        converted["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.tool_calls
        ]
    return converted


def chat_params(request: chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest) -> ChatParams:
    """How the template is applied: its arguments, from the request's own, its reasoning switches and its tools."""
    template, reasoning = request.template, request.reasoning
    kwargs: dict[str, Any] = json_format.MessageToDict(template.kwargs) if template.HasField("kwargs") else {}
    if reasoning.effort:
        kwargs["reasoning_effort"] = _EFFORTS[reasoning.effort]
        kwargs.setdefault("enable_thinking", reasoning.effort != chat_pb2.ReasoningOptions.EFFORT_NONE)
    if reasoning.HasField("enabled"):
        # Qwen's, GLM's and most templates' name for the switch, and DeepSeek's and Granite's.
        kwargs["enable_thinking"] = kwargs["thinking"] = reasoning.enabled
    going_on = template.continue_final_message
    kwargs["add_generation_prompt"] = (
        template.add_generation_prompt if template.HasField("add_generation_prompt") else not going_on
    )
    kwargs["continue_final_message"] = going_on
    tools = _tools(request)
    if tools:
        kwargs["tools"] = tools
    return ChatParams(chat_template_kwargs=kwargs)


def _tools(request: chat_pb2.ChatRequest | tokenization_pb2.RenderChatRequest) -> list[dict[str, Any]]:
    """The tools that may be called, as OpenAI's tool objects: none with mode NONE, else the allowed ones."""
    allowed: Sequence[str] | None = None
    if isinstance(request, chat_pb2.ChatRequest):
        choice = request.tool_choice
        if choice.mode == chat_pb2.ToolChoice.MODE_NONE:
            return []
        allowed = choice.allowed.functions if choice.HasField("allowed") else None
    return [_tool(tool.function) for tool in request.tools if allowed is None or tool.function.name in allowed]


def _tool(function: chat_pb2.FunctionTool) -> dict[str, Any]:
    parameters = json.loads(function.parameters) if function.parameters else {"type": "object", "properties": {}}
    converted: dict[str, Any] = {"name": function.name, "parameters": parameters}
    if function.description:
        converted["description"] = function.description
    if function.HasField("strict"):
        converted["strict"] = function.strict
    return {"type": "function", "function": converted}


def _choice(request: chat_pb2.ChatRequest) -> str | dict[str, Any]:
    """OpenAI's form of `tool_choice`."""
    choice = request.tool_choice
    if choice.WhichOneof("choice") == "function":
        return {"type": "function", "function": {"name": choice.function}}
    mode = choice.allowed.mode if choice.HasField("allowed") else choice.mode
    if mode == chat_pb2.ToolChoice.MODE_NONE or not request.tools:
        return "none"
    return "required" if mode == chat_pb2.ToolChoice.MODE_REQUIRED else "auto"


class _GrammarToolParser(ToolParser):  # type: ignore[misc]  # vLLM is not typed here
    """For models without a tool parser: forced calls come as JSON by grammar, which needs no model's own syntax."""


class _GrammarParser(DelegatingParser):  # type: ignore[misc]  # vLLM is not typed here
    tool_parser_cls = _GrammarToolParser


@dataclass
class ChatTurn:
    """How one request is asked and its answer read."""

    make_parser: Callable[[], Any] | None = None
    """Makes vLLM's parser of one choice; None where text is content."""
    openai: ChatCompletionRequest | None = None
    """The request as vLLM's parsers take it, adjusted by them."""
    structured: StructuredOutputsParams | None = None
    """What the output must conform to, the parsers' own grammar included."""
    knobs: dict[str, Any] = field(default_factory=dict)
    """SamplingParams that the parser needs otherwise than the request says."""
    forced: bool = False
    """Whether a call is forced. Its arguments then stream as the model writes them, and are read so when unary too:
    vLLM's other way writes them anew, and the two would differ in white space."""
    named: str = ""
    """The one function that is forced by name."""
    has_tools: bool = False
    """Whether there is a tool that may be called."""
    whole_calls: bool = False
    """Whether calls come whole, at the end: the parser is not known to stream them right."""
    single_call: bool = False
    """Whether calls after the first are left out."""
    hide_reasoning: bool = False
    """Whether reasoning is counted but not sent."""
    parser_kwargs: dict[str, Any] | None = None
    """`reasoning_parser_kwargs` of vLLM's engine."""

    tokenizer: Any = None
    """The model's, to tell the tokens of a merged delta apart."""

    def decoder(self, prompt_ids: list[int]) -> Callable[[int], str]:
        """Returns a function from the next token's id to the text that it adds, as vLLM's detokenizer has it."""
        backend = getattr(self.tokenizer, "_tokenizer", None)
        if backend is None:  # not one of the tokenizers library: deltas stay as they are
            return lambda _token: ""
        stream = DecodeStream(ids=prompt_ids, skip_special_tokens=self.knobs["skip_special_tokens"])
        return lambda token: stream.step(backend, token) or ""

    def reasoning_ended(self, prompt_ids: list[int]) -> bool | None:
        """VLLM's `reasoning_ended`: whether a grammar holds from the first token."""
        if self.make_parser is None or self.openai is None:
            return None
        ended: bool | None = self.openai.resolve_reasoning_ended(self.make_parser(), prompt_ids)
        return ended


class ChatRules:
    """What a model's configuration says about reading its answers.

    Args:
        tokenizer: The model's.
        model_config: vLLM's.
        tool_parser: vLLM's name of the tool parser (`engine_kwargs.tool_call_parser`), or None.
        reasoning_parser: vLLM's name of the reasoning parser (`engine_kwargs.reasoning_parser`), or None.

    Raises:
        StartError: vLLM knows no such parser, or it does not fit the tokenizer.
    """

    def __init__(
        self, tokenizer: Any, model_config: Any, *, tool_parser: str | None, reasoning_parser: str | None
    ) -> None:
        self._tokenizer = tokenizer
        self._model_config = model_config
        self._auto = tool_parser is not None
        self.reasoning = reasoning_parser is not None
        try:
            self._parser = ParserManager.get_parser(
                tool_parser_name=tool_parser,
                reasoning_parser_name=reasoning_parser,
                enable_auto_tools=True,
                is_harmony=getattr(model_config.hf_config, "model_type", None) == "gpt_oss",
                tokenizer=tokenizer,
            )
        except (TypeError, KeyError, ValueError) as error:
            names = f"tool_call_parser {tool_parser!r}, reasoning_parser {reasoning_parser!r}"
            raise StartError(f"engine_kwargs: {names}: {str(error).splitlines()[0]}") from error
        tools = getattr(self._parser, "tool_parser_cls", None)
        self._whole_calls = tool_parser not in _STREAMING and not getattr(tools, "engine_based_streaming", False)
        self._forced = self._parser if self._auto else self._grammar_parser()

    def _grammar_parser(self) -> type[Any]:
        """Parser for forced calls on a model that has no tool parser, with its reasoning parser where it has one."""
        reasoning = self._parser.reasoning_parser_cls if self._parser is not None else None
        return type("_ForcedParser", (_GrammarParser,), {"reasoning_parser_cls": reasoning})

    def turn(self, request: chat_pb2.ChatRequest, params: ChatParams) -> ChatTurn:
        """How this request is asked and read.

        Raises:
            StatusError: FEATURE_UNSUPPORTED for `auto` without a tool parser and for a reasoning budget without a
                reasoning parser; INVALID_FIELD for tools that vLLM refuses.
        """
        structured = structured_outputs(request.structured_output)
        choice = _choice(request)
        if choice == "auto" and not self._auto:
            text = "needs a tool parser: set engine_kwargs.tool_call_parser in the model's config, or use REQUIRED"
            raise StatusError.unsupported("tool_choice" if request.HasField("tool_choice") else "tools", text)
        if request.reasoning.HasField("max_tokens") and not self.reasoning:
            text = "needs a reasoning parser: set engine_kwargs.reasoning_parser in the model's config"
            raise StatusError.unsupported("reasoning.max_tokens", text)
        parser = self._forced if choice not in ("auto", "none") else self._parser
        if parser is None:
            return ChatTurn(structured=structured)
        return self._parsed_turn(request, params, parser, choice, structured)

    def _parsed_turn(
        self,
        request: chat_pb2.ChatRequest,
        params: ChatParams,
        parser: type[Any],
        choice: str | dict[str, Any],
        structured: StructuredOutputsParams | None,
    ) -> ChatTurn:
        single = request.HasField("parallel_tool_calls") and not request.parallel_tool_calls
        hide = request.reasoning.HasField("include") and not request.reasoning.include
        forced = choice not in ("auto", "none")
        tools = params.chat_template_kwargs.get("tools")
        if tools and (forced or structured is not None):
            # Unless told so, vLLM leaves a forced call's arguments free where the family's syntax makes the grammar,
            # and makes the grammar of a format alone, which no call fits.
            tools = [{**tool, "function": {"strict": True, **tool["function"]}} for tool in tools]
        try:
            openai = ChatCompletionRequest(
                messages=conversation(request),
                tools=tools,
                tool_choice=choice if tools else "none",
                parallel_tool_calls=not single,
                structured_outputs=structured,
                include_reasoning=not hide,
                skip_special_tokens=not request.sampling.HasField("skip_special_tokens")
                or request.sampling.skip_special_tokens,
                chat_template_kwargs=params.chat_template_kwargs,
            )
        except ValueError as error:
            raise StatusError.field("tools", "are not accepted by the engine") from error

        def make_parser() -> Any:
            return parser(
                self._tokenizer,
                openai.tools,
                chat_template_kwargs=params.chat_template_kwargs,
                model_config=self._model_config,
            )

        try:
            openai = make_parser().adjust_request(openai)
            structured = openai.extract_structured_outputs()
        except (ValueError, TypeError, KeyError) as error:
            raise StatusError.field("tools", "have a schema that the engine cannot enforce") from error
        knobs: dict[str, Any] = {"skip_special_tokens": openai.skip_special_tokens}
        if request.reasoning.HasField("max_tokens"):
            knobs["thinking_token_budget"] = request.reasoning.max_tokens
        return ChatTurn(
            make_parser=make_parser,
            openai=openai,
            structured=structured,
            knobs=knobs,
            tokenizer=self._tokenizer,
            forced=forced,
            named=request.tool_choice.function,
            has_tools=bool(tools) and choice != "none",
            whole_calls=choice == "auto" and self._whole_calls,
            single_call=single,
            hide_reasoning=hide,
            parser_kwargs={"chat_template_kwargs": params.chat_template_kwargs} if self.reasoning else None,
        )


def _call_id(made: str) -> str:
    """VLLM's own ids begin with `chatcmpl-tool-`, OpenAI's with `call_`; ids of a model's syntax stay as they are."""
    return made.replace("chatcmpl-tool-", "call_", 1)


def _before_call(text: str) -> str:
    """Text that a call follows: the line breaks between them belong to the call's syntax, a space does not."""
    return text.rstrip("\r\n")


class ChatWriter(EventWriter[chat_pb2.StreamChatResponse]):
    """An EventWriter that reads each choice with vLLM's parser: reasoning, content and tool calls apart."""

    def __init__(self, turn: ChatTurn, make_parser: Callable[[], Any], *, stream: bool, **kwargs: Any) -> None:
        super().__init__(chat_pb2.StreamChatResponse, **kwargs)
        self._turn = turn
        self._make_parser = make_parser
        self._stream = stream
        self._parsers: dict[int, Any] = {}
        self._streams: dict[int, Callable[[int], str]] = {}
        self._texts: dict[int, str] = {}
        self._held: dict[int, str] = {}
        self._ids: dict[int, list[int]] = {}
        self._called: set[int] = set()
        self._spoken: set[int] = set()
        self._prompt_ids: list[int] = []

    def write(self, out: RequestOutput) -> Iterator[chat_pb2.StreamChatResponse]:
        """Events of one RequestOutput."""
        if not self._prompt_ids:
            self._prompt_ids = list(out.prompt_token_ids or ())
        yield from super().write(out)

    def reasoning_token_count(self) -> int:
        """Reasoning tokens of all choices."""
        return sum(map(self._count_reasoning, self._ids.values()))

    def _count_reasoning(self, ids: list[int]) -> int:
        parser = self._make_parser()  # a fresh one: one that has streamed counts only what it kept
        count = int(parser.count_reasoning_tokens(ids))
        reader = parser.reasoning_parser
        if count or reader is None or not reader.is_reasoning_end(ids):
            return count
        # A template that opens the reasoning itself leaves the output with an end and no beginning.
        return max(0, len(ids) - len(reader.extract_content_ids(ids)) - 1)

    def _delta(self, part: CompletionOutput) -> chat_pb2.StreamChatResponse | None:
        index = part.index
        parser = self._parsers.get(index)
        if parser is None:
            parser = self._parsers[index] = self._make_parser()
            parser.set_prompt_token_ids(self._prompt_ids)
        self._ids.setdefault(index, []).extend(part.token_ids)
        event = chat_pb2.StreamChatResponse()
        delta = event.delta
        delta.index = index
        if self._stream:
            self._texts[index] = self._texts.get(index, "") + part.text
            self._read_delta(parser, part, delta)
            if part.finish_reason is not None:
                self._complete(index, delta)
        else:
            self._read_whole(part.text, list(part.token_ids), delta)
        if self._turn.named and part.finish_reason == "length" and not delta.tool_calls and index not in self._called:
            # Cut before the model's own syntax came to the name, which is known: a call with no arguments yet.
            delta.tool_calls.add(index=0, id=_call_id(make_tool_call_id()), name=self._turn.named)
        if delta.tool_calls:
            self._called.add(index)
        if not self._turn.hide_reasoning:
            # Hidden reasoning must not come back as ids or as logprobs.
            self._details(part, delta)
        elif delta.reasoning:
            delta.ClearField("reasoning")
        told = delta.content or delta.reasoning or delta.tool_calls or delta.token_ids or delta.logprobs
        return event if told else None

    def _read_delta(self, parser: Any, part: CompletionOutput, delta: chat_pb2.ChatDelta) -> None:
        """Feeds the parser token by token.

        Many of vLLM's lose calls when several tokens come at once, as they do while the reader lags.
        """
        pieces = self._pieces(part)
        for number, (text, ids) in enumerate(pieces):
            message = parser.parse_delta(
                text,
                ids,
                self._turn.openai,
                prompt_token_ids=self._prompt_ids,
                finished=part.finish_reason is not None and number == len(pieces) - 1,
            )
            if message is not None:
                self._add_message(message, delta)

    def _pieces(self, part: CompletionOutput) -> list[tuple[str, list[int]]]:
        """A delta as single tokens with their texts.

        As it is where those do not join to its text, as they do not while a stop text may still match.
        """
        ids = list(part.token_ids)
        stream = self._streams.get(part.index)
        if stream is None:
            stream = self._streams[part.index] = self._turn.decoder(self._prompt_ids)
        texts = [stream(token) for token in ids]
        if len(ids) < 2:
            return [(part.text, ids)]
        if part.finish_reason == "stop" and "".join(texts) != part.text:
            texts[-1] = ""  # the token that ended it has no part in the text
        if "".join(texts) != part.text:
            return [(part.text, ids)]
        return [(text, [token]) for text, token in zip(texts, ids, strict=True)]

    def _add_message(self, message: Any, delta: chat_pb2.ChatDelta) -> None:
        self._add_content(message.content or "", delta)
        delta.reasoning += message.reasoning or ""
        for call in message.tool_calls or ():
            if self._turn.whole_calls or (self._turn.single_call and call.index > 0):
                continue
            held = self._held.pop(delta.index, "")
            if delta.index in self._spoken:
                delta.content += _before_call(held)
            function = call.function
            name, arguments = (function.name or "", function.arguments or "") if function else ("", "")
            last = delta.tool_calls[-1] if delta.tool_calls else None
            if last is not None and last.index == call.index and not (call.id or name):
                last.arguments += arguments
            else:
                delta.tool_calls.add(index=call.index, id=_call_id(call.id or ""), name=name, arguments=arguments)

    def _add_content(self, text: str, delta: chat_pb2.ChatDelta) -> None:
        """Holds white space back where a call may follow, see `_before_call`."""
        if not self._turn.has_tools:
            delta.content += text
            return
        text = self._held.pop(delta.index, "") + text
        shown = text.rstrip()
        delta.content += shown
        if shown:
            self._spoken.add(delta.index)
        if len(shown) < len(text):
            self._held[delta.index] = text[len(shown) :]

    def _complete(self, index: int, delta: chat_pb2.ChatDelta) -> None:
        """At the end of a choice: calls that the parser does not stream, and white space that no call followed."""
        called = index in self._called or bool(delta.tool_calls)
        if self._turn.has_tools and not called:
            whole = chat_pb2.ChatDelta(index=index)
            self._read_whole(self._texts[index], self._ids[index], whole)
            delta.tool_calls.extend(whole.tool_calls)
            called = bool(whole.tool_calls)
        held = self._held.pop(index, "")
        if not called:
            delta.content += held
        elif index in self._spoken:
            delta.content += _before_call(held)

    def _read_whole(self, text: str, ids: list[int], delta: chat_pb2.ChatDelta) -> None:
        reasoning, content, calls = self._make_parser().parse(
            text, self._turn.openai, enable_auto_tools=True, model_output_token_ids=ids
        )
        content = content or ""
        if calls:
            content = _before_call(content) if content.strip() else ""
        delta.content = content
        delta.reasoning = reasoning or ""
        for number, call in enumerate(calls or ()):
            if self._turn.single_call and number > 0:
                break
            call_id = _call_id(call.id or make_tool_call_id())
            delta.tool_calls.add(index=number, id=call_id, name=call.name, arguments=call.arguments)

    def _reason(self, part: CompletionOutput) -> output_pb2.FinishReason.ValueType:
        reason = super()._reason(part)
        if reason == output_pb2.FINISH_REASON_STOP and part.index in self._called:
            return output_pb2.FINISH_REASON_TOOL_CALLS
        return reason
