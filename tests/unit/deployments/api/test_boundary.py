"""What comes before any route: CORS, OPTIONS, trailing slashes. Played on the ASGI app itself, without a server."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from deployments.api.access import Access, access_for
from deployments.api.boundary import EXPOSED, BoundaryApp
from deployments.config import ConfigError, ServerConfig
from deployments.listener.listening import is_own, is_own_page
from tests.support.repository import ROOT
from tests.support.small_config import config_of

ENV = "MLX_STACK_API_KEYS"
KEY = "edge-key-0123456789abcdef"
NAMED = "https://app.example.com"
OWN_PAGES = ["http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:8080", "https://app.localhost"]
STRANGERS = ["https://evil.example", "null", "http://localhost.evil.example", "http://wiki.internal", "file://", ""]
ASKED = "authorization,content-type,x-stainless-os,x-mlx-stack-session"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": ASKED}


async def seen(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.path, headers={"X-MLX-Stack-Tier": "fast"})


def app(access: Access) -> BoundaryApp:
    routes = [Route("/v1/models", seen), Route("/v1/models/{model:path}", seen), Route("/chat", seen, methods=["POST"])]
    return BoundaryApp(lambda: access, routes=routes)


def asked(access: Access, method: str, path: str, headers: dict[str, str], *, root: str = "") -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app(access), root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
            return await http.request(method, f"{root}{path}", headers=headers)

    return asyncio.run(go())


def access(keys: str = "", **server: Any) -> Access:
    return access_for(ServerConfig(**server), {ENV: keys})


KEYS = ["", f"agent:{KEY}"]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("origin", [*OWN_PAGES, NAMED])
def test_a_page_that_may_ask_is_told_so(keys, origin):
    """Preflight without a key, and the answer itself: the page's own origin, never `*`, and no cookies."""
    door = access(keys, cors_origins=(NAMED,))
    before = asked(door, "OPTIONS", "/chat", {"origin": origin} | PREFLIGHT)
    answer = asked(door, "POST", "/chat", {"origin": origin})

    assert before.status_code == 204
    assert "POST" in before.headers["access-control-allow-methods"]
    assert before.headers["access-control-allow-headers"].replace(" ", "") == ASKED
    assert answer.text == "/chat"
    for response in (before, answer):
        assert response.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-credentials" not in response.headers
        assert "origin" in response.headers["vary"].lower()
    assert "X-MLX-Stack-Tier" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("origin", STRANGERS)
def test_a_strangers_page_gets_nothing(keys, origin):
    """A 403 to the preflight, in OpenAI's shape; and what is answered at all is for nobody's eyes."""
    door = access(keys, cors_origins=(NAMED,))
    before = asked(door, "OPTIONS", "/chat", {"origin": origin} | PREFLIGHT)
    answer = asked(door, "POST", "/chat", {"origin": origin})

    assert before.status_code == 403
    assert before.json()["error"]["code"] == "forbidden"
    for response in (before, answer):
        assert not [name for name in response.headers if name.startswith("access-control")]


@given(st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"])))
def test_no_origin_is_let_in_by_its_looks(origin):
    """What may read is a page of this machine by its parsed host, or is named, letter by letter; every such page may
    also ask."""
    door = Access((), origins=(NAMED,))

    assert door.lets_read(origin) == (origin == NAMED or is_own_page(origin))
    assert not is_own_page(origin) or is_own(origin)
    assert not door.lets_read(origin + ".example.org") or origin + ".example.org" == NAMED


def test_a_page_sees_that_there_is_no_route():
    """The preflight of a wrong path is let through: else the browser says only that it failed."""
    page = {"origin": OWN_PAGES[0]}

    assert asked(access(), "OPTIONS", "/none", page | PREFLIGHT).status_code == 204
    answer = asked(access(), "GET", "/none", page)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, OWN_PAGES[0])


def test_a_named_page_may_ask_without_keys():
    """`guard` lets it pass; the request's Host must still be this machine."""
    access(cors_origins=(NAMED,)).guard("127.0.0.1", {"origin": NAMED, "host": "127.0.0.1:8000"})
    with pytest.raises(Exception, match="Host header names another one"):
        access(cors_origins=(NAMED,)).guard("127.0.0.1", {"origin": NAMED, "host": "app.example.com"})
    with pytest.raises(Exception, match=re.escape("server.cors_origins")):
        access().guard("127.0.0.1", {"origin": NAMED})


@pytest.mark.parametrize(
    ("names", "told"),
    [("x-a, x-b", "x-a, x-b"), ("x-a,\x01,bad name,x-b", "x-a, x-b"), (",".join(["x"] * 500), ", ".join(["x"] * 64))],
)
def test_only_so_many_names_are_mirrored(names, told):
    """What a page asks to send is answered as far as it is header names, and not endlessly."""
    origin = {"origin": OWN_PAGES[0], "access-control-request-method": "POST"}
    scope = asked(access(), "OPTIONS", "/chat", origin | {"access-control-request-headers": names.replace("\x01", "(")})

    assert scope.headers["access-control-allow-headers"] == told


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/chat", "OPTIONS, POST"), ("/v1/models", "GET, HEAD, OPTIONS"), ("/v1/models/a/b", "GET, HEAD, OPTIONS")],
)
@pytest.mark.parametrize("keys", KEYS)
def test_options_says_what_a_path_takes(keys, path, methods):
    """Without an Origin and without a key: 204 and the methods."""
    answer = asked(access(keys), "OPTIONS", path, {})

    assert (answer.status_code, answer.headers["allow"]) == (204, methods)
    assert asked(access(keys), "OPTIONS", "/none", {}).status_code == 404


@pytest.mark.parametrize("root", ["", "/app"])
@pytest.mark.parametrize("path", ["/chat/", "/v1/models/"])
def test_a_slash_too_many_is_no_other_route(root, path):
    """Served as the route without it, under a prefix too; an empty model name is no model."""
    answer = asked(access(), "POST" if "chat" in path else "GET", path, {}, root=root)

    assert (answer.status_code, answer.text) == (200, root + path[:-1])


def test_what_a_page_may_see_is_all_that_is_sent():
    """Every header of ours that the report knows is exposed."""
    source = (ROOT / "deployments/reports/report.py").read_text()

    assert set(re.findall(r'"(X-MLX-Stack-[A-Za-z-]+)"', source)) <= set(EXPOSED)


@pytest.mark.parametrize(
    "origin", ["*", "null", "example.com", "https://a.example/", "https://A.example", "https://a b", ""]
)
def test_what_is_no_origin_is_refused(origin):
    """One line that names the key: nothing that could match any page, or none ever."""
    with pytest.raises(ConfigError, match=r"server\.cors_origins"):
        config_of("server.cors_origins", [NAMED, origin])


@pytest.mark.parametrize("root", ["", "/app"])
def test_a_base_url_with_v1_twice_is_the_route(root):
    """Clients of Anthropic add `/v1` to a base URL that ends in it, as OpenAI's does."""
    assert asked(access(), "GET", "/v1/v1/models", {}, root=root).status_code == 200
    assert asked(access(), "GET", "/v1/v2/models", {}, root=root).status_code == 404
