"""Loop rules on large histories: the work is bounded, and the verdicts stay what they are."""

import time

import pytest

from reliability.loops import Kind, Memo, Stage, calls_turn, find_loop, read_turns
from reliability.loops.comparison import same_result as volatile
from reliability.loops.comparison.findings import MASKED_CHARS_MAX
from reliability.loops.transcript import TURNS_MAX
from tests.support.conversation import CONFIG, USER, Message, acted

READ = calls_turn([("read", '{"path": "a.py"}')])
BODY = "\n".join(f"{number:06d} some line of a file that is read again" for number in range(2_000))


def history(results: list[str]) -> list[Message]:
    """One call, again and again."""
    return [USER, *(m for result in results for m in acted("read", {"path": "a.py"}, result))]


@pytest.mark.parametrize("text", ["1" * 2_000, "\n" * 8_000, "```" + "a" * 8_000])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_long_runs_of_one_sign_are_read_in_one_pass(role, text):
    """Law: what an odd text costs grows with its length alone; 0.3 MB of line breaks took a minute."""
    other = {"user": "assistant", "assistant": "user"}[role]
    said = ({"role": role, "content": f"{n} {text}."} for n in range(40))
    messages = [message for one in said for message in ({"role": other, "content": "go on, please"}, one)]
    begun = time.process_time()
    find_loop(read_turns(messages, CONFIG.turns_needed), CONFIG)

    assert time.process_time() - begun < 2.0


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every pair of results that was looked into."""
    seen: list[tuple[str, str]] = []
    same = volatile.is_same_result
    monkeypatch.setattr(
        "reliability.loops.turn_sequence.is_same_result", lambda a, b, memo: (seen.append((a, b)), same(a, b, memo))[1]
    )
    return seen


def test_each_pair_is_compared_once_a_request(compared):
    """Law: neither another period nor another tier's attempt compares the same results again."""
    results = [f"at 2026-11-23T06:00:{second:02d}Z\n{BODY}" for second in range(12)]
    turns, memo = read_turns(history(results), CONFIG.turns_needed), Memo()
    first, *others = [find_loop(turns, CONFIG, READ, memo) for _attempt in range(3)]
    assert len(compared) == len(set(compared)) > 0
    assert (first.stage, first.kind) == (Stage.BREAK, Kind.CALLS)
    assert [*others, find_loop(turns, CONFIG, READ)] == [first] * 3


def test_equal_results_are_not_looked_into(compared):
    """Law: equal text needs no comparison of its parts past the verdict, however long the history."""
    turns = read_turns(history([BODY] * (TURNS_MAX - 1)), CONFIG.turns_needed)
    loop = find_loop(turns, CONFIG, READ)
    assert loop.repetitions == CONFIG.turns_needed + 1
    assert len(set(compared)) <= 1


def test_laps_past_the_verdict_are_counted_only_while_that_is_cheap(compared):
    """Law: a verdict is never lost, and what it costs beyond it has a bound."""
    steps = [f"took {n}.5 s\n{BODY * 4}" for n in range(10, 50)]
    loop = find_loop(read_turns(history(steps), CONFIG.turns_needed), CONFIG, READ)
    assert loop.stage is Stage.BREAK
    assert CONFIG.break_threshold <= loop.repetitions < 40
    assert len(compared) < 100


def test_many_results_of_few_calls_are_read_in_one_go():
    """Law: reading a history takes time by its size: the pieces of one result among many calls are one text."""
    calls = [{"id": f"c{n}", "function": {"name": f"read_{n}", "arguments": "{}"}} for n in range(20_000)]
    pieces = [{"role": "tool", "tool_call_id": "c19999", "content": "ab"}] * 200
    (turn,) = read_turns([{"role": "assistant", "tool_calls": calls}, *pieces])
    assert turn.results == (*[None] * 19_999, "\n".join(["ab"] * 200))


def test_a_request_masks_no_more_than_its_bound():
    """Law: a line is masked once, and past the bound results count as different, so that the near rule judges them."""
    memo, made = Memo(), []
    line = "took 1.5 s " * 100
    assert memo.mask(line, lambda text: made.append(text) or text) == line
    assert memo.mask(line, lambda text: made.append(text) or text) == line
    assert len(made) == 1
    assert memo.mask("x" * MASKED_CHARS_MAX, str) is None
