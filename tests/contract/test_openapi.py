"""The description against the server that it describes: every example works, every answer is what it says."""

from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from deployments.api.openapi.operations import OPERATIONS, Operation
from tests.support import scripts
from tests.support.plays import Play, Seen, completion, completion_frames, embeddings

SENT = [each for each in OPERATIONS if each.example is not None]
READ = [each for each in OPERATIONS if each.method == "get" and "{" not in each.path]


@pytest.fixture(scope="module")
def server(deploy, upstream):
    """A tier of this machine, and behind it one that has completions and embeddings."""
    upstream.plays("some/model", answer)
    tiers = {"fast": scripts.tier("fast"), "premium": scripts.hosted(upstream)}
    return deploy(scripts.graph(tiers), "described")


def answer(seen: Seen) -> Play:
    if seen.path.endswith("/embeddings"):
        return embeddings([0.5, 1.5])
    return completion_frames("Once", " upon") if seen.body.get("stream") else completion()


@pytest.fixture(scope="module")
def described(server):
    return server.get("/openapi.json").json()


def check(described: Any, operation: Operation, response: httpx.Response) -> None:
    """The answer is one that the description has for its status."""
    told = described["paths"][operation.path][operation.method]["responses"][str(response.status_code)]
    kind = response.headers["content-type"].partition(";")[0]
    if kind == "application/json":
        schema = told["content"][kind]["schema"] | {"components": described["components"]}
        assert [error.message for error in Draft202012Validator(schema).iter_errors(response.json())] == []
    else:
        assert kind in told["content"]


ASKED = {
    **{f"{one.path}, its example": (one, dict(one.example), 200) for one in SENT},
    **{f"{one.path}, streamed": (one, dict(one.example) | {"stream": True}, 200) for one in SENT if one.stream},
    **{f"{one.path}, no JSON": (one, b"{", 400) for one in SENT},
    **{one.path: (one, None, 200) for one in READ},
}


@pytest.mark.parametrize("asked", ASKED)
def test_every_answer_is_what_the_description_says(server, described, asked):
    """Every example works as it stands, and can be streamed where the description says so; the error of a body that
    isn't JSON has the shape of its dialect; so has all that can be read without naming anything."""
    operation, body, status = ASKED[asked]
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    response = httpx.request(operation.method, f"{server.url}{operation.path}", timeout=60.0, **sent)

    assert response.status_code == status
    if "streamed" in asked:
        assert response.headers["content-type"].startswith("text/event-stream")
    check(described, operation, response)


def test_what_is_not_there_is_described(server, described):
    """A model, a response, a report, a session, a tier, a file that doesn't exist: a 404 in the described shape."""
    for operation in OPERATIONS:
        if "{" in operation.path:
            path = operation.path.replace("{", "no-").replace("}", "")
            response = httpx.request(operation.method, f"{server.url}{path}", timeout=60.0)
            assert response.status_code == 404, path
            check(described, operation, response)


def test_the_description_is_of_this_app(server, described):
    """Whoever tries a route from the page asks under the app's own prefix."""
    assert described["servers"] == [{"url": "/described"}]
