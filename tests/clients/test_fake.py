"""The fake server, where other tests do not show it."""

from __future__ import annotations

import pytest

import tokenwire
from tokenwire.testing import FakeServer


def test_it_checks_the_api_key():
    with FakeServer(api_key="right") as server:
        with tokenwire.Client(server.target, api_key="right") as client:
            client.version()
        with tokenwire.Client(server.target, api_key="wrong") as client:
            with pytest.raises(tokenwire.UnauthenticatedError) as caught:
                client.version()
            assert caught.value.reason == "UNAUTHENTICATED"


def test_it_refuses_a_model_that_it_does_not_have(server, client):
    with pytest.raises(tokenwire.NotFoundError) as caught:
        client.chat("x", model="nobody")
    assert caught.value.reason == "MODEL_NOT_FOUND"
    client.chat("x", model="fake:adapter")


def test_it_starts_once_and_stops_more_than_once():
    server = FakeServer().start()
    with pytest.raises(RuntimeError, match="runs already"):
        server.start()
    server.stop()
    server.stop()


def test_it_repeats_what_was_said_where_nothing_is_queued(server, client):
    server.reply("scripted")
    assert [tokenwire.text(client.chat("echo")) for _ in range(2)] == ["scripted", "echo"]


def test_waits_end_when_nothing_comes(server):
    assert not server.wait_calls(1, timeout=0)
    assert not server.wait_cancelled(timeout=0)
