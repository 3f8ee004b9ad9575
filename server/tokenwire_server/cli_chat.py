"""The terminal commands that are clients: `tokenwire chat` and `tokenwire health`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc

import tokenwire
from tokenwire.v1 import chat_pb2

__all__ = ["chat", "health"]

_HELP = "/clear starts over, /quit leaves, /help shows this. Ctrl-C stops an answer, and leaves at the prompt."
_PROBE_TIMEOUT_S = 10.0
_INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended
# What a model writes must not steer the terminal: all control characters but tab and newline go.
_CONTROLS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if code not in (9, 10))


def chat(
    target: str, *, model: str, api_key: str, system: str, max_tokens: int | None, temperature: float | None
) -> int:
    """A conversation at the terminal, or one answer for each line where the input is not a terminal.

    Args:
        target: Address of a Tokenwire server, as for `tokenwire.Client`.
        model: Id of the model; "" where the server has one only.
        api_key: The API key, or "".
        system: Instructions for the whole conversation, or "".
        max_tokens: Largest number of tokens of an answer; None leaves it to the server.
        temperature: Randomness, 0 to 2; None leaves it to the model.

    Returns:
        The exit code: 0, or 1 where the server cannot be reached or refuses to talk. Without a terminal, any answer
        that fails ends the conversation with 1, and Ctrl-C with 130.
    """
    sampling: tokenwire.ChatArguments = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
    try:
        with tokenwire.Client(target, api_key=api_key) as client:
            served = client.models(timeout=_PROBE_TIMEOUT_S)
            talk = _Talk(client, sampling, system)
            if not sys.stdin.isatty():
                return talk.answer_lines()
            names = model or ", ".join(one.id for one in served)
            _note(f"{names} at {target}. {_HELP}")
            return talk.converse()
    except (tokenwire.TokenwireError, ValueError) as error:
        return _failed(error, target)
    except KeyboardInterrupt:
        return _INTERRUPTED


def health(target: str, service: str, timeout: float) -> int:
    """Asks a server for its health, as orchestrators do.

    Args:
        target: Address of a server with `grpc.health.v1`.
        service: What to ask about: "" for all, or the id of a model.
        timeout: Seconds to wait for the answer, above 0.

    Returns:
        0 when it is SERVING, else 1. Either way one line says what was found.
    """
    from grpc_health.v1 import health_pb2  # the cli extra; chat does without

    try:
        with tokenwire.channel(target) as channel:
            # Not before the connection stands: a server that starts up is given the time to.
            request = health_pb2.HealthCheckRequest(service=service)
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                health_pb2.HealthCheckRequest.SerializeToString,
                health_pb2.HealthCheckResponse.FromString,
            )
            answer = check(request, timeout=timeout, wait_for_ready=True)
    except grpc.RpcError as error:
        text = "no answer in time" if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else error.details()
        print(f"{target}: {error.code().name}: {text}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


@dataclass
class _Talk:
    """A conversation: what was said, and how to go on."""

    client: tokenwire.Client
    sampling: tokenwire.ChatArguments
    system: str
    history: list[chat_pb2.ChatMessage] = field(default_factory=list)

    def answer_lines(self) -> int:
        """One question for each line of the input; empty lines do not count."""
        for line in sys.stdin:
            if not line.strip():
                continue
            if line.strip() == "/quit":
                break
            if not self._commanded(line.strip()):
                self._answer(line.rstrip("\n"))
        return 0

    def converse(self) -> int:
        """Prompts and answers until the user leaves."""
        for line in _prompted():
            if line == "/quit":
                break
            if not line or self._commanded(line):
                continue
            try:
                self._answer(line)
            except tokenwire.TokenwireError as error:
                # A conversation outlives one failed answer; the question can be asked again.
                _failed(error)
        return 0

    def _commanded(self, line: str) -> bool:
        if line == "/clear":
            self.history.clear()
            _note("The conversation starts over.")
        elif line == "/help":
            _note(_HELP)
        else:
            return False
        return True

    def _answer(self, question: str) -> None:
        """Streams one answer to the output, and keeps question and answer unless it fails."""
        asked = _message(chat_pb2.ROLE_USER, question)
        opening = [_message(chat_pb2.ROLE_SYSTEM, self.system)] if self.system else []
        began = time.monotonic()
        first: float | None = None
        stopped = False
        with self.client.stream_chat([*opening, *self.history, asked], **self.sampling) as stream:
            try:
                for delta in stream:
                    if first is None:
                        first = time.monotonic()
                    _write(delta)
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise  # it is the whole program that is to stop
                # Leaving the block cancels the answer at the server.
                stopped = True
            finally:
                print(flush=True)
        response = stream.response
        if response.choices:
            self.history += [asked, tokenwire.message(response)]
        if stopped:
            _note("stopped")
        elif first is not None:
            _note(_pace(response.usage.output_token_count, first - began, time.monotonic() - first))


def _message(role: chat_pb2.Role.ValueType, text: str) -> chat_pb2.ChatMessage:
    return chat_pb2.ChatMessage(role=role, content=[chat_pb2.ContentPart(text=text)])


def _prompted() -> Iterator[str]:
    """Lines that the user types, until Ctrl-D, or Ctrl-C at the prompt."""
    with contextlib.suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 - gives `input` history and line editing
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        yield line.strip()


def _write(delta: chat_pb2.ChatDelta) -> None:
    """Writes new text as it comes; reasoning only where it can be told apart."""
    if delta.reasoning:
        _note(delta.reasoning.translate(_CONTROLS), end="")
    sys.stdout.write(delta.content.translate(_CONTROLS))
    sys.stdout.flush()


def _pace(tokens: int, first_s: float, rest_s: float) -> str:
    """Time to the first token, and tokens a second after it."""
    text = f"{tokens} tokens, first after {first_s * 1000:.0f} ms"
    return f"{text}, then {(tokens - 1) / rest_s:.1f} tokens/s" if tokens > 1 and rest_s > 0 else text


def _note(text: str, *, end: str = "\n") -> None:
    """Says something beside the answers: dimly on a terminal, and not at all elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console  # takes 60 ms to import, which scripts need not spend

        Console(highlight=False).print(text, style="dim", markup=False, soft_wrap=True, end=end)


def _failed(error: Exception, target: str = "") -> int:
    """Says in one line what went wrong."""
    text = " ".join(str(error).split()).translate(_CONTROLS)
    if isinstance(error, tokenwire.UnavailableError) and target:
        text = f"cannot reach {target}: {text}"
    print(text, file=sys.stderr)
    return 1
