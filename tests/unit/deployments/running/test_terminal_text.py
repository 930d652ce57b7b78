"""What the commands write: text, and nothing that a terminal would obey."""

import io
import json
from contextlib import redirect_stdout
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.__main__ import main
from deployments.running.session_leader import _BoundedLog
from deployments.running.status_messages import RunStatus, ServerPlace, failure, read_news
from deployments.running.supervisor import _Supervisor
from deployments.running.terminal_text import LINE_START, TerminalText, clean_text
from tests.support.config_files import make_document
from tests.support.loopback import LoopbackHandler, LoopbackServer
from tests.support.room_rig import attempt, report

ESC = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e"
OBEYED = ("\x1b", "\x07", "\x9b", "\x08", "\x7f", "\r", "\u202e", "\u2028")


def is_plain(text: str) -> bool:
    return not any(mark in text for mark in OBEYED)


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    """Law: whatever is written, what arrives has no control character but line breaks and tabs, and words stay."""
    cleaned = clean_text(text + ESC)

    assert is_plain(cleaned)
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize("text", ["a line\n\tand a tab", "größer – 模型 🙂 é\u0301", "100 %\u00a0fertig", "1 → 2"])
def test_words_stay_as_they_are(text: str) -> None:
    """Counter-case: text of any language, line breaks and tabs arrive unchanged."""
    assert clean_text(text) == text


@pytest.mark.parametrize("start", ["", LINE_START, "\r"])
@pytest.mark.parametrize("end", ["", "\r", "\n"])
@pytest.mark.parametrize("way", ["write", "writelines", "print", "echo", "bytes"])
def test_every_way_to_write_is_cleaned(way: str, start: str, end: str) -> None:
    """Law: however it is written. Counter-case: a line of this server's own may be written over."""
    out = io.StringIO()
    terminal: Any = TerminalText(out)
    text = f"{start}a{ESC}\rb{end}"
    match way:
        case "write":
            terminal.write(text)
        case "writelines":
            terminal.writelines([text])
        case "print":
            print(text, end="", file=terminal)
        case "echo":
            click.echo(text, file=terminal, nl=False)
        case "bytes":
            click.echo(text.encode(), file=terminal, nl=False)
    written = out.getvalue()

    assert written.startswith(start) or way == "echo"  # click takes colors out by itself where it's no terminal
    assert is_plain(written.removeprefix(LINE_START).removeprefix("\r").removesuffix("\r"))


def test_a_log_that_is_shown_is_cleaned_wherever_it_is_cut(tmp_path, capfd) -> None:
    """Law: `serve --verbose` shows what Ray and models write, however the bytes come; the file has them as they are."""
    data = f"\x1b[36m(pid=1)\x1b[0m größer {ESC}\r\n50 %\r100 %\n".encode()
    for step in (1, 2, 7, len(data)):
        log = _BoundedLog(tmp_path / f"{step}.log", shown=True)
        for at in range(0, len(data), step):
            log.write(data[at : at + step])
        shown = capfd.readouterr().out
        assert is_plain(shown)
        assert "größer" in shown
        assert shown.endswith("50 %\n100 %\n")
        assert (tmp_path / f"{step}.log").read_bytes() == data


TIER = {"name": ESC, "state": "ready", "isolated": False, "breaker": ESC, "writing": 0, "asked": 0, "tokens_s": 0.0}
TIER |= {"cached_share": None, "requests_hour": 0, "model": ESC, "kind": ESC, "reason": ESC, "place": 0, "source": ESC}
SUMS = ("requests", "answered", "escalated", "mended", "looped", "prompt_tokens", "completion_tokens")
LIVE = {
    "tiers": [TIER],
    "running": [],
    "state_actor": ESC,
    "day": dict.fromkeys(SUMS, 0) | {"cost_usd": 0.0},
    "memory": {
        "nodes": {ESC: {"level": ESC, "leased_bytes": 1, "budget_bytes": 2}},
        "waiting": {ESC: ESC},
        "capped": {ESC: ESC},
    },
}
SESSION = {"session": ESC, "spent_tokens": 1, "reserved_tokens": 0, "open_calls": 0, "key": ESC, "parent": ESC}
SESSION |= {"windows": {ESC: {"tokens": 1, "tokens_max": 2}}, "requests": 1, "prompt_tokens": 1}
SESSION |= {"completion_tokens": 1, "cost_usd": 0.0, "last_request_id": ESC, "used_s": 1.8e9}
ATTEMPT = attempt(ESC, flaw=ESC, detail=ESC, seam=None)
REPORT = report(ESC, session=ESC, key=ESC, outcome=ESC, tier=ESC, notes=[ESC], repairs=[ESC], loop=ESC)
REPORT |= {"attempts": [ATTEMPT], "escalated_from": ESC, "escalation_reason": ESC, "at": 1.8e9, "id": 1}
INCIDENT = {"at": 1.8e9, "kind": ESC, "tier": ESC, "reason": ESC, "session": ESC, "key": ESC, "request_id": ESC}
INCIDENT |= {"id": 1, "evidence": {ESC: ESC}, "attempt": 0}


class _Foreign(LoopbackHandler):
    def get(self) -> None:
        path = self.path.partition("?")[0]
        one = {"live": LIVE, "r": REPORT, "s": SESSION}.get(path.rsplit("/", 1)[-1])
        listed = {"requests": REPORT, "sessions": SESSION, "incidents": INCIDENT, "models": {"id": ESC}}
        rows = [listed.get(path.rsplit("/", 1)[-1], TIER)]
        self.reply(json.dumps(one or {"object": "list", "data": rows, "next": None}).encode())


@pytest.mark.parametrize("command", ["status", "logs", "why r", "sessions", "sessions s", "incidents", "agents codex"])
def test_no_command_passes_on_what_a_foreign_server_sends(command: str, capfd) -> None:
    """Law: whatever another server names its tiers, sessions, levels and limits, the terminal obeys none of it."""
    with LoopbackServer(_Foreign) as server:
        main([*command.split(), "--url", server.url])
    out, err = capfd.readouterr()

    assert is_plain(out + err)
    assert out + err


@pytest.mark.parametrize("command", ["check", "doctor", "models", "preflight", "prepare", "pull"])
def test_no_command_passes_on_what_a_repository_names(command: str, tmp_path, monkeypatch, capfd) -> None:
    """Law: a `serve_config.yaml` that was cloned may name models, tiers and folders as it likes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # the tests' own Ray has none
    hosted = {"kind": "hosted", "base_url": "http://127.0.0.1:1/v1", "model": f"m{ESC}"}
    named = make_document(tiers={"fast": {"kind": "mlx", "model": f"path:/nowhere/x{ESC}"}, "standard": hosted})
    strange = make_document(tiers={f"fast{ESC}": {"kind": ESC}}) | {ESC: ESC}
    for document in (named, strange):
        text = json.dumps(document)
        (tmp_path / "serve_config.yaml").write_text(text, encoding="utf-8")
        main(command.split())
        out, err = capfd.readouterr()

        assert is_plain(out + err)


def test_a_start_passes_on_nothing_that_a_model_says() -> None:
    """Law: `serve` says in the words of a model's files why a tier can't answer; the terminal obeys none of them."""
    out = io.StringIO()
    news = {"tiers": {"fast": {"state": "unavailable", "model": ESC, "reason": f"template: {ESC}"}}, "failed": ESC}
    with redirect_stdout(TerminalText(out)):
        supervisor = _Supervisor(ServerPlace(url="http://127.0.0.1:1", config=ESC, log=ESC))
        supervisor.say(*read_news(RunStatus(), json.dumps(news).encode()), failure([ESC]))

    assert "template: " in out.getvalue()
    assert is_plain(out.getvalue())
