"""The copied answer: one request after the other gets the words of the first."""

from typing import Any

import pytest

from reliability.answer.judgement import expect
from reliability.answer.wanted_form import read_wanted_form
from reliability.loops import Kind, LoopConfig, Stage, Turn, find_copy, find_loop, nudge, read_copied, read_turns
from reliability.steps import Steps
from reliability.tools import CheckConfig, build_toolbox

ANSWER = "The file has already been updated. The owner's name is Mira-433."
ASKS = (
    "Read the file part_{}.txt and say what its owner's name is.", "Run the tests of src/module{}.py, please.",
    "What does https://example.org/page{} say?", "请读取 part_{}.txt",
)  # fmt: skip
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Read notes.txt."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "nothing in it"},
]
REMINDED = [{"role": "user", "content": "<system-reminder>\nBe brief.\n</system-reminder>\nGo."}]


CONFIG = LoopConfig()


def declare(*names: str) -> tuple[dict[str, Any], ...]:
    return tuple({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names)


LOOKS, ACTS = declare("send_alert", "read_file"), declare("send_alert", "place_order", "set_status")


def ask_for(asks: list[str], answers: list[Any], before: list[dict[str, Any]] = CALLED) -> list[dict[str, Any]]:
    """A conversation of these requests and answers, with a newest request that has no answer yet."""
    messages = [*before, {"role": "assistant", "content": "There is nothing in it."}]
    for ask, answer in zip(asks, [*answers, None], strict=True):
        messages += [{"role": "user", "content": ask}]
        messages += [] if answer is None else [{"role": "assistant", "content": answer}]
    return messages


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("before", [CALLED, REMINDED], ids=["calls", "reminders"])
@pytest.mark.parametrize("rounds", [2, 5, 40])
def test_the_answer_of_the_requests_before_is_a_copy(ask, before, rounds):
    """Law: who gives a request that names another thing the words that the last two got is nudged, however long this
    has gone on, and told what is wrong; never more than nudged."""
    asks = [ask.format(n) for n in range(rounds + 1)]
    messages = ask_for(asks, [ANSWER] * rounds, before)
    copied = read_copied(messages, CONFIG)
    loop = find_copy(copied, Turn(text=f"\n{ANSWER}  "), CONFIG)

    assert loop is not None
    assert (loop.kind, loop.stage) == (Kind.COPIES, Stage.WARN)
    assert "something else" in nudge(loop)
    assert find_loop(read_turns(messages), LoopConfig(), Turn(text=ANSWER)) is None  # no other rule sees it
    assert find_copy(copied, Turn(text="The owner's name is Tomas-919."), CONFIG) is None
    assert find_copy(copied, Turn(calls=read_turns(CALLED)[0].calls, text=ANSWER), CONFIG) is None


#: What a request brings itself may be judged alike each time, and right.
BRINGS_DATA = [
    ([f"Tick 2026-11-28 14:0{m}: BTC/USD {67305.1 + m}. Decide." for m in range(3)], "No trade. Holding the position."),
    ([f"Reading {n}: pump temperature 62.{n} C, limit 80 C." for n in range(3)], "It is within the limit: no alert."),
    ([f"New ticket #88{n}: how do I log in?" for n in range(3)], "This needs nobody's help: it is answered."),
    ([f"[Telegram Max 2026-11-2{n} 08:0{n}] thanks!" for n in range(3)], "You're welcome! Tell me if you need more."),
    ([f"Heartbeat. Current time: Sat Nov 28 2026 1{n}:00." for n in range(3)], "HEARTBEAT_OK - all is well."),
]
FILES = [ASKS[0].format(n) for n in range(3)]


@pytest.mark.parametrize(
    ("asks", "answers", "before"),
    [
        (
            ["thanks!", "thank you", "thanks a lot, that was all"],
            ["You're welcome! Is there anything else?"] * 2,
            CALLED,
        ),
        ([FILES[0]] * 3, [ANSWER] * 2, CALLED),
        ([FILES[0], FILES[1], FILES[0]], [ANSWER] * 2, CALLED),
        (FILES, ["Done."] * 2, CALLED),
        (FILES, [ANSWER, "The owner's name is Tomas-919."], CALLED),
        (FILES[:2], [ANSWER], CALLED),
        (FILES, [ANSWER] * 2, [{"role": "user", "content": "Hello."}]),
        (["Is a.txt there?", "And b.txt?", "And c.txt?"], ["I have a.txt, b.txt and c.txt here."] * 2, CALLED),
        *((asks, [answer] * 2, CALLED) for asks, answer in BRINGS_DATA),
    ],
    ids=["thanks", "same", "back", "short", "others", "second", "chat", "named", *(asks[0] for asks, _ in BRINGS_DATA)],
)
def test_what_may_be_answered_alike_is_no_copy(asks, answers, before):
    """Law: thanks, a request that is said again, a short answer, answers that differ, the second one, a chat without
    calls, and an answer that names the thing."""
    assert read_copied(ask_for(asks, answers, before), CONFIG) == ""


CLOCKS = (
    "at 1{n}:0{n}", "2026-11-2{n}", "2026-11-2{n}T10:0{n}:0{n}Z", "{n}:15 PM", "on November {n}th, 2026",
    "{n} May 2027",
)  # fmt: skip


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    "ask", ["[{}] Is any task of the list due?", "Anything unusual in the yard, {}?", "Read part_7.txt. {}"]
)
def test_another_time_is_no_other_thing(ask, clock):
    """Law: over ways to write a time: the same question at another time may be answered alike, and with another thing
    beside the time it is another question."""
    asks = [ask.format(clock.format(n=n)) for n in range(1, 5)]
    assert read_copied(ask_for(asks, [ANSWER] * 3), CONFIG) == ""
    assert read_copied(ask_for([f"{one} File {n}7.txt." for n, one in enumerate(asks)], [ANSWER] * 3), CONFIG) == ANSWER


def test_a_call_between_is_work():
    """Law: only answers without a call count, and only a request of the user's is answered with a copy."""
    messages = ask_for(FILES, [ANSWER] * 2)
    worked = [*messages[:6], *CALLED[1:], *messages[6:]]

    assert read_copied(messages, CONFIG) == ANSWER
    assert read_copied(worked, CONFIG) == ""
    assert read_copied([*messages, *CALLED[1:]], CONFIG) == ""


@pytest.mark.parametrize("threshold", [0, 1, 4])
def test_the_threshold_is_that_of_nudges(threshold):
    """Law: `duplicate_threshold` counts the copies, and 0 is off."""
    assert read_copied(ask_for(FILES, [ANSWER] * 2), LoopConfig(duplicate_threshold=threshold)) == ""


@pytest.mark.parametrize(
    ("wanted", "tools", "copied"),
    [
        (None, LOOKS, ANSWER),
        ("auto", LOOKS, ANSWER),
        ("none", LOOKS, ""),
        ("required", LOOKS, ""),
        (None, ACTS, ""),
        (None, (), ""),
    ],
)
def test_words_that_are_ordered_are_no_copy(wanted, tools, copied):
    """Law: it matters only where the model may choose between a look and words in no form."""
    toolbox = build_toolbox(tools)
    asked = {"id_seed": "r", "tool_choice": wanted, "checks": CheckConfig(), "loops": LoopConfig()}
    assert expect(ask_for(FILES, [ANSWER] * 2), toolbox, **asked).copied == copied


def test_words_in_a_form_are_no_copy():
    """Law: a verdict in the form that the client wants may be the same each time."""
    form = read_wanted_form({"type": "json_object"}, Steps(1_000))
    expected = expect(ask_for(FILES, [ANSWER] * 2), build_toolbox(LOOKS), id_seed="r", loops=CONFIG, form=form)
    assert expected.copied == ""
