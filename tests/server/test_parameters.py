"""docs/parameters.md names every field of every request message, once, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, sampling_pb2

PAGE = Path(__file__).parents[2] / "docs" / "parameters.md"

MESSAGES: list[Descriptor] = [
    message.DESCRIPTOR
    for message in (
        sampling_pb2.SamplingParams,
        sampling_pb2.OutputOptions,
        sampling_pb2.StructuredOutput,
        chat_pb2.ChatRequest,
        chat_pb2.ChatMessage,
        chat_pb2.ContentPart,
        chat_pb2.FunctionTool,
        chat_pb2.ToolChoice,
        chat_pb2.ReasoningOptions,
        chat_pb2.ChatTemplateOptions,
        generation_pb2.GenerateRequest,
        embedding_pb2.EmbedRequest,
    )
]


def sections() -> dict[str, list[str]]:
    """Fields of each table, by the message that heads it."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        elif row := re.match(r"\| `(\w+)` \|", line):
            list(found.values())[-1].append(row[1])
    return found


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.name)
def test_every_field_stands_in_its_table(message: Descriptor) -> None:
    assert sections()[message.name] == [field.name for field in message.fields]


def test_no_table_is_about_nothing() -> None:
    assert set(sections()) == {message.name for message in MESSAGES}
