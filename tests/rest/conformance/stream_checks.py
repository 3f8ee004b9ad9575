"""The vocabulary of `check.sse`, for a stream of chat or completion chunks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.rest.conformance.checks import fail_unless
from tests.rest.conformance.target import Answer

__all__ = ["PlainReply", "Stream", "check_stream"]

PlainReply = Mapping[str, Any] | None
"""The reply to the same request without streaming, for the rules that compare."""


class Stream:
    """The chunks of a stream by choice."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.lines = answer.data_lines()
        self.chunks = answer.chunks()
        self.choices: dict[int, list[Any]] = {}
        for chunk in self.chunks:
            for choice in chunk.get("choices", ()):
                self.choices.setdefault(choice["index"], []).append(choice)

    def deltas(self, index: int = 0) -> list[Any]:
        """Deltas of one choice, with `text` of completions as content."""
        return [one.get("delta", {"content": one.get("text")}) for one in self.choices.get(index, ())]

    def text(self, index: int = 0) -> str:
        """Joined content of one choice."""
        return "".join(delta.get("content") or "" for delta in self.deltas(index))

    def finish(self, index: int = 0) -> list[str]:
        """Finish reasons of one choice."""
        return [one["finish_reason"] for one in self.choices.get(index, ()) if one.get("finish_reason") is not None]

    def tool_deltas(self) -> list[Any]:
        """Tool call deltas of the first choice."""
        return [call for delta in self.deltas() for call in delta.get("tool_calls") or ()]

    def usages(self) -> list[Any]:
        """Usage objects, in order."""
        return [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]


def check_stream(answer: Answer, wanted: Mapping[str, Any], plain: PlainReply, models: Mapping[str, str]) -> None:
    """Everything that `check.sse` asks."""
    fail_unless(answer.is_stream, f"no stream: {answer.headers.get('content-type')}")
    stream = Stream(answer)
    for rule in wanted.get("rules", ()):
        _RULES[rule](stream, plain)
    if "choices" in wanted:
        fail_unless(len(stream.choices) == wanted["choices"], f"{len(stream.choices)} choices")
    if "indexes" in wanted:
        fail_unless(sorted(stream.choices) == wanted["indexes"], f"indexes {sorted(stream.choices)}")
    if "text" in wanted:
        fail_unless(stream.text() == wanted["text"], f"text {stream.text()!r}")
    if "finish_reason" in wanted:
        fail_unless(stream.finish() == [wanted["finish_reason"]], f"finish reasons {stream.finish()}")
    if "model" in wanted:
        name = models.get(wanted["model"].removeprefix("$"), wanted["model"])
        fail_unless(all(chunk["model"] == name for chunk in stream.chunks), f"a chunk without model {name}")
    if "never_contains" in wanted:
        # Of the deltas, as the cases' words have it: vLLM's `stop_reason` beside the finish may name the stop text.
        sent = json.dumps([stream.deltas(index) for index in stream.choices], ensure_ascii=False)
        fail_unless(wanted["never_contains"] not in sent, f"{wanted['never_contains']!r} was sent")
    if "min_comment_lines" in wanted:
        comments = [line for line in answer.text.split("\n") if line.startswith(":")]
        fail_unless(len(comments) >= wanted["min_comment_lines"], f"{len(comments)} comment lines")


def _done_last(stream: Stream, _: PlainReply) -> None:
    fail_unless(
        stream.lines and stream.lines[-1] == "[DONE]" and stream.lines.count("[DONE]") == 1, "no [DONE] at the end"
    )


def _no_done(stream: Stream, _: PlainReply) -> None:
    fail_unless("[DONE]" not in stream.lines, "[DONE] was sent")


def _one_finish(stream: Stream, _: PlainReply) -> None:
    fail_unless(stream.choices, "no choices")
    for index in stream.choices:
        fail_unless(len(stream.finish(index)) == 1, f"finish reasons of choice {index}: {stream.finish(index)}")


def _no_finish(stream: Stream, _: PlainReply) -> None:
    fail_unless(not any(stream.finish(index) for index in stream.choices), "a finish reason was sent")


def _unfinished_null(stream: Stream, _: PlainReply) -> None:
    for choices in stream.choices.values():
        fail_unless(
            all("finish_reason" in one and one["finish_reason"] != "" for one in choices), "no null finish_reason"
        )


def _finish_empty(stream: Stream, _: PlainReply) -> None:
    for choices in stream.choices.values():
        ends = [one["delta"] for one in choices if one["finish_reason"] is not None]
        fail_unless(ends and all(delta == {} for delta in ends), f"finish chunks hold {ends}")


def _equals_plain(stream: Stream, plain: PlainReply) -> None:
    if plain is None:
        raise AssertionError("no plain reply to compare with")
    for choice in plain["choices"]:
        index = choice["index"]
        text = choice["message"]["content"] or "" if "message" in choice else choice["text"]
        fail_unless(stream.text(index) == text, f"choice {index}: {stream.text(index)!r}, plain {text!r}")
        fail_unless(stream.finish(index) == [choice["finish_reason"]], f"finish of choice {index}")


def _error_last(stream: Stream, _: PlainReply) -> None:
    last = stream.chunks[-1]
    fail_unless(set(last) == {"error"} and set(last["error"]) == {"message", "type", "param", "code"}, f"last: {last}")
    fail_unless(json.loads(stream.lines[-1]) == last, "something came after the error")


def _usage_last(stream: Stream, _: PlainReply) -> None:
    last = stream.chunks[-1]
    fail_unless(last.get("choices") == [], f"choices of the last chunk: {last.get('choices')}")
    usage = last["usage"]
    counts = [usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    fail_unless(all(type(one) is int for one in counts) and counts[0] + counts[1] == counts[2], f"usage {usage}")


def _usage_plain(stream: Stream, plain: PlainReply) -> None:
    if plain is None:
        raise AssertionError("no plain reply to compare with")
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    mine, theirs = stream.usages()[-1], plain["usage"]
    fail_unless(all(mine[name] == theirs[name] for name in names), f"usage {mine}, plain {theirs}")


def _usage_grows(stream: Stream, _: PlainReply) -> None:
    counts = [usage["completion_tokens"] for usage in stream.usages()]
    fail_unless(len(counts) > 1 and counts == sorted(counts), f"completion tokens {counts}")


def _tool_deltas(stream: Stream, _: PlainReply) -> None:
    seen: list[int] = []
    fail_unless(stream.tool_deltas(), "no tool deltas")
    for call in stream.tool_deltas():
        index = call["index"]
        if index not in seen:
            fail_unless(index == len(seen), f"index {index} after {seen}")
            seen.append(index)
            fail_unless(str(call.get("id", "")).startswith("call_") and call.get("type") == "function", f"first {call}")
            fail_unless(call["function"].get("name"), f"first delta without a name: {call}")
        else:
            fail_unless(set(call) <= {"index", "function"} and set(call["function"]) == {"arguments"}, f"later {call}")


def _arguments_string(stream: Stream, _: PlainReply) -> None:
    for call in stream.tool_deltas():
        function = call.get("function", {})
        fail_unless("arguments" not in function or isinstance(function["arguments"], str), f"{call}")


def _arguments_json(stream: Stream, _: PlainReply) -> None:
    joined: dict[int, str] = {}
    for call in stream.tool_deltas():
        joined[call["index"]] = joined.get(call["index"], "") + call["function"].get("arguments", "")
    fail_unless(joined, "no tool calls")
    for text in joined.values():
        json.loads(text)


def _content_first(stream: Stream, _: PlainReply) -> None:
    tools = False
    for delta in stream.deltas():
        tools = tools or bool(delta.get("tool_calls"))
        fail_unless(not (tools and delta.get("content")), "content after a tool delta")


def _no_empty_tail(stream: Stream, _: PlainReply) -> None:
    seen: set[int] = set()
    for call in stream.tool_deltas():
        later = call["index"] in seen
        seen.add(call["index"])
        fail_unless(not later or call["function"].get("arguments") != "", "an empty arguments delta")


def _both_reasonings(stream: Stream, _: PlainReply) -> None:
    found = [delta for delta in stream.deltas() if delta.get("reasoning") or delta.get("reasoning_content")]
    fail_unless(found, "no reasoning")
    fail_unless(all(one.get("reasoning") == one.get("reasoning_content") for one in found), "the two keys differ")


def _no_replacement(stream: Stream, _: PlainReply) -> None:
    fail_unless("\ufffd" not in stream.answer.text and "\\ufffd" not in stream.answer.text.lower(), "U+FFFD was sent")


def _no_line_breaks(stream: Stream, _: PlainReply) -> None:
    fail_unless(not any(one in stream.answer.text for one in "\u2028\u2029\u0085"), "a Unicode line break as it is")


_RULES: Mapping[str, Callable[[Stream, PlainReply], None]] = {
    "done_last": _done_last,
    "no_done": _no_done,
    "one_finish_per_choice": _one_finish,
    "no_finish_reason": _no_finish,
    "unfinished_is_null": _unfinished_null,
    "finish_chunk_empty_delta": _finish_empty,
    "equals_plain": _equals_plain,
    "error_event_last": _error_last,
    "usage_last": _usage_last,
    "usage_equals_plain": _usage_plain,
    "usage_monotonic": _usage_grows,
    "tool_deltas": _tool_deltas,
    "tool_arguments_string": _arguments_string,
    "tool_arguments_json": _arguments_json,
    "content_before_tools": _content_first,
    "no_empty_tail_arguments": _no_empty_tail,
    "reasoning_both_keys": _both_reasonings,
    "no_replacement_char": _no_replacement,
    "no_raw_unicode_line_breaks": _no_line_breaks,
}
