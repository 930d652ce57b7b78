"""The same error, the same text, thoughts alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import LoopConfig, Stage
from reliability.loops.comparison.findings import SeenCall, Turn
from reliability.loops.history import TEXT_PERIOD_MAX, TEXTS_MAX, _find_same_errors, _find_same_text
from reliability.loops.turn_sequence import TurnSequence
from tests.evals.step_cases import StepCase
from tests.support.conversation import CONFIG, USER, Message, acted, ask, loop_at, quiet, said, stages, user


def failed(error: str, number: int, tool: str = "edit") -> Turn:
    return Turn((SeenCall(tool, f'{{"n": {number}}}'),), (error,))


COUNTING = LoopConfig(duplicate_threshold=1, break_threshold=0)


def count(*turns: Turn) -> int:
    found = _find_same_errors(TurnSequence(turns, COUNTING, None))
    return 0 if found is None else found.repetitions


def count_texts(turns: list[Turn], period: int) -> int:
    found = _find_same_text(turns, COUNTING, None, period)
    return 0 if found is None else found.repetitions


def test_errors_are_counted_whatever_was_asked() -> None:
    """Three failures of one tool with the same words are three; another word or a success ends the row."""
    lost = [failed("Error: the disk is full", n) for n in range(3)]
    assert count(*lost) == 3
    assert count(failed("Error: no right to it", 9), *lost) == 3
    assert count(*lost, Turn((SeenCall("edit"),), ("done",))) == 0


def test_a_shell_and_a_bare_word_are_no_row() -> None:
    """A shell does something else with every argument, and "error" says too little."""
    assert count(*[failed("Error: the disk is full", n, "bash") for n in range(3)]) == 0
    assert count(*[failed("Error", n) for n in range(3)]) == 0


A, B, C = (Turn(text=text) for text in ("I can't open it, sorry.", "Let me look once more.", "Shall I go on then?"))


def test_texts_in_turn_are_counted_by_rounds() -> None:
    """A round that has begun counts, as a repetition of calls does."""
    assert count_texts([A, A, A], 1) == 3
    assert [count_texts(([A, B] * 9)[:n], 2) for n in (1, 2, 3, 4, 5, 6)] == [0, 1, 2, 2, 3, 3]
    assert count_texts([A, B, C, A, B, C], 3) == 2
    assert count_texts([A, A, A, A], 2) == 0


def test_a_call_ends_the_row_and_a_written_one_does_not() -> None:
    """A native call is work between two texts; one that stands in the text is the text."""
    assert count_texts([A, Turn((SeenCall("f"),), (None,)), A], 1) == 1
    written = Turn((SeenCall("f"),), (None,), "```\nf\n```", written=True)
    assert count_texts([written, written], 1) == 2


@given(st.lists(st.sampled_from([A, B, C, Turn()]), max_size=90), st.integers(1, TEXT_PERIOD_MAX))
def test_the_count_is_bounded(turns: list[Turn], period: int) -> None:
    """However long the talk is, so many texts are looked at and no more."""
    assert 0 <= count_texts(turns, period) <= TEXTS_MAX


POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold
THOUGHT = "I should look at the part %n of it before I go on."


@pytest.mark.parametrize(("tool", "result"), [
    ("think", "ok"), ("think", "Your thought has been logged."), ("think", ""),
    ("sequentialthinking", '{"thoughtNumber": %a, "thoughtHistoryLength": %n}'),
    ("update_plan", "Plan updated"),
])  # fmt: skip
def test_an_agent_that_only_thinks_is_ended(tool: str, result: str) -> None:
    """Law: thoughts alone, however they differ, are nudged when a poll is, and broken when a poll is, where what they
    are answered says nothing new."""
    case = StepCase(tool, f'{{"thought": "{THOUGHT} %a", "thoughtNumber": %a}}', result)
    found = stages(case.build(POLL_BREAK, "Please find out what is wrong."))
    assert found.index(Stage.WARN) == POLL_NUDGE - 1
    assert found.index(Stage.BREAK) == POLL_BREAK - 1


def test_thoughts_that_lead_on_are_no_loop() -> None:
    """Law: thoughts whose results say something new, and thoughts before another call, are free."""
    history = StepCase("think", '{"thought": "%a"}', "ok").build(POLL_BREAK, "Please find out what is wrong.")
    assert loop_at(history, ask("read_file", {"path": "a.py"})) is None
    words = ("doors", "roofs", "walls", "floors", "cellars", "gardens", "fences", "lamps", "pipes", "wires", "stairs")
    results = [f"The reviewer says: look at the {word}" for word in words]
    assert quiet([USER, *[m for result in results for m in acted("think", {"thought": result[-5:] + "?"}, result)]])


ASKS = (
    "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.\nCurrent time: %t",
    "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.",
    "[cron %t] Is any task of the list due? Remind me if so.", "[Telegram Max %t] thanks!",
    "Is the export done yet? (%t)", "Is the export done yet?", "Anything unusual in the yard at %t? Motion score 0.",
    "%t: what do you see?", "<system-reminder>It is %t.</system-reminder>\nAny news?",
    "You are the night watch. Is all well? " * 60 + "%t",
)  # fmt: skip
SPELLED = ("2026-11-28 %h:%m", "%h:%m", "%h:%m:07", "2026-11-28T%h:%m:00Z", "%h:%m PM")
URGES = (
    "Continue.", "ok", "Please continue working on the task.", "You must call a tool.",
    "[ERROR] You did not use a tool!",
    "No tool was called. Call one.", "You have %n steps left.", "Step %n of 20.", "You did not call a tool at %t.",
    "[%t] You haven't called a tool.", "Your output was not formatted correctly.", "Your last response has no action.",
    "Invalid format: missing action.", "Could not parse the answer as JSON.", "Please use one of the tools.",
    "Remember to use the tools.", "Always respond with exactly one action.", "Parsing error: no action.",
    "Call a function.", "Try again.", "If you are done, call finish.", "What is the next step?",
    "Determine exactly one command to use.", "No valid tool call was found.", "Retry again, it is %t.",
    "No executable tool calls are found. Please call a tool instead.", "You have misformatted your message.",
    "Please always provide EXACTLY ONE action in triple backticks, found 0 actions.",
    "You have sent the same message again. You have to do something else!",
)  # fmt: skip


def tell(text: str, lap: int, spelled: str = "%h:%m") -> str:
    """Write a message with a time and a count that go on from lap to lap."""
    clock = spelled.replace("%h", f"{1 + lap // 2:02}").replace("%m", f"{30 * (lap % 2):02}")
    return text.replace("%t", clock).replace("%n", str(19 - lap))


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("before", [[], acted("exec", {"command": "uptime"}, "up 3 days")], ids=["chat", "calls"])
def test_who_asks_again_may_be_answered_alike(spelled: str, before: list[Message]) -> None:
    """Law: over questions and ways to write the time: a person or a clock that asks again, word for word or at another
    time, gets the same right words for as long as it asks; "continue" behind them ends nothing at once."""
    for request in ASKS:
        laps = [m for n in range(24) for m in (user(tell(request, n, spelled)), said("No, nothing is to be done."))]
        history = [USER, *before, said("I am watching."), *laps]
        for size in range(1, len(laps), 2):
            found = loop_at(history[: len(history) - len(laps) + size], laps[1])
            assert found is None, (request, size)
        assert loop_at([*history, user("continue")], laps[1]) is None


@pytest.mark.parametrize("urge", URGES)
@pytest.mark.parametrize("before", [[], acted("exec", {"command": "uptime"}, "up 3 days")], ids=["chat", "calls"])
def test_who_is_only_pushed_on_is_in_a_loop(urge: str, before: list[Message]) -> None:
    """Law: over the messages of frameworks that want a call, whatever they count and whenever they come: the same words
    behind each are nudged at the third and broken at the latest at the seventh."""
    laps = [m for n in range(8) for m in (said("I am still thinking."), user(tell(urge, n)))]
    found = stages([USER, *before, *laps])[-8:]
    assert found[2] is Stage.WARN
    assert Stage.BREAK in found[:7]
