"""Ids of requests and names of sessions are the clients': an admin's look-up never hits another key's by chance."""

import re
from typing import Any

import click
import pytest

from deployments.api.access import Access
from deployments.api.api_keys import ApiKey, digest
from deployments.cli.commands import cli
from tests.support.bare_router import list_all_routes
from tests.support.room_rig import Rig, browse, find_token

BOSS, AGENT = "sk-boss-0123456789abcdef0123", "sk-agent-0123456789abcdef0123"
KEYS = Access((ApiKey(name="boss", sha256=digest(BOSS), admin=True), ApiKey(name="agent", sha256=digest(AGENT))))
OWN = {"origin": "http://127.0.0.1:8000"}
NAMED = re.compile(r"{(request_id|session|response_id)(:path)?}")
# What a stored response is named, the server says itself, and every route of it looks among the caller's own.
OWN_IDS = "/v1/responses/"
BY_NAME = sorted({route for route in list_all_routes() if NAMED.search(route[1]) and OWN_IDS not in route[1]})
# Each is called with the same id and name.
SAME = "same"


@pytest.fixture
def rig(tmp_path) -> Rig:
    """Two keys with a request and a session of the same name; `alone` is one key's."""
    made = Rig(tmp_path, KEYS)
    for key in ("agent", "other"):
        made.finish(SAME, key=key, session=SAME)
    made.finish("alone", key="agent", session="alone")
    return made


def call(client: Any, method: str, path: str, name: str, key: str | None = None) -> Any:
    """One route, as an admin; an order of a page brings its token."""
    path = NAMED.sub(name, path)
    page = path.startswith("/ui")
    named = {} if key is None else {"key": key}
    if page and method == "POST":
        token = find_token(client.get("/ui/sessions").text)
        return client.post(path, data=named | {"token": token}, headers=OWN)
    headers = {} if page else {"authorization": f"Bearer {BOSS}"}
    return client.request(method, path, params=named, headers=headers)


def test_the_routes_are_found():
    """The table below is of the app's own routes: pages and orders too."""
    assert len(BY_NAME) == 6


@pytest.mark.parametrize(("method", "path"), BY_NAME)
def test_a_name_may_have_slashes(rig, method, path):
    """Law: each route takes each name that a client may give (go-chi names requests `host/abc-000001`)."""
    rig.finish("a/b", key="agent", session="a/b")
    with browse(rig) as client:
        client.post("/ui/sign-in", data={"key": BOSS, "next": "/"}, headers=OWN)
        assert call(client, method, path, "a%2Fb").status_code == call(client, method, path, "alone").status_code < 400


@pytest.mark.parametrize(("method", "path"), BY_NAME)
def test_where_several_keys_have_the_name_one_must_be_named(rig, method, path):
    """400 with the names of the keys, and nothing is shown or changed; with `key` it is that one's, whichever came
    last. A name that one key has needs none."""
    with browse(rig) as client:
        client.post("/ui/sign-in", data={"key": BOSS, "next": "/"}, headers=OWN)
        refused = call(client, method, path, SAME)
        assert refused.status_code == 400
        assert "?key=agent" in refused.text
        assert "?key=other" in refused.text
        assert all(rig.here.actor.books(key, SAME)[0] for key in ("agent", "other"))

        assert call(client, method, path, "alone").status_code in (200, 303)
        assert call(client, method, path, "none").status_code == 404
        for key in ("agent", "other"):
            found = call(client, method, path, SAME, key)
            assert found.status_code in (200, 303)
            if method == "GET":
                assert f"{key}" in found.text
            else:
                assert rig.here.actor.books(key, SAME)[0] is None


@pytest.mark.parametrize(("method", "path"), [route for route in BY_NAME if route[1].startswith("/v1")])
def test_who_is_no_admin_finds_only_what_is_their_own(rig, method, path):
    """Whatever key they name."""
    with browse(rig) as client:
        headers = {"authorization": f"Bearer {AGENT}"}
        found = client.request(method, NAMED.sub(SAME, path), params={"key": "other"}, headers=headers)

    assert found.status_code == (403 if method == "POST" else 200)
    assert method == "POST" or found.json()["key"] == "agent"


def test_the_commands_that_take_such_a_name_take_the_key_too():
    """`why REQUEST_ID` and `sessions SESSION`; what lists shows all, each with its key."""
    taken = {name: {type(one): one.name for one in command.params} for name, command in cli.commands.items()}
    by_name = {name for name, params in taken.items() if params.get(click.Argument) in ("request", "session")}

    assert by_name == {"why", "sessions"}
    assert all("key" in [one.name for one in cli.commands[name].params] for name in by_name)


def get(client: Any, path: str, who: str = BOSS, **params: Any) -> Any:
    return client.get(f"/v1/reliability/{path}", params=params, headers={"authorization": f"Bearer {who}"})


@pytest.mark.parametrize(("path", "name"), [("requests", "request_id"), ("sessions", "session")])
def test_everybody_lists_their_own_and_an_admin_all(rig, path, name):
    """Whoever names somebody else's key is shown their own all the same."""
    with browse(rig) as client:
        own = get(client, path, AGENT, key="other").json()["data"]
        everything = get(client, path).json()["data"]
        theirs = get(client, path, key="other").json()["data"]

    assert sorted((one[name], one["key"]) for one in own) == [("alone", "agent"), (SAME, "agent")]
    assert sorted((one[name], one["key"]) for one in everything) == [
        ("alone", "agent"),
        (SAME, "agent"),
        (SAME, "other"),
    ]
    assert [(one[name], one["key"]) for one in theirs] == [(SAME, "other")]


def test_pages_go_on_and_filters_hold(rig):
    """`next` leads on; a session's own are its own; an unknown filter is named."""
    for number in range(2):
        rig.finish(f"r{number}", key="agent", session="pages")
    with browse(rig) as client:
        page = get(client, "requests", session="pages", limit=1).json()
        rest = get(client, "requests", session="pages", limit=1, before=page["next"]).json()
        again = get(client, "requests", session="pages", after=rest["data"][0]["id"]).json()
        wrong = get(client, "requests", sesion="x").json()

    assert [one["data"][0]["request_id"] for one in (page, rest)] == ["r1", "r0"]
    assert again["data"] == page["data"]
    assert wrong["error"]["param"] == "sesion"


def test_the_moment_is_an_admin_s(rig):
    """With what has just finished in it."""
    with browse(rig) as client:
        now = get(client, "live").json()
        assert get(client, "live", AGENT).status_code == 403

    assert "alone" in [one["request_id"] for one in now["finished"]]
    assert now["day"]["requests"] == 3


@pytest.mark.parametrize("path", ["requests/theirs", "sessions/theirs", "sessions/theirs?key=other"])
def test_what_is_another_keys_is_not_there(rig, path):
    """A 404, also where the other key is named; the admin sees it."""
    rig.finish("theirs", key="other", session="theirs")
    with browse(rig) as client:
        assert get(client, path, AGENT).status_code == 404
        assert get(client, path).json()["key"] == "other"


def test_incidents_are_listed_in_pages_and_filtered(rig):
    """Pages join to the whole, the newest first; each filter of the query is one of the state's."""
    common = {"key": "agent", "request_id": "r", "session": "s"}
    kinds = [{"at": 100.0 + n, "kind": ("fault", "loop")[n % 2], "tier": f"t{n % 3}"} | common for n in range(6)]
    rig.finish("r", key="agent", session="s", incidents=tuple(kinds))
    with browse(rig) as client:
        whole = get(client, "incidents").json()["data"]
        first = get(client, "incidents", limit=4).json()
        rest = get(client, "incidents", limit=4, before=first["next"]).json()
        counts = [
            len(get(client, "incidents", **asked).json()["data"])
            for asked in (common, {"kind": "loop"}, {"tier": "t0"}, {"since": 102, "until": 104}, {"session": "x"})
        ]

    assert [one["at"] for one in whole] == [105.0, 104.0, 103.0, 102.0, 101.0, 100.0]
    assert first["data"] + rest["data"] == whole
    assert rest["next"] is None
    assert counts == [6, 3, 2, 2, 0]


@pytest.mark.parametrize("asked", [{"limit": "many"}, {"since": "-1"}, {"before": "nan"}, {"kidn": "fault"}])
def test_a_wrong_filter_is_refused_by_name(rig, asked):
    """A filter that would be ignored shows more than was asked for."""
    with browse(rig) as client:
        refused = get(client, "incidents", **asked)

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, next(iter(asked)))
