"""`tokenwire chat` and `tokenwire health`, without a terminal and with one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tokenwire.testing import FakeServer
from tokenwire.v1 import chat_pb2
from tokenwire_server.cli_chat import chat
from tokenwire_server.cli_chat import health as ask_health

if sys.platform != "win32":
    import pty


def talk(monkeypatch, target: str, text: str, **kwargs) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    given = {"model": "", "api_key": "", "system": "", "max_tokens": None, "temperature": None, **kwargs}
    return chat(target, **given)


def test_each_line_gets_an_answer(server, monkeypatch, capsys):
    server.reply("First answer.")
    server.reply("Second \x1b[31manswer.")
    code = talk(
        monkeypatch, server.target, "one\n\ntwo\n", system="Be kind.", max_tokens=9, temperature=0.5, model="fake"
    )
    assert code == 0
    assert capsys.readouterr().out == "First answer.\nSecond [31manswer.\n"
    asked = [call.request for call in server.calls if call.method == "StreamChat"]
    assert [message.role for message in asked[1].messages] == [
        chat_pb2.ROLE_SYSTEM,
        chat_pb2.ROLE_USER,
        chat_pb2.ROLE_ASSISTANT,
        chat_pb2.ROLE_USER,
    ]
    assert asked[1].messages[2].content[0].text == "First answer."
    assert (asked[0].sampling.max_tokens, asked[0].sampling.temperature, asked[0].model) == (9, 0.5, "fake")


def test_clear_forgets_and_quit_leaves(server, monkeypatch, capsys):
    assert talk(monkeypatch, server.target, "one\n/clear\ntwo\n/help\n/quit\nthree\n") == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    asked = [call.request for call in server.calls if call.method == "StreamChat"]
    assert [len(request.messages) for request in asked] == [1, 1]


def test_nobody_there_is_one_line(monkeypatch, capsys):
    with FakeServer() as gone:
        target = gone.target
    assert talk(monkeypatch, target, "one\n") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"cannot reach {target}: UNAVAILABLE: ")
    assert captured.err.count("\n") == 1


def test_a_target_that_cannot_be_read_is_one_line(monkeypatch, capsys):
    assert talk(monkeypatch, "nowhere", "one\n") == 1
    assert capsys.readouterr().err == "target: expected host:port, got 'nowhere'\n"


def test_a_failed_answer_ends_a_script(server, monkeypatch, capsys):
    assert talk(monkeypatch, server.target, "one\ntwo\n", model="nobody") == 1
    assert capsys.readouterr().err.startswith("NOT_FOUND (MODEL_NOT_FOUND): ")
    assert [call.method for call in server.calls].count("StreamChat") == 1


class Terminal:
    """A program at a pseudo-terminal."""

    def __init__(self, target: str) -> None:
        code = (
            "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "from tokenwire_server.cli_chat import chat; "
            f"sys.exit(chat({target!r}, model='', api_key='', system='', max_tokens=None, temperature=None))"
        )
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm"}
        command = [sys.executable, "-c", code]
        # A session of its own, whose first act is to take the terminal, so that Ctrl-C becomes a signal.
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""
        self._watchdog = threading.Timer(30, self.process.kill)
        self._watchdog.start()

    def send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def expect(self, text: str) -> None:
        """Reads until `text` comes, and forgets what came up to it."""
        while text not in self.seen:
            try:
                piece = os.read(self._ours, 4096)
            except OSError:  # the program has left
                piece = b""
            assert piece, f"{text!r} did not come: {self.seen!r}"
            self.seen += piece.decode("utf-8", "replace")
        self.seen = self.seen.partition(text)[2]

    def interrupted(self) -> int:
        """Presses Ctrl-C at the prompt, and gives the exit code.

        Again and again: one that falls between Python's prompt and its wait for a key is seen at the next key only.
        """
        for _ in range(50):
            self.send("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout=0.2)
        raise AssertionError("Ctrl-C does not end it")

    def close(self) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_at_a_terminal(server):
    server.reply("one two three")
    server.reply("never ending", hold=True)
    terminal = Terminal(server.target)
    try:
        terminal.expect("/quit leaves")
        terminal.expect("> ")
        terminal.send("hello\n")
        terminal.expect("one two three")
        terminal.expect("13 tokens, first after")
        terminal.expect("tokens/s")
        terminal.expect("> ")
        terminal.send("go on\n")
        terminal.expect("never ending")
        terminal.send("\x03")
        terminal.expect("stopped")
        assert server.wait_cancelled()
        terminal.expect("> ")
        server.fail(grpc.StatusCode.INTERNAL, "broken")
        terminal.send("again\n")
        terminal.expect("INTERNAL: broken")
        terminal.expect("> ")
        assert terminal.interrupted() == 0
    finally:
        terminal.close()
    asked = [call.request for call in server.calls if call.method == "StreamChat"]
    assert asked[2].messages[3].content[0].text == "never ending"


@pytest.fixture(scope="module")
def health_target() -> Iterator[str]:
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    servicer.set("starting", health_pb2.HealthCheckResponse.NOT_SERVING)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize(("service", "code", "text"), [("", 0, "SERVING\n"), ("starting", 1, "NOT_SERVING\n")])
def test_health(health_target, capsys, service, code, text):
    assert ask_health(health_target, service, 5) == code
    assert capsys.readouterr().out == text


def test_health_of_what_is_not_there(health_target, capsys):
    assert ask_health(health_target, "unknown", 5) == 1
    assert f"{health_target}: NOT_FOUND" in capsys.readouterr().err
    with FakeServer() as gone:
        target = gone.target
    assert ask_health(target, "", 0.2) == 1
    assert f"{target}: DEADLINE_EXCEEDED: no answer in time" in capsys.readouterr().err
    assert ask_health("nowhere", "", 0.2) == 1
    assert "target: expected host:port" in capsys.readouterr().err
