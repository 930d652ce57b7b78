"""A hosted tier before a provider: what goes up and comes back, and every way to go wrong, with the limits as shipped.

Each case plays one fault on a real HTTP server in OpenRouter's place and looks at three things: what the client gets
(status, code, headers, how the stream ends), how long it takes, and how many calls the upstream's own log holds. The
times of the limits are scaled down (a retry budget of one second in place of a minute); each case begins with a tier
that is well, so the limits must change nothing about one fault. What they make of many is `test_tier_health`'s.
"""

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from deployments.config.free_port import free_port
from tests.conftest import UPSTREAM_KEY
from tests.support import plays, scripts
from tests.support.http_asking import Outcome, ask, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.plays import Player
from tests.support.serving import Server, until
from tests.support.upstream import Upstream

MODEL, ALONE = "some/model", "alone/model"
TIMEOUTS = {"connect_s": 3.0, "first_token_s": 1.0, "idle_s": 1.0, "total_s": 20.0}
FOREVER_S = 30.0
BOUND_S = 10.0  # far from what hangs for ever, with room for a busy machine
FLOOR, WINDOW_S = 10, 1.0
# As shipped, but in shorter windows.
SCALED: dict[str, Any] = {"tier_health": {"rate_window_s": WINDOW_S}, "retry_budget": {"window_s": WINDOW_S}}
TOO_LONG = plays.status(400, "maximum context length is 4096 tokens", error_code="context_length_exceeded")
MODERATED = plays.whole(
    json.dumps({"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"]}}}).encode(),
    status_code=403,
)
FILTERED = (plays.Head(headers=plays.SSE), *plays.words("As far as I may"), *plays.tail("content_filter"))


@dataclass
class Room:
    """One app on the upstream. `extras`: when it has made calls beyond the first, for the sake of its retry budget."""

    server: Server
    upstream: Upstream
    extras: deque[float] = field(default_factory=deque)

    def play(self, player: Player, *, model: str = "premium", stream: bool, **fields: Any) -> tuple[Outcome, int]:
        """The outcome of one request and the calls that the upstream saw, from a tier that is well."""
        self._calm(model)
        self.upstream.plays(ALONE if model == "alone" else MODEL, player)
        before = len(self.upstream.log)
        outcome = ask(self.server, user("hi"), model=model, stream=stream, **fields)
        calls = len(self.upstream.log) - before
        self.extras += [time.monotonic()] * int(outcome.header("Retries") or 0)
        assert outcome.ends_as_it_should, outcome.wire
        assert outcome.elapsed_s < BOUND_S
        return outcome, calls

    def _calm(self, model: str) -> None:
        """The breaker is closed and forgets its failures; the retry budget has room."""
        self.upstream.plays(MODEL, plays.good())
        self.upstream.plays(ALONE, plays.good())
        until(lambda: self.answers("premium" if model == "refused" else model), "the tier is well")
        until(self._has_room, "the retry budget has room")

    def answers(self, tier: str) -> bool:
        """Whether this very tier gives an answer."""
        outcome = ask(self.server, user("hi"), model=tier, stream=False)
        return outcome.status == 200 and outcome.header("Tier") == tier

    def _has_room(self) -> bool:
        while self.extras and self.extras[0] < time.monotonic() - 1.5 * WINDOW_S:
            self.extras.popleft()
        return len(self.extras) <= FLOOR - 4


@pytest.fixture(scope="module")
def room(deploy, upstream):
    """`premium` and then `backup`; before them `refused`, where nobody listens; `alone` outside of the chain."""
    hosted = scripts.hosted(upstream, MODEL, preset="openrouter", timeouts=TIMEOUTS)
    tiers = {
        "refused": hosted | {"base_url": f"http://127.0.0.1:{free_port()}/v1"},
        "premium": hosted,
        "backup": scripts.tier("backup"),
        "alone": hosted | {"model": ALONE},
    }
    # How a broken text is gone on with is test_continuing's.
    limits = SCALED | {"escalation": {"continuations_max": 0}}
    return Room(deploy(scripts.graph(tiers, ["refused", "premium", "backup"], **limits), "matrix"), upstream)


def from_backup(reason: str, *, calls: int) -> dict[str, str]:
    """The headers of an answer that `backup` gave after so many calls of `premium`."""
    way = {"Tier": "backup", "Escalated-From": "premium", "Escalation-Reason": reason}
    return way | {"Retries": str(calls), "Attempts": str(calls + 1)}


# Before any text: (play, calls of the upstream, reason).
BEFORE: dict[str, tuple[Player, int, str]] = {
    "reset": (plays.cut(), 2, "server_error"),
    "ends-early": (plays.ends_early(0), 2, "server_error"),
    "malformed": (plays.malformed(0), 2, "server_error"),
    "error-frame": (plays.error_frame(0), 2, "server_error"),
    "not-json": (plays.whole(b"<html>bad gateway</html>", status_code=502), 2, "server_error"),
    "500": (plays.status(500), 2, "server_error"),
    "503": (plays.status(503), 2, "server_error"),
    "503-told-when": (plays.status(503, headers={"Retry-After": "1"}), 1, "server_error"),
    "429": (plays.status(429), 1, "server_error"),
    "429-told-when": (plays.status(429, headers={"Retry-After": "1"}), 1, "server_error"),
    "401": (plays.status(401), 1, "server_error"),
    "402": (plays.status(402), 1, "server_error"),
    "slow-first-token": (plays.slow(FOREVER_S), 1, "timeout"),
    "slow-headers": (plays.slow(FOREVER_S, headers_too=True), 1, "timeout"),
    "silence": (plays.hang(), 1, "timeout"),
    "too-long": (TOO_LONG, 1, "context_length"),
}


@pytest.mark.parametrize(("fault", "stream"), take_turns(BEFORE, STREAMS))
def test_a_fault_before_any_text_ends_in_the_next_tiers_answer(room, fault, stream):
    """One good answer, headers that tell the way, and no more upstream calls than the fault deserves."""
    play, calls, reason = BEFORE[fault]
    outcome, seen = room.play(play, stream=stream)

    assert (outcome.status, seen) == (200, calls)
    assert outcome.text.startswith("Hello from backup")
    assert outcome.choice.finish_reason == "stop"
    assert outcome.trail == from_backup(reason, calls=calls)


# After two words: (play, calls where the client doesn't stream, reason).
AFTER: dict[str, tuple[Player, int, str]] = {
    "cut": (plays.cut(2), 2, "server_error"),
    "ends-early": (plays.ends_early(2), 2, "server_error"),
    "malformed": ((*plays.malformed(2)[:4], plays.Abort()), 2, "server_error"),
    "error-frame": (plays.error_frame(2), 2, "server_error"),
    "stall": (plays.hang(2), 1, "timeout"),
    "stall-and-cut": ((*plays.cut(2)[:-1], plays.Wait(0.8), plays.Abort()), 1, "timeout"),
    "stall-and-error": ((*plays.cut(2)[:-1], plays.Wait(0.8), *plays.error_frame(0)[1:]), 1, "timeout"),
}


@pytest.mark.parametrize("fault", AFTER)
def test_a_fault_after_two_deltas(room, fault, stream):
    """In a stream it is one error frame: the text stands, nobody else's follows, nothing is retried, and the stream
    says that it broke. Without one nothing has left yet: the next tier's answer is whole, with nothing of the broken
    one."""
    play, calls, reason = AFTER[fault]
    outcome, seen = room.play(play, stream=stream)

    if stream:
        assert (outcome.status, outcome.code, seen) == (200, "stream_broken", 1)
        assert outcome.text == "w0 w1"
        assert outcome.trail == {"Tier": "premium", "Retries": "0", "Attempts": "1"}
        assert outcome.frames[-1]["mlx_stack"]["outcome"] == "broken_stream"
    else:
        assert (outcome.status, seen) == (200, calls)
        assert outcome.text.startswith("Hello from backup")
        assert "w0" not in outcome.wire
        assert outcome.trail == from_backup(reason, calls=calls)


def test_a_refused_connection(room, stream):
    """Nobody listens: tried again once, then the next tier answers with one call."""
    outcome, seen = room.play(plays.good(), model="refused", stream=stream)

    assert (outcome.text, seen) == ("Hello from above.", 1)
    trail = {"Tier": "premium", "Escalated-From": "refused", "Escalation-Reason": "server_error"}
    assert outcome.trail == trail | {"Retries": "2", "Attempts": "3"}


GOOD: dict[str, tuple[Player, str, str]] = {
    "no-done": (plays.no_done(), "Hello from above.", "stop"),
    "a-torn-chunk": (plays.malformed(2), "w0 w1", "stop"),
    "slow-within-its-time": (plays.slow(0.3), "Hello at last.", "stop"),
    "at-once": (plays.plain_json(), "Hello at once.", "stop"),
    "content-filter": (FILTERED, "As far as I may", "content_filter"),
}


@pytest.mark.parametrize(("answer", "stream"), take_turns(GOOD, STREAMS))
def test_an_odd_answer_is_an_answer(room, answer, stream):
    """One call, delivered as it came: also what a content filter has ended, which no other tier is asked about."""
    play, text, finish = GOOD[answer]
    outcome, seen = room.play(play, stream=stream)

    assert (outcome.text, outcome.choice.finish_reason, seen) == (text, finish, 1)
    assert outcome.trail == {"Tier": "premium", "Retries": "0", "Attempts": "1"}


REFUSED: dict[str, Player] = {
    "moderation": MODERATED,
    "content-filter": plays.status(400, "the prompt was filtered", error_code="content_filter"),
}


@pytest.mark.parametrize(("refusal", "stream"), take_turns(REFUSED, STREAMS))
def test_a_refusal_is_not_failed_over(room, refusal, stream):
    """What a provider's filter refuses is refused once: no second call, no other tier, and clients must not retry."""
    outcome, seen = room.play(REFUSED[refusal], stream=stream)

    assert (outcome.status, outcome.code, seen) == (400, "bad_request", 1)
    assert outcome.headers["x-should-retry"] == "false"
    assert outcome.trail == {"Tier": "premium", "Retries": "0", "Attempts": "1"}


@pytest.mark.parametrize(
    "said", ["messages[3].role: unknown variant `developer`", "Request contains an invalid argument."]
)
def test_what_one_upstream_refuses_another_may_take(room, said, stream):
    """A 400 whose words nobody knows may be this upstream's alone: it is asked once, its breaker stays closed, and the
    next tier answers."""
    outcome, seen = room.play(plays.status(400, said), stream=stream)

    assert (outcome.status, seen) == (200, 1)
    assert outcome.trail["Escalated-From"] == "premium"


# With no tier left: (play, calls, status, code, whether a client may send it again).
ERRORS: dict[str, tuple[Player, int, int, str, bool]] = {
    "reset": (plays.cut(), 2, 502, "upstream_error", True),
    "malformed": (plays.malformed(0), 2, 502, "upstream_error", True),
    "500": (plays.status(500), 2, 502, "upstream_error", True),
    "429": (plays.status(429), 1, 429, "overloaded", True),
    "429-told-when": (plays.status(429, headers={"Retry-After": "1"}), 1, 429, "overloaded", True),
    "401": (plays.status(401), 1, 400, "no_tier_configured", False),
    "silence": (plays.hang(), 1, 504, "timeout", True),
    "too-long": (TOO_LONG, 1, 400, "context_length_exceeded", False),
}


@pytest.mark.parametrize(("fault", "stream"), take_turns(ERRORS, STREAMS))
def test_with_no_tier_left_there_is_one_clear_error(room, fault, stream):
    """A real HTTP status, also for a stream, with the code of the error table."""
    play, calls, status, code, may_retry = ERRORS[fault]
    outcome, seen = room.play(play, model="alone", stream=stream)

    assert (outcome.status, outcome.code, seen) == (status, code, calls)
    assert ("x-should-retry" not in outcome.headers, "retry-after" in outcome.headers) == (may_retry, may_retry)
    assert outcome.trail == {"Tier": "alone", "Retries": str(calls - 1), "Attempts": str(calls)}
    assert "tier alone" in outcome.error["message"]


def test_a_good_answer(room, stream):
    """The upstream's text, calls and usage reach the client; the upstream saw the key, the model and the client's
    fields."""
    tools: list[Any] = [{"type": "function", "function": {"name": name}} for name in "fg"]
    calls = [("f", {"a": 1}), ("g", {"b": "ü"})]
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
    outcome, _ = room.play(plays.tools(*calls, text="I look."), stream=stream, tools=tools, seed=7, **more)
    seen = room.upstream.log[-1]

    assert (outcome.text, outcome.calls, outcome.choice.finish_reason) == ("I look.", calls, "tool_calls")
    assert len({call.id for call in outcome.choice.message.tool_calls}) == 2
    assert '"total_tokens":18' in outcome.wire
    assert seen.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert (seen.body["model"], seen.body["stream"], seen.body["seed"]) == (MODEL, True, 7)
