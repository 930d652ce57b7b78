"""Completions and embeddings through the whole graph: the real openai client, a real upstream, real books."""

from typing import Any

import httpx
import openai
import pytest

from tests.support import scripts
from tests.support.plays import completion, completion_frames, embeddings
from tests.support.serving import Server, until

ADMIN, LOCAL = "sk-mlx-admin-0123456789abcdefghij", "sk-mlx-local-0123456789abcdefghij"


@pytest.fixture(scope="module")
def server(deploy, upstream, tmp_path_factory):
    """`fast` has no completions; `premium` is in the cloud, `backup` on this machine; `vectors` stands alone."""
    fields: Any = {"admin": {"admin": True}, "local": {"allow_cloud": False}}
    keys = scripts.write_keys(tmp_path_factory.mktemp("keys"), {"admin": ADMIN, "local": LOCAL}, **fields)
    hosted = scripts.hosted(upstream)
    tiers = {
        "fast": scripts.tier("fast"),
        "premium": hosted | {"cloud": True},
        "backup": hosted | {"model": "backup/model"},
        "vectors": hosted | {"model": "some/vectors", "cloud": True},
        "alone": scripts.tier("alone"),
    }
    timeouts, server = scripts.QUICK | {"total_s": 3.0}, {"aliases": {"text-embedding-3-small": "vectors"}}
    server |= {"api_keys_file": keys}
    return deploy(scripts.graph(tiers, ["fast", "premium", "backup"], timeouts=timeouts, server=server), "passed-on")


def client(server: Server, key: str = ADMIN) -> openai.OpenAI:
    return server.client(api_key=key)


def post(server: Server, path: str, body: Any, key: str = ADMIN, **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {key}"} | headers
    return httpx.post(f"{server.url}/v1/{path}", json=body, headers=sent, timeout=30.0)


def test_a_completion(server, upstream):
    """The first hosted tier of the chain answers; every field reaches it; the books have its own count."""
    upstream.plays("some/model", completion("Once upon a time."))
    fields: dict[str, Any] = {"prompt": "Once", "suffix": "!", "echo": False, "best_of": 2}
    fields |= {"max_tokens": 20, "logprobs": 2, "stop": ["."]}
    with client(server) as openai_client:
        raw = openai_client.completions.with_raw_response.create(model="auto", **fields)
    seen, answer = upstream.log[-1], raw.parse()

    assert answer.choices[0].text == "Once upon a time."
    assert (answer.model, answer.usage.total_tokens) == ("premium", 18)
    assert raw.headers["x-mlx-stack-tier"] == "premium"
    assert seen.path.endswith("/v1/completions")
    assert seen.body == {"model": "some/model", **fields}
    path = f"/v1/reliability/requests/{raw.headers['x-request-id']}"
    report = until(lambda: server.find(path, headers={"authorization": f"Bearer {ADMIN}"}), "the report is there")
    assert report["attempts"][0]["usage"]["total_tokens"] == 18
    assert report["notes"] == ["only hosted tiers have /completions: passed over fast (scripted)"]


@pytest.mark.parametrize("usage", [True, False])
def test_a_streamed_completion(server, upstream, usage):
    """The frames arrive one by one; the usage where it is asked for, and the report in the last frame."""
    upstream.plays("some/model", completion_frames("Once", " upon"))
    options: Any = {"include_usage": True} if usage else openai.omit
    with client(server) as openai_client:
        asked: Any = {"model": "auto", "prompt": "Once", "stream": True, "stream_options": options}
        chunks = list(openai_client.completions.create(**asked))

    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "Once upon"
    assert (chunks[-1].usage is not None) is usage
    assert chunks[-1].model_extra["mlx_stack"]["tier"] == "premium"
    assert upstream.log[-1].body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings(server, upstream, form):
    """By the name that clients use; texts and tokens; figures as they were."""
    vector = [0.25, -1.5] if form == "float" else "AACAPgAAwL8="
    upstream.plays("some/vectors", embeddings(vector, vector, tokens=6))
    with client(server) as openai_client:
        asked: Any = {"model": "text-embedding-3-small", "input": ["one", "two"], "encoding_format": form}
        answer = openai_client.embeddings.create(**asked, dimensions=2)

    assert [each.embedding for each in answer.data] == [vector] * 2
    assert (answer.model, answer.usage.prompt_tokens) == ("vectors", 6)
    assert upstream.log[-1].path.endswith("/v1/embeddings")
    assert upstream.log[-1].body["input"] == ["one", "two"]


def test_a_large_answer_arrives_whole(server, upstream):
    """One that is larger than a message between replicas may be."""
    vectors = [[(i + j) / 7 for i in range(3072)] for j in range(100)]
    upstream.plays("some/vectors", embeddings(*vectors))
    answer = post(server, "embeddings", {"model": "vectors", "input": ["x"] * 100}).json()

    assert [each["embedding"] for each in answer["data"]] == vectors


@pytest.mark.parametrize("key", [ADMIN, LOCAL])
def test_what_must_stay_on_this_machine_does(server, upstream, key):
    """By the request's header, or by its key: the tier of this machine answers; where there is none the error says
    so."""
    headers = {"x-mlx-stack-local-only": "true"} if key == ADMIN else {}
    upstream.plays("backup/model", completion("Hello"))
    before = len(upstream.log)
    answer = post(server, "completions", {"prompt": "Once"}, key, **headers)
    refused = post(server, "embeddings", {"model": "vectors", "input": "x"}, key, **headers)

    assert answer.headers["x-mlx-stack-tier"] == "backup"
    assert [seen.model for seen in upstream.log[before:]] == ["backup/model"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "cloud_not_allowed")


@pytest.mark.parametrize("path", ["completions", "embeddings"])
def test_access_and_errors_are_those_of_every_route(server, path):
    """No key, a body that isn't JSON, a field that is wrong, a model that doesn't exist, the wrong method."""
    good = {"prompt": "Once", "input": "x"}
    with pytest.raises(openai.AuthenticationError), client(server, "sk-wrong") as openai_client:
        openai_client.post(f"/{path}", cast_to=object, body=good)
    answers = [
        httpx.post(f"{server.url}/v1/{path}", content=b"{", headers={"authorization": f"Bearer {ADMIN}"}),
        post(server, path, {}),
        post(server, path, good | {"model": "none"}),
        httpx.get(f"{server.url}/v1/{path}", headers={"authorization": f"Bearer {ADMIN}"}),
    ]

    codes = ["invalid_json", "invalid_request", "model_not_found", "method_not_allowed"]
    assert [answer.status_code for answer in answers] == [400, 400, 404, 405]
    assert [answer.json()["error"]["code"] for answer in answers] == codes
