"""Every error in OpenAI's shape, and no error's own words."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.anthropic.messages_render import MESSAGES
from deployments.api.responses import build_error_handlers, error_response, json_response
from deployments.errors import ApiError
from tests.support.bare_router import ask_app


async def good(_: Request) -> Response:
    return json_response({"é": 1}, headers={"x-a": "b"})


async def refused(_: Request) -> Response:
    raise ApiError("invalid_request", "no", param="x")


async def bug(_: Request) -> Response:
    raise RuntimeError("the secret words of a prompt")


ROUTES = [Route(f"/{one.__name__}", one) for one in (good, refused, bug)]
APP = Starlette(routes=ROUTES, exception_handlers=build_error_handlers({}))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/refused", 400, "invalid_request"),
        ("GET", "/none", 404, "not_found"),
        ("POST", "/good", 405, "method_not_allowed"),
        ("GET", "/bug", 500, "internal_error"),
    ],
)
def test_every_error_has_the_same_shape(method: str, path: str, status: int, code: str) -> None:
    """Law: what the server refuses, what Starlette refuses and what nobody expected is JSON with a code; a 405 says
    what is allowed; what an error says of itself stays here."""
    answer = ask_app(APP, method, path)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert "secret" not in answer.text
    assert ("allow" in answer.headers) == (status == 405)


def test_an_answer_keeps_its_headers_and_an_error_s_own_win() -> None:
    """Law: headers that are given leave with the answer, unless the error sets them itself."""
    answer = ask_app(APP, "GET", "/good")
    busy = ApiError("overloaded", "come back")
    own = busy.headers()
    shown = error_response(busy, {**dict.fromkeys(own, "mine"), "x-a": "b"})

    assert (answer.json(), answer.headers["x-a"]) == ({"é": 1}, "b")
    assert own
    assert {name: shown.headers[name] for name in own} == own
    assert shown.headers["x-a"] == "b"


def test_a_dialects_path_has_its_errors() -> None:
    """Law: what goes wrong at a dialect's path, or below it, has that one's shape and its header for the id; elsewhere
    it is OpenAI's, but for clients that show by a header which they are. Who left out `/v1` is told so."""
    spoken = build_error_handlers({"/v1/messages": MESSAGES})
    app = Starlette(routes=[Route("/v1/messages", refused)], exception_handlers=spoken)

    def get(path: str, **headers: str) -> httpx.Response:
        return ask_app(app, "GET", path, headers={"x-request-id": "r-1"} | headers)

    here, below, elsewhere = (get(path) for path in ("/v1/messages", "/v1/messages/x", "/messages"))
    signed = get("/v1/models/none", **{"anthropic-version": "2023-06-01"})

    assert [one.json().get("type") for one in (here, below, signed, elsewhere)] == ["error", "error", "error", None]
    assert here.headers["request-id"] == here.json()["request_id"] == "r-1"
    assert "ends in /v1" in elsewhere.json()["error"]["message"]
