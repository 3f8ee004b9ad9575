from __future__ import annotations

import httpx
import pytest
from tests.rest.conftest import Readiness
from tests.rest.fake_backend import FakeBackend
from tests.rest.sse import check_envelope

CHAT = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz"])
async def test_probes_need_no_key(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    backend.keys = frozenset({"k"})
    assert (await http.get(path)).json() == {"status": "ok"}
    assert (await http.head(path)).status_code == 200


async def test_not_ready_is_503_with_retry_after(
    http: httpx.AsyncClient, readiness: Readiness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "value", False)
    for path in ("/health", "/readyz"):
        response = await http.get(path)
        assert response.status_code == 503
        assert check_envelope(response)["code"] == "server_is_overloaded"
        assert int(response.headers["retry-after"]) >= 1
    assert (await http.get("/livez")).status_code == 200


async def test_version(http: httpx.AsyncClient) -> None:
    assert (await http.get("/version")).json() == {"version": "1.2.3"}


async def test_models_turns_pages(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = (await http.get("/v1/models")).json()
    assert reply["object"] == "list"
    assert [one["id"] for one in reply["data"]] == ["mini", "org/tiny", "org/tiny:poet"]
    assert reply["data"][1] == {
        "id": "org/tiny",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "tokenwire",
        "max_model_len": 4096,
    }


@pytest.mark.parametrize("path", ["/v1/models/org/tiny", "/v1/models/org%2Ftiny"])
async def test_model_ids_hold_slashes(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    assert (await http.get(path)).json()["id"] == "org/tiny"


async def test_unknown_model_by_id(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.get("/v1/models/nope")
    assert response.status_code == 404
    assert check_envelope(response) == {
        "message": "The model `nope` does not exist or you do not have access to it.",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }


@pytest.mark.parametrize("path", ["/x", "/v1/x", "/v1//models", "/v1/models/", "/v1/chat/completions/", "/"])
async def test_unknown_url(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    response = await http.get(path)
    assert response.status_code == 404
    assert check_envelope(response) == {
        "message": f"Unknown request URL: GET {path}",
        "type": "invalid_request_error",
        "param": None,
        "code": "unknown_url",
    }


async def test_wrong_method(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    response = await http.get("/v1/chat/completions")
    assert response.status_code == 405
    assert check_envelope(response)["code"] == "method_not_supported"
    assert response.headers["allow"] == "OPTIONS, POST"
    assert (await http.post("/v1/models")).headers["allow"] == "GET, HEAD, OPTIONS"


async def test_head_and_options(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.keys = frozenset({"k"})
    response = await http.options("/v1/chat/completions", headers={"origin": "https://x.example"})
    assert response.status_code == 204
    assert response.headers["allow"] == "OPTIONS, POST"
    assert "access-control-allow-origin" not in response.headers
    head = await http.head("/v1/models", headers={"authorization": "Bearer k"})
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("value", [None, "Bearer bad", "Basic k", "k", "Bearer"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/nothing", "/v1//models", "/elsewhere"])
async def test_key_is_asked_before_the_body(
    http: httpx.AsyncClient, backend: FakeBackend, path: str, value: str | None
) -> None:
    backend.keys = frozenset({"k"})
    headers = {} if value is None else {"authorization": value}
    response = await http.post(path, content=b"{not json", headers=headers)
    assert response.status_code == 401
    error = check_envelope(response)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("value", ["Bearer k", "bearer k"])
async def test_good_key(http: httpx.AsyncClient, backend: FakeBackend, value: str) -> None:
    backend.keys = frozenset({"k"})
    response = await http.post("/v1/chat/completions", json=CHAT, headers={"authorization": value})
    assert response.status_code == 200
    assert backend.calls[0].identity == "test"


@pytest.mark.parametrize("path", ["/v1/models", "/nope", "/health", "/v1/chat/completions"])
async def test_request_id_is_on_every_response(http: httpx.AsyncClient, backend: FakeBackend, path: str) -> None:
    given = await http.get(path, headers={"x-request-id": "mine.1-a_B"})
    assert given.headers["x-request-id"] == "mine.1-a_B"
    assert given.headers["x-content-type-options"] == "nosniff"
    for bad in ("a b", "x" * 129, "ü", ""):
        made = await http.get(path, headers=[(b"x-request-id", bad.encode())])
        assert made.headers["x-request-id"].startswith("req_")


async def test_reply_id_comes_from_the_request_id(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    reply = await http.post("/v1/chat/completions", json=CHAT)
    assert reply.json()["id"] == "chatcmpl-" + reply.headers["x-request-id"].removeprefix("req_")
    headers = {"x-request-id": "mine"}
    named = await http.post("/v1/chat/completions", json=CHAT | {"request_id": "job-7"}, headers=headers)
    assert named.json()["id"] == "chatcmpl-job-7"
    assert named.headers["x-request-id"] == "mine"
    assert backend.requests[1].request_id == "job-7"


async def test_deadline_header(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    await http.post("/v1/chat/completions", json=CHAT, headers={"x-request-timeout-seconds": "2.5"})
    call = backend.calls[0]
    assert call.deadline is not None
    assert call.deadline - call.received_at == pytest.approx(2.5)
    assert backend.requests[0].timeout.ToMilliseconds() == 2500
    await http.post("/v1/chat/completions", json=CHAT)
    assert backend.calls[1].deadline is None
    assert not backend.requests[1].HasField("timeout")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon", ""])
async def test_bad_deadline_header(http: httpx.AsyncClient, backend: FakeBackend, value: str) -> None:
    response = await http.post("/v1/chat/completions", json=CHAT, headers={"x-request-timeout-seconds": value})
    assert response.status_code == 400
    assert "x-request-timeout-seconds" in check_envelope(response)["message"]
    assert not backend.requests


async def test_call_context(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    response = await http.post("/v1/chat/completions", json=CHAT, headers={"traceparent": trace})
    assert backend.calls[0].traceparent == trace
    assert backend.calls[0].request_size == len(response.request.content)
