"""The commands for operators, on the real routes: what they print, their JSON, and how they end."""

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deployments.__main__ import main
from deployments.api.access import Access
from deployments.api.api_keys import ApiKey, digest
from deployments.cli import admin_commands as commands
from deployments.cli.admin_commands import _list_sessions, _show_request, _show_timeline, _table, ask_server
from deployments.cli.commands import cli
from deployments.cli.server_client import KEY, LINES_MAX, ServerClient, plain
from deployments.config.config_errors import ConfigError
from deployments.state.history import RequestQuery
from deployments.ui.timeline import tell
from reliability.admission.events import Order
from reliability.types import Prefilled
from tests.support.room_rig import Rig, attempt, browse, report
from tests.support.run_values import request_of, run_of

BOSS, AGENT = "sk-boss-0123456789abcdef0123", "sk-agent-0123456789abcdef0123"
KEYS = Access((ApiKey(name="boss", sha256=digest(BOSS), admin=True), ApiKey(name="agent", sha256=digest(AGENT))))
NAMES = st.sampled_from(["data", "tiers", "attempts", "windows", "id", "at", "name", "day", "state", "key", "session"])
AWAY: dict[str, Any] = {"tier": "standard", "escalated_from": "fast", "escalation_reason": "loop_detected"}
AWAY |= {"attempts": [attempt(flaw="loop"), attempt("standard", at_ms=600)], "loop": "nudged"}
LOOP = {"at": 1.8e9, "kind": "loop", "tier": "fast", "session": "s", "key": "", "request_id": "r2", "reason": "loop"}
LOOP |= {"attempt": 0, "evidence": {"laps": 3, "loop": "calls", "tools": ["get_weather"]}}
Run = Callable[..., int]


@pytest.fixture
def rig(request, tmp_path) -> Rig:
    made = Rig(tmp_path, getattr(request, "param", None))
    made.finish("r1")
    made.finish("r2", (LOOP,), **AWAY)
    return made


@pytest.fixture
def run(rig: Rig) -> Iterator[Run]:
    """Run a command as it is typed, over the app itself."""
    with browse(rig) as browser:

        def pass_on(asked: httpx.Request) -> httpx.Response:
            """The app's own client is of another library: this is the wire between the two."""
            got = browser.get(str(asked.url), headers={"authorization": asked.headers.get("authorization", "")})
            return httpx.Response(got.status_code, content=got.content)

        def typed(*words: str, key: str = "") -> int:
            environ = {KEY: key} if key else {}
            client = ServerClient("http://127.0.0.1:8000", environ, transport=httpx.MockTransport(pass_on))
            return ask(client, *words)

        yield typed


def ask(client: ServerClient, *words: str) -> int:
    """Run a command as it is typed, but for the server that it asks."""
    given = cli.commands[words[0]].make_context(words[0], list(words[1:])).params
    return ask_server(
        client, words[0], **{name: value for name, value in given.items() if name not in ("url", "config")}
    )


def test_status_shows_how_far_a_prompt_is_read(run, rig, capsys):
    """With the time that is left."""
    reading = run_of(request_of("hi", request_id="r3"), tier="fast")
    prefill = Prefilled(tokens=12_288, of_tokens=40_000, left_s=43.2)
    current: Any = SimpleNamespace(ttft_ns=None, end=None, spending=None, prefilling=prefill)
    reading.current = current
    rig.stopping._running = [SimpleNamespace(run=reading)]
    run("status")

    assert "r3 at fast: prefill 12,288 of 40,000 tokens, about 43 s left" in capsys.readouterr().out


def test_status_fails_where_no_tier_can_answer(run, rig, capsys):
    """So that a script sees it."""
    for tier in rig.tiers:
        rig.here.actor.order(Order(tier, "isolate"))
    rig.overview.state.health = rig.here.actor._health()

    assert run("status") == 1
    assert "isolated" in capsys.readouterr().out


def test_why_tells_the_request_in_steps(run, capsys):
    """What went wrong in each call, and what came of it; as JSON the report with its incidents."""
    assert run("why", "r2") == 0
    out = capsys.readouterr().out
    assert "1. fast: loop" in out
    assert "A loop: get_weather, 3 times" in out
    assert "2. standard: good" in out

    assert run("why", "r2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["report"]["request_id"], [one["kind"] for one in told["incidents"]]) == ("r2", ["loop"])


@pytest.mark.parametrize("rig", [KEYS], indirect=True)
@pytest.mark.parametrize(("key", "shown"), [(BOSS, False), (AGENT, True)])
def test_why_quotes_a_call_to_its_own_client_alone(run, rig, capsys, key, shown):
    """An operator sees what a page shows: texts where incidents keep them. What is one's own one may read. White space
    around a key is none of it: a file that it was read from ends in a new line."""
    rig.finish("mine", key="agent", attempts=[attempt(flaw="loop", detail="a word of the call"), attempt()])

    assert run("why", "mine", key=f"{key}\n") == 0
    assert ("a word of the call" in capsys.readouterr().out) is shown


def test_logs_lists_and_goes_on(run, rig, capsys, monkeypatch):
    """The newest last; with -f each that comes, once, until Ctrl-C."""
    assert run("logs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1 if "(" not in line else -4] for line in lines]
    assert "r1" in lines[0]
    assert "fast!→standard" in lines[1]

    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt
        rig.finish(f"new{len(waits)}")

    monkeypatch.setattr(commands.time, "sleep", wait)
    with pytest.raises(KeyboardInterrupt):
        run("logs", "-f", "--json")
    shown = [json.loads(line)["request_id"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["r1", "r2", "new1", "new2"]


def test_logs_goes_on_with_all_that_came(run, rig, capsys, monkeypatch):
    """Also where more have ended since it last asked than a page holds; -n 0 begins with none."""
    many = LINES_MAX + 7

    def wait(_: float) -> None:
        if rig.here.actor.browse(RequestQuery(session="many", limit=1)):
            raise KeyboardInterrupt
        for n in range(many):
            rig.finish(f"m{n}", session="many")

    monkeypatch.setattr(commands.time, "sleep", wait)
    with pytest.raises(KeyboardInterrupt):
        run("logs", "-f", "-n", "0", "--json")
    shown = [json.loads(line)["request_id"] for line in capsys.readouterr().out.splitlines()]
    assert shown == [f"m{n}" for n in range(many)]


@pytest.mark.parametrize("command", ["logs", "sessions", "incidents"])
@pytest.mark.parametrize(("lines", "count"), [("0", 0), ("1", 1)])
def test_as_many_lines_as_were_asked_for(run, capsys, command, lines, count):
    """And none is a number, too."""
    assert run(command, "--json", "-n", lines) == 0
    out = capsys.readouterr().out
    assert (len(out.splitlines()) if command == "logs" else len(json.loads(out))) == count


@pytest.mark.parametrize("lines", ["-1", "501", "x", "1.5", "", "9" * 5000])
def test_what_is_no_number_of_lines_is_said(capsys, lines):
    """More than a server gives at once is no silent 500."""
    assert main(["logs", "-n", lines]) == 2
    assert "Error: Invalid value for '-n' / '--lines'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        *(("sessions", "s "), ("sessions s", "session: "), ("incidents --kind loop", "r2")),
        *(("incidents --kind usage --json", "[]\n"), ("status", "fast-model"), ("status", "standard")),
        *(("status", "premium"), ("status", "last 24 h: 2 requests"), ("status", "1 with loops")),
    ],
)
def test_what_there_is_is_listed(run, capsys, line, shown):
    """As lines for people, as JSON for programs: sessions, one with its budget, incidents, every tier with what runs,
    the last day. `status` succeeds where a tier can answer."""
    assert run(*line.split()) == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "key", "said"),
    [
        (("why", "nobody"), "", "there is no report of request 'nobody'"),
        (("status",), "", "the key is read from MLX_STACK_API_KEY"),
        (("status",), AGENT, "is no admin's"),
    ],
)
def test_a_refusal_is_one_line(run, rig, capsys, words, key, said):
    """That names the way out; nothing goes to standard output."""
    if "nobody" not in words:
        rig.access = KEYS
    assert run(*words, key=key) == 1
    out, err = capsys.readouterr()

    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(httpx.ConnectError("refused"), httpx.InvalidURL("URL too long"), UnicodeError("label empty or too long")),
        *(httpx.Response(200, text=text) for text in ("<html>", "[" * 100_000, "[1]", "{}")),
        # LM Studio says so, with 200, of any route that it doesn't know; Ollama in the same form with 404.
        httpx.Response(200, json={"error": "Unexpected endpoint or method. (GET /v1/reliability/live)"}),
        httpx.Response(404, json={"error": "not found"}),
        httpx.Response(500, json={"error": None}),
        httpx.Response(500, json={"error": {"message": "two\nlines, \x1b[2J and a jump"}}),
        httpx.Response(307, headers={"location": "/login"}),
    ],
)
@pytest.mark.parametrize("command", ["status", "why r", "logs"])
def test_a_server_that_is_none_is_one_line(capsys, answer, command):
    """Nobody there, or somebody else; and nothing that a terminal would obey."""

    def reply(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = ServerClient("http://127.0.0.1:8000", {}, transport=httpx.MockTransport(reply))

    assert ask(client, *command.split()) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.rstrip("\n").isprintable()) == ("", 1, True)
    assert "says: not found" in err or getattr(answer, "status_code", 0) != 404  # an error that is a text is shown


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=6,
)


@given(
    st.dictionaries(NAMES, values), st.sampled_from(["status", "why r", "logs", "sessions", "sessions s", "incidents"])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_answer_of_any_shape_is_no_traceback(capsys, body, command):
    """A server of another kind, or of another version, that answers 200: what can't be read is one line, and nothing
    of it is printed before."""
    answer = httpx.MockTransport(lambda _: httpx.Response(200, content=json.dumps(body)))
    code = ask(ServerClient("http://127.0.0.1:8000", {}, transport=answer), *command.split())
    out, err = capsys.readouterr()

    assert code in (0, 1)
    assert err.count("\n") == (0 if out or code == 0 else 1)
    assert "8000" in err or not err


@pytest.mark.parametrize("key", ["schlüssel", "sk-\udcff", "sk-one\nx-other: two", "sk a b"])
def test_a_key_that_no_header_can_hold_is_one_line(key):
    """That names the variable, and repeats nothing of the key."""
    with pytest.raises(ConfigError) as caught:
        ServerClient("http://127.0.0.1:8000", {KEY: key})
    assert str(caught.value).startswith(KEY)
    assert key not in str(caught.value)


EVIL = "\x1b[2Jgone\r\n\x07"


@given(st.lists(st.lists(st.text("abc ü", max_size=8), min_size=3, max_size=3), max_size=5))
def test_columns_stand_below_one_another(rows):
    """Each cell begins where its head does."""
    lines = _table(("one", "two", "three"), rows)
    at = lines[0].index("three")

    assert len(lines) == len(rows) + 1
    assert all(line[at:].rstrip() == row[2].rstrip() for line, row in zip(lines[1:], rows, strict=True))


@given(text=st.text())
@example(text=EVIL)
def test_a_client_s_words_stay_words(text):
    """In every kind of line: whatever was a control character is a mark, and what can be read stays."""
    assert all(old == new or not old.isprintable() for old, new in zip(text, plain(text), strict=True))
    evil = report(text, session=text, at=1.8e9, notes=[text], attempts=[attempt(text, flaw="loop", detail=text)])
    session = {"session": text, "key": "", "requests": 1, "prompt_tokens": 1, "completion_tokens": 1}
    session |= {"cost_usd": 0.0, "used_s": 1.8e9}
    lines = [_show_request(evil), *_show_timeline(evil, tell(evil, [], keep_text=True)), *_list_sessions([session])]

    assert all(line.isprintable() for line in [plain(text), *lines])
    # A request's line has its day, as an incident's has: 500 lines may reach back for weeks.
    assert _show_request(report(at=1.8e9)) != _show_request(report(at=1.8e9 + 86_400))
