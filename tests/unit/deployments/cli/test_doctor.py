"""The doctor finds a chain that is only configured and doesn't work."""

import socket
from pathlib import Path
from typing import Any

import pytest

from deployments import __main__
from deployments.cli import doctor
from deployments.cli.doctor import BEGUN, TOKENS, _check_prefill, _Finding
from deployments.config.app_config import AppConfig, load
from tests.support.config_files import write_config
from tests.support.plays import Player, good, status
from tests.support.upstream import Upstream

TIER = {"kind": "scripted", "script": []}


def config(**escalation: object) -> AppConfig:
    """A chain of three tiers, with these settings of its escalation."""
    tiers = {"fast": TIER, "standard": TIER, "premium": {"kind": "hosted", "preset": "openrouter"}}
    return load(
        {"tiers": tiers, "reliability": {"escalation": {"chain": ["fast", "standard", "premium"]} | escalation}}
    )


def test_the_report_and_its_exit_code(capsys, monkeypatch):
    """All findings are printed, the missing key by its name; only a failure makes the exit code 1."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    good = doctor.doctor(config(), Path("serve_config.yaml"))
    out = capsys.readouterr().out
    bad = doctor.doctor(config(escalate_on=[]), Path("serve_config.yaml"))

    assert (good, bad) == (0, 1)
    assert "warn  tier premium: unavailable: OPENROUTER_API_KEY is not set" in out
    assert "platform: " in out
    assert "memory: " in out


def test_a_model_whose_calls_cant_be_read_is_a_warning(tmp_path, monkeypatch):
    """The doctor says it of what is on disk, before the tier has started; a tokenizer that can't be loaded too."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    unreadable, _ = doctor._check_model("fast", f"path:{tmp_path}")
    monkeypatch.setattr(doctor, "check_calls_on_disk", lambda folder: f"its calls in {folder.name} can't be read")
    warned, _ = doctor._check_model("fast", f"path:{tmp_path}")
    monkeypatch.setattr(doctor, "check_calls_on_disk", lambda folder: None)
    good, _ = doctor._check_model("fast", f"path:{tmp_path}")

    assert (unreadable.level, warned.level, good.level) == ("warn", "warn", "ok")
    assert "its tokenizer can't be loaded" in unreadable.words
    assert f"its calls in {tmp_path.name} can't be read" in warned.words


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        *(({}, set()), ({"escalate_on": []}, {"a 500", "a hang", "a cut connection"})),
        ({"escalate_on": ["server_error"]}, {"a hang"}),
        ({"escalate_on": ["timeout"]}, {"a 500", "a cut connection"}),
    ],
)
def test_an_edge_that_does_not_work_is_found(changes, broken):
    """Each fault on each edge's head is answered by the next tier. An `escalate_on` that lacks a reason makes the edges
    fail that need it; the line says so. A chain that is switched off is no failure, and no silence either."""
    findings = list(doctor._check_edges(config(**changes)))
    failed = [f.words for f in findings if f.level == "fail"]

    assert len(findings) == 2 * len(doctor.FAULTS)
    assert {words.partition(" on ")[0] for words in failed} == broken
    assert {f.level for f in findings} <= {"ok", "fail"}
    assert all("escalate_on: " in words for words in failed)
    assert [f.level for f in doctor._check_edges(config(enabled=False))] == ["warn"]


REFUSAL = "This model does not support assistant message prefill. The conversation must end with a user message."
BEGINNINGS = ("One, two, three, four, five", "one, two, three", "1, 2, 3", "Sure! Here they are: one", "eleven, twelve")


def check(base_url: str, *, ask: bool = True, **keys: Any) -> _Finding:
    """What is said of one hosted tier there."""
    tier = {"kind": "hosted", "base_url": base_url, "model": "m", **keys}
    config = load({"tiers": {"premium": tier}, "reliability": {"escalation": {"chain": ["premium"]}}})
    [finding] = _check_prefill(config, ask=ask)
    assert finding.what == "tiers.premium.continues"
    return finding


def try_play(player: Player, how: str | None) -> _Finding:
    """What is said of a tier whose upstream answers so."""
    with Upstream() as upstream:
        upstream.plays("m", player)
        return check(upstream.base_url, continues=how)


@pytest.mark.parametrize("said", [" fourteen, fifteen", "Fourteen, fifteen", f"{BEGUN} fourteen", " 14, 15"])
def test_an_upstream_that_goes_on_honours_a_prefill(said):
    """Law: also where it says again what stands. A prefill is good, and an anchor could be one."""
    prefill, anchor = try_play(good(said), "prefill"), try_play(good(said), "anchor")

    assert (prefill.level, anchor.level) == ("ok", "ok")
    assert "honours a prefill" in prefill.words
    assert "`tiers.premium.continues: prefill` would go on to the letter" in anchor.words


UNFIT = {said: (good(said), "") for said in (*BEGINNINGS, BEGUN[:30], "")}
UNFIT |= {f"{code}": (status(code, REFUSAL), f"refuses a prefill ({code}: ") for code in (400, 422)}


@pytest.mark.parametrize("case", UNFIT)
def test_an_upstream_without_a_prefill_fails_where_one_is_configured(case):
    """Law: whatever it says but the next number, nothing too; a refusal with the upstream's own words. The way out is
    named: an anchor is right then, also unset."""
    player, words = UNFIT[case]
    prefill, anchor, unset = (try_play(player, how) for how in ("prefill", "anchor", None))

    assert (prefill.level, anchor.level, unset.level) == ("fail", "ok", "ok")
    assert "set `tiers.premium.continues: anchor`" in prefill.words
    assert "an anchor is right" in anchor.words
    assert words in prefill.words
    assert (REFUSAL in prefill.words) is bool(words)


@pytest.mark.parametrize("how", ["prefill", "anchor", None])
def test_an_upstream_that_is_down_tells_nothing(how):
    """Law: no connection, no credit and a broken server are no verdict on a prefill: a warning that says why."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening
        down = check(f"http://127.0.0.1:{nobody.getsockname()[1]}/v1", continues=how)
    broken, unpaid = try_play(status(500), how), try_play(status(402, "no credit"), how)

    assert {down.level, broken.level, unpaid.level} == {"warn"}
    assert all("can't be told: tier premium" in one.words for one in (down, broken, unpaid))


def test_one_short_request_and_only_if_told_to(monkeypatch):
    """Law: nothing is sent unasked, however the tier is configured, and the line says how to ask; nor without a key: a
    tier that couldn't answer isn't asked. Then it is one request, bounded, that ends in an unfinished message of the
    model's own."""
    monkeypatch.delenv("MLX_STACK_TEST_KEY", raising=False)
    with Upstream() as upstream:
        keyless = check(upstream.base_url, api_key_env="MLX_STACK_TEST_KEY")
        quiet = check(upstream.base_url, ask=False)
        assert upstream.log == []
        check(upstream.base_url)
        [seen] = upstream.log

    assert keyless.level == "warn"
    assert "MLX_STACK_TEST_KEY is not set" in keyless.words
    assert quiet.level == "ok"
    assert quiet.words.startswith("anchor, since nothing is set (no request was sent; `doctor --ask`")
    assert seen.body["messages"][-1] == {"role": "assistant", "content": BEGUN}
    assert seen.body["max_tokens"] == TOKENS


def test_the_command_asks_with_its_flag(tmp_path, capsys):
    """The exit code is 1 where a prefill is configured and not honoured, and only once it was tried."""
    with Upstream() as upstream:
        upstream.plays("m", good("One, two, three"))
        tier = {"kind": "hosted", "base_url": upstream.base_url, "model": "m", "continues": "prefill"}
        path = write_config(tmp_path / "c.yaml", {"premium": tier})

        assert __main__.main(["doctor", str(path)]) == 0
        assert upstream.log == []
        assert __main__.main(["doctor", str(path), "--ask"]) == 1

    assert "fail  tiers.premium.continues: prefill: the upstream begins anew" in capsys.readouterr().out
