"""Targets, channel options and the retry policy."""

from __future__ import annotations

import json

import grpc
import pytest

import tokenwire
from tokenwire._rpcs import SERVICES
from tokenwire._settings import Settings
from tokenwire._transport import endpoint
from tokenwire.v1 import chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2

TLS = grpc.ssl_channel_credentials()


@pytest.mark.parametrize(
    ("target", "arguments", "address", "secure"),
    [
        ("localhost:9000", {}, "localhost:9000", False),
        ("127.0.0.1:9000", {}, "127.0.0.1:9000", False),
        ("[::1]:9000", {}, "[::1]:9000", False),
        ("localhost:9000", {"secure": True}, "localhost:9000", True),
        ("localhost:9000", {"tls": TLS}, "localhost:9000", True),
        ("llm.example.com:443", {"secure": True}, "llm.example.com:443", True),
        ("llm.example.com:443", {"tls": TLS}, "llm.example.com:443", True),
        ("llm.example.com:9000", {"secure": False}, "llm.example.com:9000", False),
        ("grpc://llm.example.com:9000", {}, "llm.example.com:9000", False),
        ("grpcs://llm.example.com:443", {}, "llm.example.com:443", True),
        ("grpcs://llm.example.com:443", {"tls": TLS, "secure": True}, "llm.example.com:443", True),
    ],
)
def test_targets(target, arguments, address, secure):
    place = endpoint(target, **{"secure": None, "tls": None, **arguments})
    assert place.address == address
    assert (place.credentials is not None) is secure


@pytest.mark.parametrize(
    ("target", "arguments", "text"),
    [
        ("llm.example.com:9000", {}, "secure: say whether"),
        ("10.0.0.1:9000", {}, "secure: say whether"),
        ("http://localhost:9000", {}, "target: expected host:port, grpc://"),
        ("localhost", {}, "target: expected host:port"),
        ("localhost:0", {}, "target: expected host:port"),
        ("localhost:70000", {}, "target: expected host:port"),
        ("localhost:http", {}, "target: expected host:port"),
        (":9000", {}, "target: expected host:port"),
        ("localhost:9000/v1", {}, "target: expected host:port"),
        ("grpc://localhost:9000", {"secure": True}, "secure: True contradicts grpc://"),
        ("grpcs://localhost:9000", {"secure": False}, "secure: False contradicts grpcs://"),
        ("grpc://localhost:9000", {"tls": TLS}, "tls: credentials were given"),
        ("localhost:9000", {"max_retries": -1}, "max_retries"),
        ("localhost:9000", {"connections": 0}, "connections"),
        ("localhost:9000", {"timeout": 0}, "timeout"),
        ("localhost:9000", {"timeout": float("inf")}, "timeout"),
        ("localhost:9000", {"api_key": "two words"}, "api_key"),
    ],
)
def test_what_is_unclear_or_out_of_range_is_refused(target, arguments, text):
    for kind in (tokenwire.Client, tokenwire.AsyncClient):
        with pytest.raises(ValueError, match=text):
            kind(target, **arguments)


def test_a_timeout_of_another_type_is_named(server, client):
    with pytest.raises(TypeError, match="timeout: expected seconds, got str"):
        client.chat("x", timeout="5")


def test_options():
    options = dict(Settings.of("localhost:9000", options={"grpc.keepalive_time_ms": 5}).options)
    assert options["grpc.max_send_message_length"] == 16 << 20
    assert options["grpc.max_receive_message_length"] == 64 << 20
    assert options["grpc.keepalive_time_ms"] == 5
    assert options["grpc.keepalive_timeout_ms"] == 10_000
    assert options["grpc.enable_http_proxy"] == 0
    assert "grpc.use_local_subchannel_pool" not in options
    remote = dict(Settings.of("grpc://llm.example.com:9000", connections=2).options)
    assert "grpc.enable_http_proxy" not in remote
    assert remote["grpc.use_local_subchannel_pool"] == 1


def test_the_retry_policy_names_every_service():
    contract = {
        service
        for module in (chat_pb2, embedding_pb2, generation_pb2, model_pb2, tokenization_pb2)
        for service in module.DESCRIPTOR.services_by_name
    }
    assert set(SERVICES) == contract
    config = json.loads(dict(Settings.of("localhost:9000").options)["grpc.service_config"])
    policy = config["methodConfig"][0]["retryPolicy"]
    assert (policy["maxAttempts"], policy["retryableStatusCodes"]) == (3, ["UNAVAILABLE"])
    none = json.loads(dict(Settings.of("localhost:9000", max_retries=0).options)["grpc.service_config"])
    assert "methodConfig" not in none


def test_a_channel_for_the_stubs(server):
    with tokenwire.channel(server.target) as channel:
        from tokenwire.v1 import model_pb2_grpc

        answer = model_pb2_grpc.ModelServiceStub(channel).GetVersion(model_pb2.GetVersionRequest(), timeout=5)
    assert answer.api == "tokenwire.v1"


async def test_an_aio_channel_for_the_stubs(server):
    from tokenwire.v1 import model_pb2_grpc

    async with tokenwire.aio_channel(server.target) as channel:
        answer = await model_pb2_grpc.ModelServiceStub(channel).GetVersion(model_pb2.GetVersionRequest(), timeout=5)
    assert answer.api == "tokenwire.v1"
