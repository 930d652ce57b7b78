"""The description against the server that it describes: every example works, every answer is what it says."""

from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from deployments.api.openapi.operations import OPERATIONS, Operation
from tests.support import scripts
from tests.support.plays import Play, Seen, completion, completion_frames, embeddings
from tests.support.serving import Deploy, Server
from tests.support.upstream import Upstream

SENT = [each for each in OPERATIONS if each.example is not None]
READ = [each for each in OPERATIONS if each.method == "get" and "{" not in each.path]


@pytest.fixture(scope="module")
def server(deploy: Deploy, upstream: Upstream) -> Server:
    """A tier of this machine, and behind it one that has completions and embeddings."""
    upstream.plays("some/model", answer)
    tiers = {"fast": scripts.tier("fast"), "premium": scripts.hosted(upstream)}
    return deploy(scripts.graph(tiers), "described")


def answer(seen: Seen) -> Play:
    if seen.path.endswith("/embeddings"):
        return embeddings([0.5, 1.5])
    return completion_frames("Once", " upon") if seen.body.get("stream") else completion()


@pytest.fixture(scope="module")
def described(server: Server) -> Any:
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


@pytest.mark.parametrize("operation", SENT, ids=lambda o: o.path)
def test_every_example_works(server, described, operation):
    """Sent as it stands, it is answered, and the answer is what the description says."""
    response = httpx.post(f"{server.url}{operation.path}", json=operation.example, timeout=60.0)

    assert response.status_code == 200
    check(described, operation, response)


@pytest.mark.parametrize("operation", [each for each in SENT if each.stream], ids=lambda o: o.path)
def test_every_example_can_be_streamed(server, described, operation):
    """Where the description says that an answer may be a stream, it is one with `stream`."""
    body = dict(operation.example) | {"stream": True}
    response = httpx.post(f"{server.url}{operation.path}", json=body, timeout=60.0)

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    check(described, operation, response)


@pytest.mark.parametrize("operation", SENT, ids=lambda o: o.path)
def test_every_error_is_what_the_description_says(server, described, operation):
    """A body that isn't JSON: the status is described, and so is the error's shape, that of the dialect."""
    response = httpx.post(f"{server.url}{operation.path}", content=b"{", timeout=60.0)

    assert response.status_code == 400
    check(described, operation, response)


@pytest.mark.parametrize("operation", READ, ids=lambda o: o.path)
def test_every_page_is_what_the_description_says(server, described, operation):
    """All that can be read without naming anything."""
    response = httpx.get(f"{server.url}{operation.path}", timeout=60.0)

    assert response.status_code == 200
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
