"""What the soak and the chaos run call wrong, and what the load test reports."""

import asyncio
import json

import httpx
import pytest

from loadtests.chaos import TEXTS, read_stream, read_whole
from loadtests.chaos_accounts import UNCOUNTED_MAX, UNREPORTED_MAX, Accounts, ServerRecords, compare_session
from loadtests.soak import JOURNAL_MIB_MAX, MARKS, judge
from loadtests.tally import KINDS, Name, Tally

SECONDS = 600.0
NAMES = [*(f"{mark} {unit}" for mark in MARKS for unit in ("MiB", "files")), "journal MiB"]


def flat(**slopes: float) -> dict[str, list[tuple[float, float]]]:
    """Build ten minutes of readings: a steep beginning, and then so much an hour (by the name's first word)."""
    series = {}
    for name in NAMES:
        slope = slopes.get(name.replace(" ", "_"), 0.0) / 3600
        warm = 0.0 if name == "journal MiB" else 25.0
        series[name] = [(float(x), min(x / 4, warm) + slope * x) for x in range(0, 600, 5)]
    series["journal MiB"] = [(x, size + x % 100 / 50) for x, size in series["journal MiB"]]  # trimmed now and then
    return series


def wrong(series: dict[str, list[tuple[float, float]]]) -> set[str]:
    return {name for name, _, good in judge(series, SECONDS) if not good}


def test_a_flat_soak_is_good():
    """What grew in the beginning and then no more is a warm-up."""
    assert wrong(flat()) == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "journal MiB"])
def test_whatever_grows_is_found(name):
    """Each process, by its memory and by its files."""
    assert wrong(flat(**{name.replace(" ", "_"): 21.0})) == {name}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_seen_is_not_flat(name):
    """A process that wasn't there, or not for long, proves nothing."""
    short = flat() | {name: flat()[name][:30]}
    without = {other: points for other, points in flat().items() if other != name}

    assert wrong(short) == {name}
    assert wrong(without) == {name}


def test_a_journal_that_shows_no_bound_is_found():
    """One that only grows, however small it is still, and one that was once too large: trimming it is too late."""
    growing = [(float(x), x / 100) for x in range(0, 600, 5)]
    large = flat()["journal MiB"]
    large[60] = (300.0, JOURNAL_MIB_MAX + 1)

    for journal in (growing, large):
        assert wrong(flat() | {"journal MiB": journal}) == {"journal MiB"}


class Replies(ServerRecords):
    """A server that replies with what it is made with."""

    def __init__(self, **answers: dict | None) -> None:
        super().__init__(http=None, quiet_at=0.0)  # type: ignore[arg-type]
        object.__setattr__(self, "answers", answers)

    async def get(self, path: str, **query: str):
        return self.answers.get(path.partition("/")[0])  # type: ignore[attr-defined]


def report(tier: str = "fast", tokens: int = 10, outcome: str = "answered") -> dict:
    return {"outcome": outcome, "tier": tier, "attempts": [{"usage": {"total_tokens": tokens}}, {"usage": None}]}


@pytest.mark.parametrize(
    ("ledger", "reports", "tier", "incidents", "good"),
    [
        (10, report(), "fast", [], True),
        (10, report("standard"), "standard", [{}], True),
        (9, report(), "fast", [], False),  # the client saw more
        (20, report(), "fast", [], False),  # booked twice
        (10, report("standard"), "fast", [], False),
        (10, report(tokens=9), "fast", [], False),
        (10, report(outcome="client_left"), "fast", [], False),
        (10, report("standard"), "standard", [], False),
        (10, None, "fast", [], True),
        (UNREPORTED_MAX, None, "fast", [], True),  # a Router died, and its grants have expired
        (UNREPORTED_MAX + 1, None, "fast", [], False),
    ],
)
def test_the_accounts_must_agree(ledger, reports, tier, incidents, good):
    """Ledger, reports, incidents and what a client saw: where two differ, it is reported; so is an open call, since
    whatever was admitted is settled, or expires."""
    for open_calls in (0, 1):
        seen = Accounts(tried={"s": ["r"]}, answers={"r": (tier, 10)})
        books = {"open_calls": open_calls, "spent_tokens": ledger}
        replies = Replies(sessions=books, requests=reports, incidents={"data": incidents})

        assert (asyncio.run(compare_session(replies, "s", seen)) == []) is (good and not open_calls)
        assert open_calls or seen.unreported == (reports is None)


@pytest.mark.parametrize(("missing", "good"), [(UNCOUNTED_MAX, True), (UNCOUNTED_MAX + 1, False)])
def test_the_ledger_lacks_a_dead_routers_last_words_at_most(missing, good):
    """What it had not reported yet when it died is bounded."""
    seen = Accounts(tried={"s": ["r"]}, answers={"r": ("fast", 100)})
    books = {"open_calls": 0, "spent_tokens": 100 - missing}
    replies = Replies(sessions=books, requests=None, incidents={"data": []})

    assert (asyncio.run(compare_session(replies, "s", seen)) == []) is good


def test_what_other_requests_cost_hides_no_answer():
    """An answer without a report must be in the ledger beside what the reports list."""

    class Some(Replies):
        async def get(self, path: str, **query: str):
            return None if path == "requests/r2" else await super().get(path, **query)

    seen = Accounts(tried={"s": ["r1", "r2"]}, answers={"r1": ("fast", 30), "r2": ("fast", 40 + UNCOUNTED_MAX)})
    for ledger, good in ((109, False), (110, True)):
        replies = Some(sessions={"open_calls": 0, "spent_tokens": ledger}, requests=report(tokens=70))
        assert (asyncio.run(compare_session(replies, "s", seen)) == []) is good


def build_stream(tier: str, text: str, finish: str = "stop") -> str:
    first, last = text[: len(text) // 2], text[len(text) // 2 :]
    deltas = [({"content": first}, None), ({"content": last}, None), ({}, finish)]
    chunks = [{"choices": [{"delta": delta, "finish_reason": reason}]} for delta, reason in deltas]
    chunks.append({"choices": [], "usage": {"total_tokens": 5}, "mlx_stack": {"tier": tier}})
    return ": keep-alive\n\n" + "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


@pytest.mark.parametrize("tier", TEXTS)
def test_a_stream_is_an_answer_only_with_its_end_and_its_whole_text(tier):
    """Who answered and how much it was stands in the last chunks; what it said must be what that tier says."""
    good = build_stream(tier, TEXTS[tier])
    other = next(text for name, text in TEXTS.items() if name != tier)

    assert read_stream(good) == (tier, 5)
    broken = [good.partition("data: [DONE]")[0], 'data: {"error": {}}\n\n', "data: [DONE]\n\n", ""]
    wrong = [build_stream(tier, text) for text in ("", other, TEXTS[tier][:-5])]
    for text in [*broken, *wrong, build_stream("x", "y"), build_stream(tier, TEXTS[tier], "length")]:
        with pytest.raises(LookupError):
            read_stream(text)


@pytest.mark.parametrize(("text", "good"), [(TEXTS["fast"], True), (TEXTS["fast"][:-9], False), (None, False)])
def test_a_whole_answer_must_be_what_its_tier_says(text, good):
    """Without choices, without text or with another one it is no answer."""
    choices = [] if text is None else [{"message": {"content": text}, "finish_reason": "stop"}]
    answer = httpx.Response(
        200, headers={"x-mlx-stack-tier": "fast"}, json={"choices": choices, "usage": {"total_tokens": 5}}
    )

    if good:
        assert read_whole(answer) == ("fast", 5)
    else:
        with pytest.raises(LookupError):
            read_whole(answer)
    assert read_whole(httpx.Response(503, json={"error": {}})) == ("", 0)


def test_the_page_shows_every_kind():
    """Names from outside are escaped, and each kind has its table; an empty one says so."""
    tally = Tally()
    tally.note(Name("total", "<b>", "answered", "whole"), 12.0)
    tally.note(Name("total", "<b>", "answered", "whole"), 14.0)
    page, row = tally.page(), tally.rows()[0]

    assert all(f"<h2>{kind}, ms</h2>" in page for kind in KINDS)
    assert "<b>" not in page
    assert page.count("nothing was measured") == 2
    assert (row["count"], row["p50"], row["p99"], row["max"]) == (2, 13.0, 14.0, 14.0)


@pytest.mark.parametrize(
    ("text", "frames", "continued"),
    [
        ('data: {"choices":[]}\n\ndata: {"mlx_stack":{"continued":true}}\n\ndata: [DONE]\n\n', 0, 1),
        ('data: {"choices":[]}\n\ndata: {"mlx_stack":{"continued":false}}\n\ndata: [DONE]\n\n', 0, 0),
        (': keep-alive\n\ndata: {"choices":[]}\n\ndata: {"error":{"code":"stream_broken"},"mlx_stack":{}}\n\n', 1, 0),
        ('{"error":{"code":"overloaded"}}', 0, 0),
    ],
    ids=["gone on with", "whole", "an error frame", "an error with a status"],
)
def test_how_a_stream_ended_is_noted(text, frames, continued):
    """Law: an error frame is one that ends a stream which had begun; a seam is what the report says."""
    seen = Accounts()
    seen.note_stream("x", text)

    assert (len(seen.frames), seen.continued) == (frames, continued)
