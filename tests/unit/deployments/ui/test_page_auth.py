"""Cookies and tokens: what this server made is good for whom it made it, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.access import ANYBODY, Access
from deployments.api.api_keys import ApiKey, digest
from deployments.ui.page_auth import _COOKIE_S, _Cookie, _Seal
from tests.support.room_rig import Rig, browse, find_token

SEAL, OTHER = _Seal("a" * 64), _Seal("b" * 64)
DIGEST, NOW_S = b"\x01" * 32, 1.8e9
NAMES = st.text("abcXYZ019._-", min_size=0, max_size=20)


def make(name: str) -> str:
    return SEAL.make(name, DIGEST, NOW_S)[1]


def read(text: str, seal: _Seal = SEAL, digest: bytes = DIGEST, now_s: float = NOW_S) -> _Cookie | None:
    found = seal.read(text, lambda _: (digest, ANYBODY), now_s)
    return found[0] if found else None


@given(NAMES, st.integers(0, 200), st.characters(), st.text())
def test_a_cookie_is_good_until_it_ends_and_a_changed_one_is_none(name, place, letter, text):
    """For its own name, up to its last moment; whatever letter of it is another one. No text that a browser may send
    raises."""
    value = make(name)
    cookie = read(value)
    at = place % len(value)
    changed = value[:at] + letter + value[at + 1 :]

    assert cookie is not None
    assert cookie.name == name
    assert read(value, now_s=NOW_S + _COOKIE_S - 1) == cookie
    assert read(value, now_s=NOW_S + _COOKIE_S) is None
    assert (read(changed) is None) is (changed != value)
    assert read(text) is None


def test_a_cookie_ends_with_its_key_and_its_secret_and_a_token_is_its_cookie_s_alone():
    """A key that was replaced, or another server's secret, makes it none; another cookie has another token, and so has
    another server's."""
    value = make("boss")
    (one, _), (two, _) = (SEAL.make("boss", DIGEST, NOW_S) for _ in range(2))

    assert read(value, digest=b"\x02" * 32) is None
    assert read(value, seal=OTHER) is None
    assert SEAL.make_token(one) == SEAL.make_token(one)
    assert len({SEAL.make_token(one), SEAL.make_token(two), OTHER.make_token(one)}) == 3


BOSS, AGENT = "sk-boss-0123456789abcdef0123", "sk-agent-0123456789abcdef0123"
KEYED = Access((ApiKey(name="boss", sha256=digest(BOSS), admin=True), ApiKey(name="agent", sha256=digest(AGENT))))
NAMED = ("requests", "sessions", "incidents", "tiers", "memory", "evaluations", "try", "events")
PAGES = ["/", *(f"/ui/{name}" for name in NAMED)]
ORDERS = ["/ui/tiers/fast/isolate", "/ui/sessions/s/reset", "/ui/sign-out"]
OWN = {"origin": "http://127.0.0.1:8000"}


@pytest.fixture
def keyed(tmp_path) -> Rig:
    return Rig(tmp_path, KEYED)


@pytest.fixture
def open_rig(tmp_path) -> Rig:
    return Rig(tmp_path)


def sign_in(client, key: str = BOSS, to: str = "/ui/tiers", **headers: str):
    return client.post("/ui/sign-in", data={"key": key, "next": to}, headers=OWN | headers)


def test_an_admin_s_key_opens_it_by_a_cookie(keyed):
    """HttpOnly, SameSite=Strict, with the port in its name; and the key is not in it. Without the cookie every page
    leads to the key: nothing is shown to strangers, and an API key in a header is no way in either."""
    with browse(keyed) as client:
        for path in PAGES:
            refused = client.get(path, headers={"authorization": f"Bearer {BOSS}"})
            assert refused.status_code == 303
            assert refused.headers["location"].startswith("/ui/sign-in?next=")
        answer = sign_in(client)
        cookie = answer.headers["set-cookie"]

        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/tiers")
        assert cookie.startswith("mlx_stack_8000=boss:")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert BOSS not in cookie
        assert all(client.get(path).status_code == 200 for path in PAGES[:-1])
        assert "boss" in client.get("/").text


@pytest.mark.parametrize("key", ["", "wrong", AGENT])
def test_no_other_key_does(keyed, key):
    """Neither a wrong one nor one that is no admin's: the same words for each."""
    with browse(keyed) as client:
        answer = sign_in(client, key)

        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "isn't an admin's key" in answer.text
        assert client.get("/").status_code == 303


def test_a_key_that_is_gone_ends_its_cookies(keyed):
    """At the next request after a changed configuration; the stream of the first page, too, which is one long
    request."""
    served, frames = keyed.app, []

    async def serve(scope, receive, send):
        async def see(message):
            frames.append(message.get("body", b""))
            assert len(frames) < 20
            if frames[-1].startswith(b"data: "):
                keyed.access = Access((ApiKey(name="boss", sha256=digest("another-key-0123456789ab"), admin=True),))
            await send(message)

        await served(scope, receive, see)

    keyed.app = serve
    with browse(keyed) as client:
        sign_in(client)
        assert client.get("/ui/events").status_code == 200
        assert [client.get(path).status_code for path in ("/ui/events", "/")] == [303, 303]

    assert any(frame.startswith(b"data: ") for frame in frames)


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/a\nb", "//[", "http://["]
)
def test_signing_in_leads_nowhere_else(keyed, to):
    """A link to the sign-in page can't send whoever follows it to another site."""
    with browse(keyed) as client:
        assert sign_in(client, to=to).headers["location"] == "/"


@pytest.mark.parametrize("path", ORDERS)
def test_an_order_without_the_token_is_refused(open_rig, path):
    """Also from this machine, where nobody has to sign in; what one browser was given is no good in another. A form
    that is too large is refused before it is read."""
    with browse(open_rig) as client:
        token = find_token(client.get("/").text)
        for given, status in (("", 403), ("0" * 64, 403), ("ü", 403), ("x" * 100_000, 413)):
            assert client.post(path, data={"token": given}, headers=OWN).status_code == status
        client.cookies.clear()
        assert client.post(path, headers=OWN | {"x-csrf-token": token}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        *({"origin": origin} for origin in ("http://[", "null", "://", "http://127.0.0.1:3000")),
        {"origin": "http://127.0.0.1:8000@evil.example"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_what_another_page_sends_is_refused(open_rig, tmp_path, headers):
    """An order, though it brings cookie and token, and a key: a page of another port is another page."""
    with browse(open_rig) as client:
        token = find_token(client.get("/").text)
        assert client.post(ORDERS[0], headers={"x-csrf-token": token} | headers).status_code == 403
    with browse(Rig(tmp_path / "keyed", KEYED)) as client:
        answer = sign_in(client, **headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("path", PAGES)
def test_without_keys_it_is_this_machine_s(open_rig, path, elsewhere):
    """By the guard of the API: neither another machine, nor a page from elsewhere, nor a name that was rebound."""
    host, headers = ("10.0.0.1", {}) if elsewhere else ("127.0.0.1", {"host": "evil.example"})
    with browse(open_rig, host=host) as client:
        assert client.get(path, headers=headers).status_code == 403


def test_a_form_holds_nothing_once_it_is_read(keyed):
    """However often a stranger sends one that would be many values of JSON, the next one is read."""
    with browse(keyed) as client:
        answers = [client.post("/ui/sign-in", content="key=" + "[" * 65_000, headers=OWN) for _ in range(20)]
        assert {answer.status_code for answer in answers} == {401}


def test_behind_a_prefix_everything_stays_there(keyed):
    """Links, files and the cookie's path begin with it."""
    with browse(keyed, root="/apps") as client:
        answer = client.get("/apps/ui/tiers")
        assert answer.headers["location"] == "/apps/ui/sign-in?next=/ui/tiers"
        page = client.get("/apps/ui/sign-in").text
        assert 'action="/apps/ui/sign-in"' in page
        assert 'src="/apps/ui/assets/' in page
        posted = client.post("/apps/ui/sign-in", data={"key": BOSS, "next": "/"}, headers=OWN)
        assert "Path=/apps" in posted.headers["set-cookie"]
        assert posted.headers["location"] == "/apps/"


def test_signing_out_ends_the_cookie_on_the_server(keyed, tmp_path):
    """A copy of it opens nothing any more: at this Router, at another one, and after a restart; another browser of the
    same key stays signed in."""
    other = keyed.make_app()
    with browse(keyed) as client:
        sign_in(client)
        stays = dict(client.cookies)
        client.cookies.clear()
        sign_in(client)
        stolen = dict(client.cookies)
        token = find_token(client.get("/ui/tiers").text)
        assert client.post("/ui/sign-out", data={"token": token}, headers=OWN).status_code == 303
        assert not client.cookies
    keyed.app = other
    for start in (lambda: keyed, lambda: Rig(tmp_path, KEYED)):
        with browse(start()) as client:
            client.cookies.update(stays)
            assert client.get("/ui/tiers").status_code == 200
            client.cookies.update(stolen)
            assert client.get("/ui/tiers").status_code == 303
            order = client.post("/ui/tiers/fast/isolate", data={"token": token}, headers=OWN)
            assert order.headers["location"].startswith("/ui/sign-in")


def test_while_the_state_is_away_nobody_is_let_in_by_a_cookie(keyed, tmp_path):
    """Whether it was ended isn't known: 503, and the order to sign out isn't done either. Without keys, too, a page
    that can't know who asks says so, and shows nothing."""
    with browse(keyed) as client:
        sign_in(client)
        token = find_token(client.get("/ui/tiers").text)
        keyed.here.away = True
        assert client.get("/ui/tiers").status_code == 503
        assert client.post("/ui/sign-out", data={"token": token}, headers=OWN).status_code == 503
    rig = Rig(tmp_path / "open")
    with browse(rig) as client:
        rig.here.away = True
        answer = client.get("/ui/requests")
    assert answer.status_code == 503
    assert "state actor" in answer.text
