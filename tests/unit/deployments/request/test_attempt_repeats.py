"""An answer that repeats itself: what its tier ended is whole, what doesn't end is stopped, at the same character in
whatever pieces it came."""

import json
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.request.attempt import record_attempt
from reliability.loops.in_answer import LEFT_CHARS, PATIENCE_BYTES
from reliability.types import CallDelta, Event, Finish, FinishReason, Flaw, Hold, Reasoning, Text
from tests.support.readings import Reading
from tests.unit.deployments.request.test_attempt_loops import WORDS, reading

ENDED = {
    "rows": "name,qty\n" + "apple,1\n" * 60 + "total,60\n",
    "asked for": "All work and no play makes Jack a dull boy.\n" * 150,
    "values": "x = [" + "None, " * 120 + "]",
    "code": "section .text\n" + "    nop\n" * 400 + "    ret\n",
    "data": "data:image/png;base64," + "A" * 4_000,
    "letters": "CAG" * 600,
    "emoji": "\U0001f389" * 1_500,
    "lines": "Done." + "\n" * 600,
}
RUNAWAYS = {
    "sentence": WORDS + "And it goes on like this. " * 900,
    "word": "the " * 6_000,
    "paragraph": (WORDS[:300] + "\n\n") * 90,
    "emoji": "\U0001f600" * 6_000,
    "lines": "ok" + "\n" * 20_000,
    "counter": "".join(f"Attempt {n}: I will try again to open the file and to read it.\n" for n in range(600)),
}
FOUND_CHARS = 4_500  # behind so many each of them is found
cuts = st.integers(1, 3_000), st.integers(1, 60), st.sampled_from(list(Hold))


def play(events: list[Event], batch: int = 1, hold: Hold = Hold.TOOL_CALLS) -> tuple[Reading, str]:
    """Read these in batches; also return the text that has left, or may leave at the end."""
    made = reading(hold=hold)
    out: list[Event] = []
    for at in range(0, len(events), batch):
        if made.loop is None and made.end is None:
            out += made.take(events[at : at + batch], 1)
    out += made.finish()
    assert made.judged is not None
    return made, "".join(event.text for event in (*out, *made.judged.events) if isinstance(event, Text))


def pieces(text: str, size: int) -> list[Event]:
    return [Text(text[at : at + size]) for at in range(0, len(text), size)]


@cache
def read_in_small_pieces(name: str) -> str:
    made, left = play(pieces(RUNAWAYS[name], 7))
    assert left == made.judged.raw_text
    return left


@settings(max_examples=40)
@given(st.sampled_from(sorted(ENDED)), *cuts)
@example("rows", 3_000, 60, Hold.TOOL_CALLS)
@example("rows", 1, 60, Hold.ALL)
def test_what_its_tier_ended_is_whole(name, size, batch, hold):
    """To the letter, with the tier's own finish reason and a note, and nobody is asked again for it."""
    made, text = play([*pieces(ENDED[name], size), Finish(reason=FinishReason.STOP)], batch, hold)

    assert text == ENDED[name]
    assert record_attempt(made, 2).good
    assert made.judged.finish.reason is FinishReason.STOP
    assert [note for note in made.judged.finish.notes if "delivered whole" in note] or name in ("rows", "code", "data")


@settings(max_examples=30)
@given(st.sampled_from(sorted(RUNAWAYS)), *cuts, st.booleans())
@example("sentence", 100_000, 1, Hold.TOOL_CALLS, True)
def test_a_runaway_is_stopped_at_the_same_character(name, size, batch, hold, ends):
    """However it came, and whether or not its end is in the same batch: behind about 2,000 tokens of repetition."""
    text = RUNAWAYS[name]
    end: list[Event] = [Finish(reason=FinishReason.STOP)] if ends else []
    made, left = play([*pieces(text, size), *end], batch, hold)

    assert left == made.judged.raw_text == read_in_small_pieces(name)
    assert made.judged.finish.reason is FinishReason.LENGTH
    assert text.startswith(left)
    assert record_attempt(made, 2).flaw is Flaw.CYCLE
    assert len(left.encode()) <= len(WORDS) + 4 * FOUND_CHARS + PATIENCE_BYTES


@pytest.mark.parametrize("name", ["asked for", "letters", "emoji"])
@pytest.mark.parametrize("kind", [Text, Reasoning])
def test_what_ran_to_its_limit_in_a_repetition_is_a_runaway(name, kind):
    """The tier didn't end it; where it had left the repetition long before, it is an answer that was cut."""
    end = Finish(reason=FinishReason.LENGTH)
    stuck, _ = play([kind(ENDED[name]), end])
    gone_on, text = play([kind(ENDED[name]), kind(WORDS * (1 + LEFT_CHARS // len(WORDS))), end])

    assert record_attempt(stuck, 2).flaw is (Flaw.CYCLE if kind is Text else Flaw.EMPTY)
    assert record_attempt(gone_on, 2).flaw is None
    assert gone_on.judged.finish.reason is FinishReason.LENGTH
    assert text.endswith(WORDS if kind is Text else "")


def test_who_leaves_a_repetition_may_go_on():
    """Only what repeats itself counts, in all of an answer together."""
    parts = [ENDED["asked for"][:2_000] + "".join(f"{n} {WORDS[9 * n :]}" for n in range(9)) for _ in range(6)]
    few, text = play([*pieces("".join(parts[:4]), 50), Finish(reason=FinishReason.STOP)])
    many, cut = play([*pieces("".join(parts) * 2, 50), Finish(reason=FinishReason.STOP)])

    assert text == "".join(parts[:4])
    assert record_attempt(few, 2).good
    assert len(cut) < 12 * len(parts[0])
    assert record_attempt(many, 2).flaw is Flaw.CYCLE


@pytest.mark.parametrize("content", ["INSERT INTO t VALUES (1,'a');\n" * 300, "Lorem ipsum dolor sit amet. " * 200])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("size", [20, 1_000_000])
@pytest.mark.parametrize("batch", [1, 10_000])
def test_a_complete_call_that_repeats_itself_is_one(content, native, size, batch):
    """Native or written as text, in whatever pieces: its tier has ended it, and it is valid."""
    arguments = json.dumps({"what": content})
    if native:
        parts = [arguments[at : at + size] for at in range(0, len(arguments), size)]
        events: list[Event] = [CallDelta(index=0, id="c", name="look")]
        events += [CallDelta(index=0, arguments=part) for part in parts]
        events.append(Finish(reason=FinishReason.TOOL_CALLS))
    else:
        written = f'<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>'
        events = [*pieces(written, size), Finish(reason=FinishReason.STOP)]
    made, text = play(events, batch)

    assert not text.strip()
    assert [json.loads(call.arguments) for call in made.judged.calls] == [{"what": content}]
    assert made.judged.finish.reason is FinishReason.TOOL_CALLS
    assert [note for note in made.judged.finish.notes if "delivered whole" in note]
    assert record_attempt(made, 2).good
