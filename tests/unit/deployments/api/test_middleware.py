"""What comes before any route: CORS, OPTIONS, trailing slashes. Played on the ASGI app itself, without a server."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from deployments.api.access import Access, access_for
from deployments.api.middleware import EXPOSED, MiddlewareApp, find_ending
from deployments.config.app_config import ServerConfig
from deployments.config.config_errors import ConfigError
from deployments.config.loopback import is_own, is_own_page
from tests.support.bare_router import ask_app, build_app, list_all_routes, list_routes
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


def app(access: Access) -> MiddlewareApp:
    routes = [Route("/v1/models", seen), Route("/v1/models/{model:path}", seen), Route("/chat", seen, methods=["POST"])]
    return MiddlewareApp(lambda: access, routes=routes)


def asked(access: Access, method: str, path: str, headers: dict[str, str], *, root: str = "") -> httpx.Response:
    return ask_app(app(access), method, path, headers=headers, root=root)


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


@pytest.mark.parametrize(("method", "path"), [found for found in list_routes() if "health" not in found[1]])
def test_no_route_redirects_for_a_slash(method, path):
    """Law: a slash behind a route is the route itself, which wants a key; a redirect loses a POST and names a host."""
    door, filled = build_app(access(f"agent:{KEY}")), re.sub(r"{\w+(:path)?}", "a", path)
    with_slash, without = (ask_app(door, method, f"{filled}{end}") for end in ("/", ""))

    assert with_slash.status_code == without.status_code


@pytest.mark.parametrize("root", ["", "/app"])
def test_what_is_mounted_is_found_with_and_without_its_slash(root):
    """Law: no redirect leads to itself: the app below `/ui` is found at `/ui/`, and `/ui` leads there."""
    door = MiddlewareApp(access, routes=[Mount("/ui", routes=[Route("/", seen)])])
    answer = ask_app(door, "GET", "/ui", root=root, follow_redirects=True)

    assert (answer.status_code, answer.url.path) == (200, f"{root}/ui/")


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


ROUTES = [*list_all_routes(), ("GET", "/none"), ("POST", "/none"), ("DELETE", "/ui/none"), ("GET", "/v1/v1/models")]
CHANGES = [(method, path) for method, path in ROUTES if method not in ("GET", "OPTIONS")]
# A cloud's and a company's machines, a neighbor in the network, a name that is turned into 127.0.0.1, and near misses.
OTHERS = ["wiki.internal", "ip-10-0-0-1.ec2.internal", "vm.c.project.internal", "docker.internal", "mac.local",
          "x.host.docker.internal", "host.docker.internal.evil.example", "evil.example:8000",
          "localhost.evil.example"]  # fmt: skip


def asked_router(door: Access, method: str, path: str, headers: dict[str, str], body: str = "") -> httpx.Response:
    return ask_app(build_app(door), method, path, headers=headers, content=body)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_route_answers_a_request_that_was_meant_for_another_host(method, path):
    """Without keys: each route of the table, pages and assets too, and paths that don't exist. A site whose name was
    turned into this machine's address learns nothing."""
    path = re.sub(r"{[^}]*}", "x", path)
    answers = [asked_router(Access(()), method, path, {"host": host}) for host in OTHERS]
    answers += [asked_router(Access(()), method, path, {"origin": f"http://{host}"}) for host in OTHERS]

    assert {answer.status_code for answer in answers} == {403}
    assert all("header names another one" in answer.text for answer in answers)


PAGES = [None, "null", "http://wiki.internal", "http://host.docker.internal:3000", "https://evil.example", "file://"]


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("allow_open", [False, True])
def test_no_page_of_another_site_changes_anything(method, path, allow_open):
    """Whatever a page may send unasked, a form or a text: the browser says that it comes from another site. That holds
    also where everybody is let in."""
    door = Access((), allow_open=allow_open)
    path = re.sub(r"{[^}]*}", "x", path)
    for site in ("cross-site", "same-site", "other"):
        for page in PAGES:
            headers = {"content-type": "text/plain", "sec-fetch-site": site} | ({"origin": page} if page else {})
            assert asked_router(door, method, path, headers, "{}").status_code == 403, (site, page)


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_page_of_another_site_is_known_by_its_origin_alone(method, path):
    """A browser sends `Sec-Fetch-Site` to loopback and over TLS only (W3C, Fetch Metadata). To a plain address of the
    network, which `allow_open` is for, it sends `Origin` with each POST: only a page of that address changes things."""
    door, path = Access((), allow_open=True), re.sub(r"{[^}]*}", "x", path)
    for page in filter(None, PAGES):
        headers = {"content-type": "text/plain", "host": "192.168.1.5:8000", "origin": page}
        assert asked_router(door, method, path, headers, "{}").status_code == 403, page
    for page in ({}, {"origin": "http://192.168.1.5:8000"}):
        assert asked(door, "POST", "/chat", {"host": "192.168.1.5:8000"} | page).text == "/chat"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
@pytest.mark.parametrize("origin", [*OWN_PAGES, NAMED])
def test_a_page_of_this_machine_may_change_something(site, origin):
    """http://localhost:3000 is of another site than 127.0.0.1, and a page that is named mostly is; a link from
    elsewhere that is only followed is no change."""
    door = access(cors_origins=(NAMED,))

    assert asked(door, "POST", "/chat", {"origin": origin, "sec-fetch-site": site}).text == "/chat"
    assert asked(door, "GET", "/v1/models", {"sec-fetch-site": site}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/live", "/v1/chat/completions", "/none"])
@pytest.mark.parametrize("host", ["127.0.0.1:8000", "wiki.internal"])
def test_a_web_socket_is_closed(path, host):
    """Whoever it was meant for: there is no route for one."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {"type": "websocket", "path": path, "headers": [(b"host", host.encode())], "query_string": b""}
    asyncio.run(build_app(Access(()))(scope, receive, send))

    assert sent == ["websocket.close"]


METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


def list_paths(routes: Any, before: str = "") -> list[str]:
    """A path for every route, the mounted ones too, with an `x` for each parameter."""
    paths: list[str] = []
    for route in routes:
        if isinstance(route, Mount):
            paths += list_paths(route.routes, before + route.path)
        else:
            paths.append(before + re.sub(r"\{[^}]*\}", "x", route.path))
    return sorted(set(paths))


def test_a_405_names_all_methods_of_its_path():
    """Law: for every path of the server and every method that it doesn't take, `Allow` is what OPTIONS answers: the
    methods of all routes that the path fits, not those of the first one."""
    app = build_app(Access(()))
    allowed = {path: ask_app(app, "OPTIONS", path).headers["allow"] for path in list_paths(app.routes)}
    asked = [(path, method) for path, names in allowed.items() for method in METHODS - set(names.split(", "))]
    refused = [(path, method, allowed[path], ask_app(app, method, path)) for path, method in asked]

    assert len(refused) > 100
    assert [(p, m) for p, m, allow, r in refused if (r.status_code, r.headers.get("allow")) != (405, allow)] == []


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("size", [100, 1_000_000])
async def test_what_a_request_holds_is_held_until_its_answer_is_taken(size: int, holds: bool) -> None:
    """Law: what is reserved for a request is freed once its client has taken the answer, however large that is: uvicorn
    waits with a second piece until the client has taken the first. A request that holds nothing is over at once, since
    its place in the Router is everybody's."""
    freed, freed_before, sent = list[bool](), list[bool](), list[Any]()

    async def answer(request: Request) -> PlainTextResponse:
        if holds:
            find_ending(request.scope).callback(freed.append, True)
        return PlainTextResponse("x" * size)

    async def send(message: Any) -> None:
        freed_before.extend(freed)
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/large", "query_string": b"", "client": ("127.0.0.1", 1)}
    door = MiddlewareApp(access, routes=[Route("/large", answer)])
    await door({**scope, "headers": [(b"host", b"localhost")]}, receive, send)
    bodies = [message for message in sent if message["type"] == "http.response.body"]

    assert b"".join(each["body"] for each in bodies) == b"x" * size
    assert [bool(each.get("more_body")) for each in bodies] == ([True, False] if holds and size > 100 else [False])
    assert (freed, freed_before) == ([True] * holds, [])
