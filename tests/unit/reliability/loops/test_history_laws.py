"""The laws of the history rules, for any history that can be made of a few calls and results."""

import json
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability import loops
from reliability.loops import JudgeConfig, LoopConfig, SeenCall, Stage, Turn, find_loop, read_turns, repeats_already
from reliability.loops.comparison.volatile_fields import word_set
from tests.support.loop_histories import acting, asks, calls, histories, law, scalars, speaking, steps

CONFIG = LoopConfig()
Message = dict[str, Any]

FIELDS = sorted(
    word_set(
        "role content tool_calls function function_call name arguments id tool_call_id type input output text call_id "
        "error choices message is_error"
    )
)
WORDS = sorted(word_set("assistant user tool function tool_use tool_result function_call f"))
keys = st.text(max_size=6) | st.sampled_from(FIELDS)
deep = st.recursive(
    st.one_of(scalars, st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(keys, inner | st.sampled_from(WORDS), max_size=6)
    ),
    max_leaves=25,
)


def messages_of(turns: tuple[Turn, ...], ids: random.Random, asked: str = "Go.") -> list[Message]:
    """The turns as OpenAI messages, with fresh ids and shuffled argument keys."""
    written: list[Message] = [{"role": "user", "content": asked}]
    for turn in turns:
        made = [(f"call_{ids.getrandbits(60):x}", call) for call in turn.calls]
        entries = [
            {"id": i, "type": "function", "function": {"name": call.name, "arguments": shuffled(call.arguments, ids)}}
            for i, call in made
        ]
        extra = {"tool_calls": entries} if entries else {}
        written.append({"role": "assistant", "content": turn.text or None, **extra})
        for (i, _), result in zip(made, turn.results, strict=True):
            if result is not None:
                written.append({"role": "tool", "tool_call_id": i, "content": result})
    return written


@law
@given(
    st.integers(3, 9),
    st.tuples(st.integers(3, 9), st.lists(st.integers(1, 9), max_size=40)),
    st.sampled_from(["press", "roll_dice", "read_file", "job_poll"]),
    st.sampled_from(["ok", "4", "line 1", "Error: no such thing as that"]),
    st.integers(1, 2),
)
def test_answers_with_many_ordered_calls_are_nudged_before_they_break(times, sizes, tool, result, period):
    """Law: where the user orders a thing so many times, an answer may hold as many equal calls, and each of them is a
    repetition. Up to the order nothing is nudged, a nudge comes before every break, and who goes on for ever is broken.
    """
    steps = [SeenCall(tool, json.dumps({"key": name})) for name in ("tab", "space")[:period]]
    messages: list[Message] = [{"role": "user", "content": f"Press Tab and Space {times} times."}]
    done, stages = 0, []
    for size in [*(min(size, times) for size in (sizes[0], *sizes[1])), *[times] * 12]:
        answer = Turn(tuple(steps * size), (result,) * period * size)
        loop = find_loop(read_turns(messages, CONFIG.turns_needed), CONFIG, asks(answer))
        assert loop is None or done >= times
        stages.append(None if loop is None else loop.stage)
        if stages[-1] is Stage.BREAK:
            break
        messages += messages_of((answer,), random.Random(done))[1:]
        done += size
    assert stages[-1] is Stage.BREAK
    assert Stage.WARN in stages


def shuffled(arguments: str, dice: random.Random) -> str:
    items = list(json.loads(arguments).items())
    dice.shuffle(items)
    return json.dumps(dict(items), indent=dice.choice([None, 2]))


def severity(loop: loops.Loop | None) -> int:
    return 0 if loop is None else {Stage.WARN: 1, Stage.BREAK: 2}[loop.stage]


@law
@given(histories, calls, st.integers())
def test_ids_and_key_order_say_nothing(history: tuple[Turn, ...], call: SeenCall, seed: int) -> None:
    """The verdict is the same whatever the ids and the order of the argument keys."""
    dice = random.Random(seed)
    first, second = (find_loop(read_turns(messages_of(history, dice)), CONFIG, Turn((call,))) for _ in range(2))
    assert first == second


@law
@given(steps, st.integers(2, 6))
def test_equal_laps_are_found_exactly_at_the_thresholds(lap: list[Turn], repetitions: int) -> None:
    """N laps in the history and an answer that starts the next: a nudge from three, a break from five."""
    if any(turn.calls[0].name == "job_poll" for turn in lap):
        return
    loop = find_loop(tuple(lap * (repetitions - 1)), CONFIG, asks(lap[0]))
    expected = 0 if repetitions < 3 else 1 if repetitions < 5 else 2
    assert severity(loop) >= expected
    if len(lap) == 1 and lap[0].results[0] != "Error: no such thing":
        assert severity(loop) == expected


@law
@given(acting, acting, st.integers(3, 6))
def test_one_change_re_arms(turn: Turn, other: Turn, repetitions: int) -> None:
    """A loop whose newest result is another than before is no loop, and another tool than the one that looped is free,
    whatever it is asked."""
    laps, changed = (turn,) * repetitions, Turn(turn.calls, ("something else altogether",))
    assert find_loop(laps, CONFIG, asks(turn)) is not None or turn.calls[0].name == "job_poll"
    assert find_loop((*laps, changed), CONFIG, asks(turn)) is None
    assert turn.calls[0].name == other.calls[0].name or find_loop(laps, CONFIG, asks(other)) is None


@law
@given(histories, histories, st.integers())
def test_a_user_message_forgets_what_was_before(old: tuple[Turn, ...], new: tuple[Turn, ...], seed: int) -> None:
    """What was done before the user last spoke doesn't change what is read after it."""
    before, after = messages_of(old, random.Random(seed), "Go."), messages_of(new, random.Random(seed), "And now?")
    assert read_turns([*before, *after]) == read_turns(after)


@law
@given(steps, st.integers(2, 7))
def test_more_laps_never_weigh_less(lap: list[Turn], repetitions: int) -> None:
    """Another equal lap never lowers the stage, and within one rule never the count."""
    fewer = find_loop(tuple(lap * repetitions), CONFIG, asks(lap[0]))
    more = find_loop(tuple(lap * (repetitions + 1)), CONFIG, asks(lap[0]))
    assert severity(more) >= severity(fewer)
    if fewer and more and fewer.kind is more.kind:
        assert more.repetitions >= fewer.repetitions


@law
@given(histories, acting)
def test_a_lower_threshold_never_weighs_less(history: tuple[Turn, ...], turn: Turn) -> None:
    """What the stricter configuration lets pass, the looser one lets pass."""
    strict, loose = LoopConfig(duplicate_threshold=2, break_threshold=3), CONFIG
    candidate = asks(turn)
    assert severity(find_loop(history, strict, candidate)) >= severity(find_loop(history, loose, candidate))


@law
@given(histories, acting)
def test_texts_between_calls_change_nothing(history: tuple[Turn, ...], turn: Turn) -> None:
    """Turns that only speak neither reset nor feed the call rules."""
    silent = tuple(t for t in history if t.calls)
    assert find_loop(history, CONFIG, asks(turn)) == find_loop(silent, CONFIG, asks(turn))


@law
@given(histories, acting, st.integers(2, 5))
def test_copies_in_one_batch_change_nothing(history: tuple[Turn, ...], turn: Turn, copies: int) -> None:
    """A batch that holds the same call several times is judged like the call alone."""
    batch = Turn(turn.calls * copies, turn.results * copies)
    one = find_loop((*history, turn), CONFIG, asks(turn))
    many = find_loop((*history, batch), CONFIG, asks(batch))
    assert severity(one) == severity(many)


@law
@given(histories, acting | speaking, st.integers(0, 4), st.integers(0, 6))
def test_who_is_nudged_was_held(history: tuple[Turn, ...], answer: Turn, warn: int, limit: int) -> None:
    """Where an answer is a loop by the exact rules, the conversation repeated itself before it."""
    config = LoopConfig(duplicate_threshold=warn, break_threshold=limit)
    candidate = Turn(answer.calls, (None,) * len(answer.calls), answer.text)
    assert find_loop(history, config, candidate) is None or repeats_already(history, config)


@pytest.mark.parametrize("count", range(5))
def test_two_of_a_kind_are_enough(count: int) -> None:
    """Of three texts that nudge, two stand in the history; one may be an answer like any other."""
    history = [Turn(text="I am done with it now.")] * count
    assert repeats_already(history, LoopConfig()) is (count >= 2)
    assert not repeats_already(history, LoopConfig(enabled=False))


@law
@given(histories, acting)
def test_unknown_results_never_convict(history: tuple[Turn, ...], turn: Turn) -> None:
    """Where no result is known, no call loops."""
    blind = tuple(asks(t) for t in history if t.calls) + (asks(turn),) * 6
    assert find_loop(blind, CONFIG, asks(turn)) is None


@law
@given(steps, st.integers(3, 4))
def test_the_key_of_a_streak_is_stable(lap: list[Turn], repetitions: int) -> None:
    """A streak keeps its key from lap to lap and wherever in the cycle one stands."""
    at_start = find_loop(tuple(lap * repetitions), CONFIG, asks(lap[0]))
    later = find_loop(tuple(lap * (repetitions + 1)), CONFIG, asks(lap[0]))
    if at_start and later and at_start.kind is later.kind is loops.Kind.CALLS:
        assert at_start.key == later.key


@law
@given(deep, deep)
def test_hostile_input_never_raises(messages: Any, response: Any) -> None:
    """Whatever JSON stands in the place of messages and answers, there is a verdict and no exception."""
    turns = read_turns(messages if isinstance(messages, list) else [messages, response])
    candidate = loops.answer_turn(response)
    loop = find_loop(turns, CONFIG, candidate) or find_loop(turns, CONFIG)
    assert loop is None or loops.nudge(loop)
    case = loops.find_case(turns, JudgeConfig(enabled=True, consecutive_threshold=1, failure_threshold=1))
    assert case is None or loops.judge_request(case, turns, messages, JudgeConfig()).messages
    assert isinstance(loops.read_suggestion(response), str)
    assert loops.carries_history(messages) in (True, False)
    assert loops.LoopDetector().check("s", response) in loops.LoopStatus


@settings(law, max_examples=14)
@given(st.text(max_size=400), st.sampled_from(["{", "[", '{"a":', "\\", "\x00", "\ud800", "9"]))
def test_hostile_text_never_raises(text: str, seed: str) -> None:
    """Any text can stand in an argument, in a result and in an answer."""
    hostile = [text, seed * 2_000, seed * 50 + text]
    for older in hostile:
        for newer in hostile:
            turn = Turn((SeenCall("f", older),), (newer,))
            find_loop((turn, Turn(turn.calls, (older,))) * 3, CONFIG, asks(turn))
    for piece in hostile:
        assert isinstance(loops.truncate(piece), str)
        loops.finish(loops.step(loops.Scan(), piece)[0])


def test_values_survive_a_journey() -> None:
    """A loop, a turn and the state of an answer are values: they can be pickled, compared and hashed."""
    scan, _ = loops.step(loops.Scan(), "some text that is longer than one block of the scanner")
    for value in (
        loops.calls_turn([("f", "{}")], "text"),
        scan,
        loops.Loop(kind=loops.Kind.NEAR, stage=Stage.BREAK, repetitions=5),
    ):
        assert pickle.loads(pickle.dumps(value)) == value
        assert hash(value) == hash(pickle.loads(pickle.dumps(value)))
