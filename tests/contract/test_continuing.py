"""A stream that broke goes on: every way in which a hosted one breaks, at every third of its answer, in each dialect.
`test_mlx_kill` kills a model's replica under its streams.

    premium (hosted) ──▶ other (the same server)
"""

import json

import pytest

from reliability.answer.seam import find_anchor
from tests.support import plays, scripts
from tests.support.dialects import ask_in_all
from tests.support.http_asking import user
from tests.support.matrices import take_turns
from tests.support.plays import Play, Player, Seen

MODEL = "some/model"
TEXT = (
    "First you open the valve on the left, and wait until the needle stands at two. Then you close the lid, turn the "
    "wheel once around, and count to thirty. At last you open the lid again, slowly, and let the steam go."
)
BREAKS: dict[str, Play] = {
    "cut": (plays.Abort(),),
    "ends-early": (),
    "malformed": (plays.Send(b'data: {"choices": [{"delta"\n\n'), plays.Abort()),
    "error-frame": plays.error_frame(0)[1:],
    "stall": (plays.Hang(),),
    "stall-and-cut": (plays.Wait(0.8), plays.Abort()),
}


def break_off(how: str, share: float) -> Player:
    """An upstream that breaks off its first answer, and goes on with it where it is asked to."""

    def play(seen: Seen) -> Play:
        stands = [m["content"] for m in seen.body["messages"] if m["role"] == "assistant"]
        if stands:
            return plays.good(find_anchor(stands[-1]) + TEXT[len(stands[-1]) :])
        head = TEXT[: TEXT.index(" ", int(share * len(TEXT)))]
        return (plays.Head(headers=plays.SSE), *plays.words(head), *BREAKS[how])

    return play


@pytest.fixture(scope="module")
def server(deploy, upstream):
    timeouts = {"connect_s": 3.0, "first_token_s": 5.0, "idle_s": 1.0, "total_s": 20.0}
    hosted = scripts.hosted(upstream, MODEL, timeouts=timeouts)
    return deploy(scripts.graph({"premium": hosted, "other": hosted}), "continuing")


@pytest.mark.parametrize(("how", "share"), take_turns(BREAKS, (0.1, 0.4, 0.8)))
def test_a_broken_stream_is_whole(server, upstream, how, share):
    """Law: in each dialect the client is told the whole answer, to the letter, with one end, and the report says where
    the seam is and what it cost."""
    upstream.plays(MODEL, break_off(how, share))
    asked = ask_in_all(server, user(f"How do I let the steam go? ({how} {share})"), stream=True)
    for dialect, told in asked.items():
        attempts = told.report["attempts"]

        assert (told.code, told.text) == (None, TEXT), dialect
        assert told.report["outcome"] == "answered", dialect
        assert told.report["continued"], dialect
        assert [one["seam"] is not None for one in attempts] == [False, True], dialect
        assert 0 < attempts[1]["seam"] <= TEXT.index(" ", int(share * len(TEXT)))  # a reset may take words with it
        assert attempts[1]["usage"]["prompt_tokens"] > 0, dialect
        assert told.tokens is not None
        assert told.tokens[1] == sum(one["usage"]["completion_tokens"] for one in attempts), dialect
        assert told.tokens[0] <= attempts[1]["usage"]["prompt_tokens"], dialect


def test_the_seam_is_seen_in_the_stream(server, upstream):
    """Law: a comment says who goes on from where; the last chunk says that it was continued."""
    upstream.plays(MODEL, break_off("cut", 0.5))
    response = server.post({"model": "auto", "messages": user("How?"), "stream": True})
    frames = [line for line in response.text.split("\n\n") if line.startswith("data: {")]

    assert ": continued by tier premium at character " in response.text
    assert json.loads(frames[-1].removeprefix("data: "))["mlx_stack"]["continued"] is True
    assert response.text.rstrip().endswith("[DONE]")
