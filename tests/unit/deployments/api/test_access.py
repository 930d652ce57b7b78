"""API keys: who is let in, what stands in no error, and where a server without keys may listen."""

import contextlib
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from deployments import __main__
from deployments.api.access import Access, Caller, access_for
from deployments.api.api_keys import digest, load_keys
from deployments.config.app_config import ServerConfig
from deployments.config.config_errors import ConfigError
from deployments.config.free_port import free_port
from deployments.errors import ApiError
from tests.support.refusing import refusal_of

ENV = "MLX_STACK_API_KEYS"
AGENT, BOSS, LOCAL = "agent-key-0123456789abcdef", "boss-key-0123456789abcdef", "local-key-0123456789abcdef"
THREE = f"agent:{AGENT}, boss:{BOSS}:admin,local:{LOCAL}:local-only"


def access(value: str = THREE, **server: object) -> Access:
    return access_for(ServerConfig(**server), {ENV: value})


@pytest.mark.parametrize(
    ("key", "caller"),
    [
        (AGENT, Caller(name="agent", admin=False, allow_cloud=True)),
        (BOSS, Caller(name="boss", admin=True, allow_cloud=True)),
        (LOCAL, Caller(name="local", admin=False, allow_cloud=False)),
    ],
)
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer  ", ""])
def test_a_key_is_its_caller(key, caller, scheme):
    """Both headers name the caller, with the flags of its entry; HTTP's schemes are written in any case."""
    header = "authorization" if scheme else "x-api-key"
    for value in (f"{scheme}{key}", f"  {scheme}{key} "):
        assert access().caller({header: value}) == caller


def test_a_bearer_token_goes_before_x_api_key():
    """Where two keys are sent the bearer token counts, right or wrong; another scheme is a proxy's and doesn't."""
    assert access().caller({"authorization": f"Bearer {AGENT}", "x-api-key": BOSS}).name == "agent"
    assert access().caller({"authorization": "Basic dTpw", "x-api-key": BOSS}).name == "boss"
    with pytest.raises(ApiError):
        access().caller({"authorization": "Bearer wrong", "x-api-key": BOSS})


def test_admin_routes_need_an_admin():
    """`identify_admin` passes an admin and refuses everybody else with a 403."""
    boss, agent = (Request({"type": "http", "headers": [(b"x-api-key", key.encode())]}) for key in (BOSS, AGENT))
    assert access().identify_admin(boss).name == "boss"
    caught = refusal_of(access().identify_admin, agent)
    assert (caught.status, caught.code) == (403, "forbidden")


headers = st.dictionaries(
    st.sampled_from(["authorization", "x-api-key", "host"]),
    st.one_of(st.text(), st.text().map("Bearer ".__add__), st.text(st.characters(categories=["Cs"]), min_size=1)),
)


@given(headers)
def test_no_header_is_more_than_refused(sent):
    """Any text in the headers is a 401, and nothing else is ever raised; without keys the caller is nobody in
    particular and may do everything."""
    for nothing in ("", " "):
        assert access(nothing).caller(sent) == Caller(name="", admin=True, allow_cloud=True)
    caught = refusal_of(access().caller, sent)
    assert (caught.status, caught.code) == (401, "invalid_api_key")
    assert caught.headers()["www-authenticate"] == "Bearer"
    assert caught.headers()["x-should-retry"] == "false"


def near(key: str) -> st.SearchStrategy[str]:
    """Texts that are nearly the key: cut, longer, changed in one place, in another case, its digest."""
    ends = st.integers(0, len(key) - 1)
    return st.one_of(
        ends.map(lambda n: key[:n]),
        ends.map(lambda n: key[n + 1 :]),
        st.text(min_size=1).map(lambda tail: key + "x" + tail),
        st.tuples(ends, st.characters()).map(lambda at: key[: at[0]] + at[1] + key[at[0] + 1 :]),
        st.sampled_from([key.upper(), digest(key).hex(), key[::-1], key * 40, f"agent:{key}"]),
    ).filter(lambda text: text != key)


@given(near(AGENT))
def test_a_wrong_key_is_refused(key):
    """A key that is nearly right is wrong, in either header."""
    for sent in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
        if AGENT in (key.strip(), key.strip().removeprefix("Bearer ")):
            continue
        caught = refusal_of(access().caller, sent)
        assert caught.code == "invalid_api_key"


def test_every_entry_is_compared(monkeypatch):
    """The first match doesn't end the comparison, so the time doesn't tell which entry it was."""
    compared: list[bytes] = []

    def spy(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return a == b

    monkeypatch.setattr("deployments.api.access.hmac.compare_digest", spy)
    for key in (AGENT, LOCAL, "wrong"):
        compared.clear()
        with contextlib.suppress(ApiError):
            access().caller({"x-api-key": key})

        assert compared == [digest(key) for key in (AGENT, BOSS, LOCAL)]


def shown(value: object) -> str:
    return f"{value!r} {value}"


def test_no_key_stands_in_a_repr():
    """What holds keys shows neither them nor their digests."""
    keys = load_keys(ServerConfig(), {ENV: THREE})
    texts = shown(keys) + shown(access()) + shown(access().caller({"x-api-key": AGENT})) + shown(vars(access()).keys())

    assert not any(secret in texts for key in (AGENT, BOSS, LOCAL) for secret in (key, digest(key).hex()))
    assert repr(access()) == "Access(3 keys, allow_open=False)"


def test_no_key_stands_in_an_api_error_or_in_the_log(caplog):
    """A refused request's error and the log don't repeat what was sent."""
    caplog.set_level(logging.DEBUG)
    sent = "sk-somebody-elses-0123456789"
    caught = refusal_of(access().caller, {"x-api-key": sent})
    assert sent not in shown(caught) + str(caught.body()) + str(caught.headers()) + caplog.text


OPEN = [None, "", "0.0.0.0", "::", "192.168.1.5", "10.0.0.1", "::ffff:8.8.8.8", "example.org", "localhost.example.org"]
CLOSED = ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]


@pytest.mark.parametrize("host", OPEN)
def test_without_keys_only_loopback_is_listened_on_and_may_ask(host):
    """Any other host is refused in one line that says what to do, and a peer from elsewhere is a 403; with keys, or
    when it is meant, neither is."""
    with pytest.raises(ConfigError, match="is not loopback and no API keys are configured") as caught:
        access("").refuse_host(host)
    barred = refusal_of(access("").guard, host, {})

    assert "\n" not in str(caught.value)
    assert (barred.status, barred.code) == (403, "forbidden")
    for opened in (access(), access("", allow_open=True)):
        opened.refuse_host(host)
        opened.guard(host, {})
    assert access("", allow_open=True).is_open_on(host)
    assert not access(THREE, allow_open=True).is_open_on(host)


@pytest.mark.parametrize("host", CLOSED)
def test_loopback_needs_no_keys(host):
    """The shipped configuration starts without any."""
    access("").refuse_host(host)
    access("").guard(host, {})

    assert not access("").is_open_on(host)


OWN = [
    "127.0.0.1:8000", "localhost", "LOCALHOST:8000", "[::1]:8000", "http://localhost:3000", "host.docker.internal:8000"
]  # fmt: skip
FOREIGN = [
    "evil.example:8000", "https://evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.5:8000",
    "null", "[",
]  # fmt: skip


@pytest.mark.parametrize("name", ["host", "origin"])
@pytest.mark.parametrize(("named", "good"), [*((one, True) for one in OWN), *((one, False) for one in FOREIGN)])
def test_without_keys_no_web_page_may_ask(name, named, good):
    """A browser on this machine is a peer on loopback. A page from elsewhere is known by its `Origin`, or, where its
    name was turned into this machine's address, by its `Host`; with keys, or where the door is open, neither counts."""
    access().guard("127.0.0.1", {name: named})
    access("", allow_open=True).guard("127.0.0.1", {name: named})
    if good:
        access("").guard("127.0.0.1", {name: named})
        return
    with pytest.raises(ApiError, match=f"the request's {name.title()} header names another one"):
        access("").guard("127.0.0.1", {name: named})


FILE = """
http_options: {{host: {host}, port: {port}}}
applications:
- import_path: 'deployments.app:build'
  args:
    tiers: {{fast: {{kind: scripted, script: []}}}}
    reliability: {{escalation: {{chain: [fast]}}}}
    server: {server}
  deployments: [{{name: Router, user_config: {{server: {patch}}}}}]
"""


OPENED = "warning: server.allow_open lets everybody who reaches 0.0.0.0:"


@pytest.mark.parametrize("command", ["check", "preflight"])
@pytest.mark.parametrize(
    ("host", "server", "patch", "value", "code", "said"),
    [
        ("127.0.0.1", "{}", "{}", "", 0, ""),
        ("0.0.0.0", "{}", "{}", "", 2, "c.yaml: http_options.host: 0.0.0.0 is not loopback"),
        ("0.0.0.0", "{}", "{}", f"a:{AGENT}", 0, ""),
        ("0.0.0.0", "{}", "{}", "a:short", 2, f"c.yaml: {ENV}: entry 1: the key must have"),
        ("127.0.0.1", "{}", "{}", "a:short", 2, f"c.yaml: {ENV}: entry 1: the key must have"),
        ("0.0.0.0", "{allow_open: true}", "{}", "", 0, OPENED),
        ("127.0.0.1", "{allow_open: true}", "{}", "", 0, ""),
        ("0.0.0.0", "{allow_open: true}", "{allow_open: false}", "", 2, "is not loopback"),
        ("0.0.0.0", "{}", "{allow_open: true}", "", 2, "is not loopback"),
        ("127.0.0.1", "{api_keys_file: /none/keys.yaml}", "{}", "", 2, "c.yaml: server.api_keys_file: can't be read"),
    ],
)
def test_the_file_check_holds_the_door(tmp_path, monkeypatch, capsys, command, host, server, patch, value, code, said):
    """`check` and `preflight` refuse what would be open, and keys that can't be used, before anything is started."""
    monkeypatch.setenv(ENV, value)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # the tests' own Ray has none
    path = tmp_path / "c.yaml"
    path.write_text(FILE.format(host=host, port=free_port(), server=server, patch=patch))

    assert __main__.main([command, str(path)]) == code
    assert said in capsys.readouterr().err or said == ""
