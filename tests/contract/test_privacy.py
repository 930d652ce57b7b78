"""What must not leave the machine doesn't, whatever fails; and the other terms that a request sets for itself.

`fast`, `longctx` and `cloud` in a row; all three are HTTP servers, so that each log is a witness. `cloud` is marked as
one that is elsewhere. Keys are on: `private` may not use the cloud.
"""

from typing import Any

import pytest

from tests.support import plays, scripts
from tests.support.http_asking import Outcome, ask, report_of, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.plays import Player
from tests.support.serving import Server, until
from tests.support.upstream import Upstream

KEYS = {name: f"sk-{name}-0123456789abcdef0123" for name in ("open", "private")}
LOCAL_ONLY = {"X-MLX-Stack-Local-Only": "true"}
SMALL, LONG = 200, 20_000
PRICES = {"usd_per_mtok_prompt": 3.0, "usd_per_mtok_completion": 15.0}


@pytest.fixture(scope="module")
def server(deploy, upstream, tmp_path_factory):
    fields = {name: {"admin": True, "allow_cloud": name == "open"} for name in KEYS}
    keys = scripts.write_keys(tmp_path_factory.mktemp("keys"), KEYS, **fields)
    tiers = {
        "fast": scripts.hosted(upstream, "fast/model", context_tokens=SMALL),
        "longctx": scripts.hosted(upstream, "longctx/model", context_tokens=LONG),
        "cloud": scripts.hosted(upstream, "cloud/model", cloud=True, context_tokens=LONG, **PRICES),
    }
    timeouts = scripts.QUICK | {"first_token_s": 1.0, "connect_s": 3.0}
    server = deploy(scripts.graph(tiers, timeouts=timeouts, server={"api_keys_file": keys}), "privacy")
    for name in ("fast", "longctx", "cloud"):
        until(lambda tier=name: asked(server, model=tier, stream=False).header("Tier") == tier, f"{name} answers")
    return server


def play(upstream: Upstream, **players: Player) -> None:
    """What each tier's model answers; those that aren't named answer with their name."""
    for name in ("fast", "longctx", "cloud"):
        upstream.plays(f"{name}/model", players.get(name, plays.good(f"Hello from {name}.")))


def asked(server: Server, text: str = "hi", *, key: str = "open", **options: Any) -> Outcome:
    outcome = ask(server, user(text), api_key=KEYS[key], **options)
    assert outcome.ends_as_it_should, outcome.wire
    return outcome


def models(upstream: Upstream, before: int) -> list[str]:
    return [seen.model.removesuffix("/model") for seen in upstream.log[before:]]


TERMS: dict[str, tuple[str, dict[str, str], str]] = {
    "header": ("open", LOCAL_ONLY, "X-MLX-Stack-Local-Only"),
    "key": ("private", {}, "API key may not use the cloud"),
    "both": ("private", LOCAL_ONLY, "X-MLX-Stack-Local-Only"),
    # A key's word can't be lifted by a header.
    "key-against-header": ("private", {"X-MLX-Stack-Local-Only": "false"}, "API key may not use the cloud"),
}
FAULTS: dict[str, Player] = {
    "500": plays.status(500),
    "429": plays.status(429),
    "401": plays.status(401),
    "cut": plays.cut(),
    "malformed": plays.malformed(0),
    "silence": plays.hang(),
    "too-long": plays.status(400, "maximum context length is 1", error_code="context_length_exceeded"),
    "empty": (plays.Head(headers=plays.SSE), *plays.tail()),
}


EACH = [*(("500", terms) for terms in TERMS), *((fault, "header") for fault in FAULTS if fault != "500")]


@pytest.mark.parametrize(("fault", "terms", "stream"), take_turns(EACH, STREAMS))
def test_whatever_fails_nothing_goes_to_the_cloud(server, upstream, fault, terms, stream):
    """Both local tiers fail, each way: the refusal names them, and says why the cloud wasn't asked; without the term
    the very same request is answered by the cloud."""
    key, headers, words = TERMS[terms]
    play(upstream, fast=FAULTS[fault], longctx=FAULTS[fault])
    before = len(upstream.log)
    outcome = asked(server, key=key, headers=headers, stream=stream)

    assert set(models(upstream, before)) == {"fast", "longctx"}
    assert outcome.status == 502 if fault == "500" else outcome.status >= 400
    assert "tier cloud is in the cloud" in outcome.error["message"]
    assert words in outcome.error["message"]
    assert asked(server, stream=stream).header("Tier") == "cloud"


@pytest.mark.parametrize(("terms", "stream"), take_turns(TERMS, STREAMS))
def test_where_only_the_cloud_is_left_the_request_is_refused(server, upstream, terms, stream):
    """Asked by name: a 400, no call, and no client sends it again: some do so at a 403."""
    key, headers, words = TERMS[terms]
    play(upstream)
    before = len(upstream.log)
    outcome = asked(server, model="cloud", key=key, headers=headers, stream=stream)

    assert (outcome.status, outcome.code, models(upstream, before)) == (400, "cloud_not_allowed", [])
    assert words in outcome.error["message"]
    assert outcome.headers["x-should-retry"] == "false"
    assert outcome.trail["Attempts"] == "0"


def test_a_private_request_is_answered_at_home(server, upstream, stream):
    """The term costs nothing where a local tier answers."""
    play(upstream)
    for key, headers, _ in TERMS.values():
        assert asked(server, key=key, headers=headers, stream=stream).text == "Hello from fast."


# -- the deadline ----------------------------------------------------------------------------------------------


def test_a_deadline_is_kept(server, upstream, stream):
    """Half a second for tiers that are silent for one: a 504 in time, and no tier is asked after it."""
    play(upstream, fast=plays.hang(), longctx=plays.hang())
    before = len(upstream.log)
    outcome = asked(server, headers={"X-MLX-Stack-Deadline": "0.5"}, stream=stream)

    assert (outcome.status, outcome.code) == (504, "deadline_exceeded")
    assert 0.5 <= outcome.elapsed_s < 1.0 + 5.0
    assert models(upstream, before) in ([], ["fast"])


def test_a_deadline_in_the_middle_of_a_stream_is_an_error_frame(server, upstream):
    """Text stands, the time is up: the stream says so."""
    play(upstream, fast=plays.hang(2))
    outcome = asked(server, headers={"X-MLX-Stack-Deadline": "0.9"}, stream=True)

    assert (outcome.status, outcome.code, outcome.text) == (200, "stream_broken", "w0 w1")


# -- long prompts ----------------------------------------------------------------------------------------------


def test_a_long_prompt_goes_to_the_tier_that_holds_it(server, upstream, stream):
    """At once: the small tier isn't called, nothing counts as a retry, and the reason is told."""
    play(upstream)
    before = len(upstream.log)
    outcome = asked(server, "word " * 3_000, stream=stream)

    assert models(upstream, before) == ["longctx"]
    trail = {"Tier": "longctx", "Escalated-From": "fast", "Escalation-Reason": "context_length"}
    assert outcome.trail == trail | {"Retries": "0", "Attempts": "1"}
    assert report_of(server, outcome, headers={"x-api-key": KEYS["open"]})["attempts"][0]["ran"] is False


def test_a_prompt_that_no_tier_holds_is_refused(server, upstream, stream):
    """400, the code that agents know, no call at all."""
    play(upstream)
    before = len(upstream.log)
    outcome = asked(server, "word " * 200_000, stream=stream)

    assert (outcome.status, outcome.code) == (400, "context_length_exceeded")
    assert models(upstream, before) == []


def test_a_private_prompt_that_is_too_long_at_home_says_both(server, upstream):
    """The tiers that can't hold it, and the one that may not see it, each with its reason."""
    play(upstream)
    before = len(upstream.log)
    outcome = asked(server, "word " * 200_000, headers=LOCAL_ONLY, stream=False)

    assert outcome.status in (400, 403)
    assert models(upstream, before) == []
    assert "tier fast" in outcome.error["message"]
    assert "tier cloud is in the cloud" in outcome.error["message"]


def test_what_the_cloud_costs_is_told(server, upstream):
    """A call of the cloud is counted with its tokens and its price; a request at home costs nothing."""
    play(upstream)
    admin = {"headers": {"x-api-key": KEYS["open"]}}
    home = report_of(server, asked(server, headers=LOCAL_ONLY, stream=False), **admin)
    away = report_of(server, asked(server, model="cloud", stream=False), **admin)

    usage = plays.USAGE
    cost_usd = (3.0 * usage["prompt_tokens"] + 15.0 * usage["completion_tokens"]) / 1e6
    assert (home["tier"], home["cost_usd"]) == ("fast", None)
    assert (away["tier"], away["cost_usd"]) == ("cloud", pytest.approx(cost_usd))
