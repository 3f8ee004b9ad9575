"""Parameters that chat and completions share: sampling, output options, structured output, identity of the call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from buf.validate import validate_pb2
from tokenwire.v1 import chat_pb2, generation_pb2, sampling_pb2
from tokenwire_server.backend import sane_request_id
from tokenwire_server.rest.openai.fields import INT32_MAX, INT32_MIN, Fields, check_range, invalid, unsupported

__all__ = ["read_call_fields", "read_sampling", "read_scalar", "read_some_sampling", "read_stop", "refuse_unsupported"]

_INT64 = (-(2**63), 2**63 - 1)
_FIELDS = sampling_pb2.SamplingParams.DESCRIPTOR.fields_by_name
_MAX_STOPS = 4
_MAX_BIASES = 1024
# How many wrong keys an error names, and how much of each.
_SHOWN_KEYS, _SHOWN_KEY = 4, 32


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or boolean of the contract, with the range that its protovalidate rule gives."""

    name: str
    type: int
    low: float | None
    high: float | None
    low_open: bool

    @classmethod
    def of(cls, field: FieldDescriptor) -> Scalar:
        """Reads the rule of a field, so that a range is written once, in the contract."""
        rules = field.GetOptions().Extensions[validate_pb2.field]
        kind = rules.WhichOneof("type")
        rule: Any = getattr(rules, kind) if kind else None
        lower = rule.WhichOneof("greater_than") if rule is not None and field.type != field.TYPE_BOOL else None
        upper = rule.WhichOneof("less_than") if rule is not None and field.type != field.TYPE_BOOL else None
        low = getattr(rule, lower) if lower else None
        high = getattr(rule, upper) if upper else None
        if field.type in (field.TYPE_INT32, field.TYPE_INT64):
            first, last = _INT64 if field.type == field.TYPE_INT64 else (INT32_MIN, INT32_MAX)
            low, high = first if low is None else low, last if high is None else high
        return cls(field.name, field.type, low, high, lower == "gt")


_SCALARS = tuple(Scalar.of(field) for field in _FIELDS.values() if not field.is_repeated and field.name != "max_tokens")
_MAX_TOKENS = Scalar.of(_FIELDS["max_tokens"])

_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("use_beam_search", (False,)),
    ("length_penalty", (1,)),
    ("early_stopping", (False,)),
    ("watermarking", (False,)),
    ("truncation_side", ("left",)),
    ("logprob_token_ids", ([],)),
    ("return_tokens_as_token_ids", (False,)),
    ("return_token_offsets", (False,)),
    ("return_prompt_text", (False,)),
    ("return_mm_kwargs", (False,)),
    ("routed_experts_prompt_start", (0,)),
    ("prompt_embeds", ()),
    ("suffix", ("",)),
    ("chat_template", ()),
    ("documents", ()),
    ("mm_payload", ()),
    ("media_io_kwargs", ()),
    ("mm_processor_kwargs", ()),
    ("kv_transfer_params", ()),
    ("ec_transfer_params", ()),
    ("vllm_xargs", ()),
    ("repetition_detection", ()),
    ("guided_decoding_backend", ()),
    ("guided_whitespace_pattern", ()),
    ("audio", ()),
    ("modalities", (["text"],)),
    ("web_search_options", ()),
    ("moderation", ()),
)
"""Parameters that change the answer and are not served, each with the values that ask for nothing."""


def refuse_unsupported(fields: Fields, more: Iterable[tuple[str, tuple[Any, ...]]] = ()) -> None:
    """Refuses by name what would change the answer and cannot be honoured.

    Args:
        fields: The request.
        more: Further parameters of one endpoint, each with the values that ask for nothing.
    """
    for name, harmless in (*_UNSUPPORTED, *more):
        value = fields.get(name)
        if value is not None and value not in harmless:
            raise unsupported(name)


def read_scalar(fields: Fields, message: Message, scalar: Scalar, param: str | None = None) -> None:
    """Sets one field of `message` from the parameter of its name, or `param`."""
    name = param or scalar.name
    if fields.get(name) is None:
        return
    value: bool | float | None
    if scalar.type == FieldDescriptor.TYPE_BOOL:
        value = fields.boolean(name)
    elif scalar.type == FieldDescriptor.TYPE_DOUBLE:
        value = fields.number(name, scalar.low, scalar.high, low_open=scalar.low_open)
    else:
        value = fields.integer(name, *(None if end is None else int(end) for end in (scalar.low, scalar.high)))
    setattr(message, scalar.name, value)


def read_sampling(fields: Fields, sampling: sampling_pb2.SamplingParams) -> None:
    """Everything of `SamplingParams`: OpenAI's and vLLM's names are the contract's."""
    for scalar in _SCALARS:
        read_scalar(fields, sampling, scalar)
    for param in ("max_tokens", "max_completion_tokens"):  # the newer name wins
        read_scalar(fields, sampling, _MAX_TOKENS, param)
    if sampling.HasField("max_tokens") and sampling.min_tokens > sampling.max_tokens:
        raise invalid("min_tokens", "Invalid 'min_tokens': must not be above 'max_tokens'.", "integer_above_max_value")
    read_stop(fields, sampling)
    sampling.stop_token_ids.extend(fields.integers("stop_token_ids") or ())
    sampling.allowed_token_ids.extend(fields.integers("allowed_token_ids") or ())
    sampling.bad_words.extend(fields.strings("bad_words") or ())
    _read_logit_bias(fields, sampling)
    _check_best_of(fields, sampling.n if sampling.HasField("n") else 1)


def read_some_sampling(fields: Fields, sampling: sampling_pb2.SamplingParams, names: Iterable[str]) -> None:
    """The numbers and booleans of `SamplingParams` with those names, `max_tokens` not among them."""
    for scalar in _SCALARS:
        if scalar.name in names:
            read_scalar(fields, sampling, scalar)


def read_stop(fields: Fields, sampling: sampling_pb2.SamplingParams) -> None:
    """`stop`: a text or at most 4."""
    value = fields.get("stop")
    if value is None:
        return
    if not isinstance(value, str | list):
        fields.wrong_type("stop", "a string or an array of strings")
    stops = [value] if isinstance(value, str) else fields.strings("stop", _MAX_STOPS) or []
    if "" in stops:
        raise invalid("stop", "Invalid 'stop': empty string. Expected a string with minimum length 1.", "empty_string")
    sampling.stop.extend(stops)


def _read_logit_bias(fields: Fields, sampling: sampling_pb2.SamplingParams) -> None:
    biases = fields.object("logit_bias")
    if biases is None:
        return
    if len(biases.data) > _MAX_BIASES:
        raise invalid(
            "logit_bias", f"Invalid 'logit_bias': at most {_MAX_BIASES} entries.", "object_above_max_properties"
        )
    wrong = [key for key in biases.data if not (key.isascii() and key.isdigit() and int(key[:11]) <= INT32_MAX)]
    if wrong:
        shown = ", ".join(repr(key[:_SHOWN_KEY]) for key in wrong[:_SHOWN_KEYS])
        raise invalid("logit_bias", f"Invalid key in 'logit_bias': expected token ids, but got {shown}.", "invalid_key")
    for key, value in biases.data.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            fields.wrong_type("logit_bias", "an object of numbers")
        check_range("logit_bias", value, -100, 100, decimal=True)
        sampling.logit_bias[int(key)] = value


def _check_best_of(fields: Fields, n: int) -> None:
    best_of = fields.integer("best_of", 1)
    if best_of is not None and best_of < n:
        raise invalid("best_of", "Invalid 'best_of': expected a value of at least 'n'.", "integer_below_min_value")
    if best_of is not None and best_of > n:
        raise unsupported("best_of", "above 'n' is not supported by this server")


def read_call_fields(
    fields: Fields, request: chat_pb2.ChatRequest | generation_pb2.GenerateRequest, *, stream: bool
) -> None:
    """What vLLM adds to a call: priority, cache salt, session, request id, and what comes back."""
    priority = fields.integer("priority", INT32_MIN)
    if priority is not None:
        request.priority = priority
    request.cache_salt = fields.string("cache_salt") or ""
    request.session_id = fields.string("session_id") or ""
    request_id = fields.string("request_id") or ""
    if request_id and sane_request_id(request_id) is None:
        raise invalid("request_id", "Invalid 'request_id': expected 1 to 128 of the characters A-Za-z0-9._-.")
    request.request_id = request_id
    output = request.output
    prompt_logprobs = fields.integer("prompt_logprobs", 0, 20)
    if prompt_logprobs is not None:
        if stream:
            raise unsupported("prompt_logprobs", "is not available when 'stream' is true")
        output.prompt_logprobs = prompt_logprobs
    interval = fields.integer("stream_interval", 1, 1024)
    if interval is not None:
        output.stream_interval = interval
    for name in ("return_token_ids", "echo"):
        if fields.boolean(name):
            setattr(output, name, True)
