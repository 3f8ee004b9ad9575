from __future__ import annotations

import httpx
import pytest
from tests.rest.gateway.conftest import Mirror
from tests.rest.gateway.contract import RULES, rule

from tokenwire_server.errors import StatusError
from tokenwire_server.rest.transcoding.routes import RouteTable, make_route
from tokenwire_server.rest.transcoding.template import parse_template


@pytest.mark.parametrize(
    ("template", "path", "values"),
    [
        ("/a/b", "/a/b", {}),
        ("/a/b", "/a/b/", None),
        ("/a/b", "/a", None),
        ("/a/*", "/a/x", {}),
        ("/a/{f}", "/a/x", {"f": "x"}),
        ("/a/{f}", "/a/x/y", None),
        ("/a/{f}", "/a/", {"f": ""}),
        ("/a/{f=b/*}/c", "/a/b/x/c", {"f": "b/x"}),
        ("/a/{f.g}/{h}", "/a/1/2", {"f.g": "1", "h": "2"}),
        ("/a/{f=**}", "/a/x/y/z", {"f": "x/y/z"}),
        ("/a/{f=**}", "/a", {"f": ""}),
        ("/a/{f=b/**}", "/a/b/x/y", {"f": "b/x/y"}),
        ("/a/**", "/a/x/y", {}),
        ("/a/{f=**}:do", "/a/x/y:do", {"f": "x/y"}),
        ("/a/{f=**}:do", "/a/x:y:do", {"f": "x:y"}),
        ("/a/{f=**}:do", "/a/x", None),
        ("/a/{f=**}:do", "/a/x:dont", None),
        ("/a/{f}", "/a/x:do", {"f": "x:do"}),
        ("/a:do", "/a:do", {}),
        ("/a:do", "/a", None),
    ],
)
def test_templates(template: str, path: str, values: dict[str, str] | None) -> None:
    assert parse_template(template).match(path[1:].split("/")) == values


@pytest.mark.parametrize("text", ["a/b", "/a/{b", "/a//b", "/**/a", "/{a=**}/b", "/a/x*", "/a/{b=c{d}}", "/***"])
def test_malformed_templates(text: str) -> None:
    with pytest.raises(ValueError, match="path template"):
        parse_template(text)


@pytest.mark.parametrize(
    "spec",
    [
        {"get": "/x/{nothing}"},
        {"get": "/x/{name.a}"},
        {"get": "/x/{inners.a}"},
        {"post": "/x", "body": "nothing"},
        {"get": "/x", "response_body": "nothing"},
        {"get": "x"},
        {},
    ],
)
def test_a_rule_that_names_no_field_is_found_at_the_start(spec: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"names|template|without a path"):
        make_route(RULES.methods_by_name["NoRule"], rule(spec))


def test_a_path_without_a_slash_first_is_a_bad_request() -> None:
    with pytest.raises(StatusError) as caught:
        RouteTable([RULES]).find("GET", "test/v1/watch")
    assert (caught.value.status.code, caught.value.status.message) == (3, "Bad Request")


@pytest.mark.parametrize(
    ("method", "path", "rpc", "field", "value"),
    [
        ("GET", "/test/v1/things/a", "GetThing", "name", "things/a"),
        ("GET", "/test/v1/things%2Fa", "GetThing", "name", "things/a"),  # unescaped before it is split
        ("GET", "/test/v1/deep/x/y%20z:inspect", "GetDeep", "inner.a", "x/y z"),
        ("GET", "/test/v1/deepPlain/x:y", "GetDeepPlain", "name", "x:y"),
        ("GET", "/test/v1/twice/x", "Second", "text", "x"),  # the last one of the contract wins
        ("PURGE", "/test/v1/purge", "Purge", "name", ""),
        ("DELETE", "/test/v1/colors/COLOR_BLUE", "Enumerate", "color", 2),
        ("DELETE", "/test/v1/colors/1", "Enumerate", "color", 1),
    ],
)
async def test_routes(
    web: httpx.AsyncClient, mirror: Mirror, method: str, path: str, rpc: str, field: str, value: object
) -> None:
    response = await web.request(method, path)
    assert response.status_code == 200, response.text
    assert mirror.method == f"tokenwire.gatewaytest.v1.Rules/{rpc}"
    found = mirror.request
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize("path", ["/test/v1/nothing", "/test", "/test/v1/watch/", "/test/v1/deep/:inspect", "/other"])
async def test_unknown_path(web: httpx.AsyncClient, path: str) -> None:
    response = await web.get(path)
    assert (response.status_code, response.json()) == (404, {"code": 5, "message": "Not Found", "details": []})


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "DELETE"])
async def test_wrong_method(web: httpx.AsyncClient, method: str) -> None:
    response = await web.request(method, "/test/v1/watch")
    assert response.status_code == 501
    if method != "HEAD":
        assert response.json() == {"code": 12, "message": "Method Not Allowed", "details": []}


async def test_an_rpc_without_a_rule_has_no_route(mirror: Mirror) -> None:
    assert not [route for route in RouteTable([RULES]).routes if route.rpc.name == "NoRule"]


async def test_healthz(web: httpx.AsyncClient, mirror: Mirror) -> None:
    mirror.key = "k"  # a probe needs none
    up = await web.get("/healthz")
    assert (up.status_code, up.json()) == (200, {"status": "SERVING"})
    down = await web.get("/healthz?service=down")
    assert (down.status_code, down.json()["code"]) == (503, 14)
    unknown = await web.get("/healthz?service=what")
    assert (unknown.status_code, unknown.json()["code"]) == (404, 5)
    mirror.key = ""
    assert (await web.post("/healthz")).status_code == 501
