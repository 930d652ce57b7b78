"""The lists for programs: one's own requests and sessions, all of them for an admin, and the server at this moment."""

from __future__ import annotations

import hashlib

import httpx
import pytest
import yaml

from tests.support import scripts
from tests.support.http_asking import Outcome, ask, report_of, user
from tests.support.serving import Deploy, Server

KEYS = {name: f"sk-{name}-0123456789abcdef0123" for name in ("boss", "agent", "other")}


@pytest.fixture(scope="module")
def server(deploy: Deploy, tmp_path_factory: pytest.TempPathFactory) -> Server:
    keys = tmp_path_factory.mktemp("keys") / "keys.yaml"
    entries = [
        {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), "admin": name == "boss"}
        for name, key in KEYS.items()
    ]
    keys.write_text(yaml.safe_dump(entries))
    args = scripts.args(["fast"])
    return deploy(args | {"server": args["server"] | {"api_keys_file": str(keys), "aliases": {}}}, "history")


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


def get(server: Server, path: str, who: str = "boss", **params: object) -> httpx.Response:
    url = f"{server.url}/v1/reliability/{path}"
    return httpx.get(url, headers=as_(who), params=params, timeout=30.0)  # type: ignore[arg-type]


def asked(server: Server, key: str, session: str) -> Outcome:
    outcome = ask(server, user("hi"), stream=False, api_key=KEYS[key], headers={"X-MLX-Stack-Session": session})
    report_of(server, outcome, headers=as_(key))
    return outcome


def test_everybody_sees_their_own_and_an_admin_all(server):
    """Requests and sessions; whoever names somebody else's key is shown their own all the same."""
    mine, theirs = asked(server, "agent", "a"), asked(server, "other", "b")
    ids = {
        name: [one["request_id"] for one in get(server, "requests", name, key="other").json()["data"]]
        for name in ("agent", "other", "boss")
    }
    sessions = {name: {one["session"] for one in get(server, "sessions", name).json()["data"]} for name in KEYS}

    assert ids["agent"] == [mine.request_id]
    assert ids["other"] == ids["boss"] == [theirs.request_id]
    assert sessions == {"agent": {"a"}, "other": {"b"}, "boss": {"a", "b"}}


def test_pages_go_on_and_filters_hold(server):
    """`next` leads on; a session's own are its own; an unknown filter is named."""
    first, second = asked(server, "agent", "pages"), asked(server, "agent", "pages")
    page = get(server, "requests", session="pages", limit=1).json()
    rest = get(server, "requests", session="pages", limit=1, before=page["next"]).json()

    assert [page["data"][0]["request_id"], rest["data"][0]["request_id"]] == [second.request_id, first.request_id]
    assert get(server, "requests", session="pages", after=rest["data"][0]["id"]).json()["data"] == page["data"]
    assert get(server, "requests", sesion="x").json()["error"]["param"] == "sesion"


def test_the_moment_is_an_admin_s(server):
    """With what has just finished in it."""
    outcome = asked(server, "agent", "moment")
    now = get(server, "live").json()

    assert get(server, "live", "agent").status_code == 403
    assert [tier["name"] for tier in now["tiers"]] == ["fast"]
    assert outcome.request_id in [one["request_id"] for one in now["finished"]]
    assert now["day"]["requests"] >= 1
