"""Histories that shrink: what the request no longer shows, the session's window knows."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability import loops
from reliability.loops import LoopConfig, SeenCall, Stage, Turn, find_kept_loop, keep_answer, read_shown, read_turns
from reliability.loops.answer_history import CHARS_MAX, KEPT_MAX, _shorten_turn, count_kept_chars
from reliability.loops.content import text_of
from reliability.types import CallDelta, Text
from tests.support.shrunk_histories import FULL, HEAD, SHAPES, ShrunkSession, make_lap, run_laps

CONFIG = LoopConfig()
LOOP = [None, None, Stage.WARN, Stage.WARN, Stage.BREAK, Stage.BREAK]
# Whose results can't be known: there a changed result is as good as none, and a nudge harms nobody.
BLIND = [name for name in SHAPES if name.startswith(("folds", "leaves"))]
# Where no request shows two results: all that is compared was kept.
TAIL = {"type": "text", "text": "tail\n" * 900}
ONE_AT_A_TIME = [name for name in SHAPES if name.endswith(("last 2", "last 3", "keeps 1 results"))]
law = settings(deadline=None, max_examples=60)


@pytest.mark.parametrize("name", SHAPES)
def test_a_loop_is_found_as_in_a_full_history(name):
    """Whatever a client leaves out, the third repetition is nudged and the fifth broken."""
    assert run_laps(FULL, ["the same"] * 6) == LOOP
    assert run_laps(SHAPES[name], ["the same"] * 6) == LOOP


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in BLIND or name.startswith("folds every 2")])
def test_results_that_change_are_progress(name):
    """A result that was shown once and differs from the next one is progress, wherever it is now. Where a summary hides
    half of the results, those that are shown differ, so nothing is broken."""
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    found = set(run_laps(SHAPES[name], [f"It says {word * 4}." for word in words]))
    assert found == {None} if name not in BLIND else Stage.BREAK not in found


PAGES = [f"{'head ' * 400}{random.Random(n).randbytes(3_000).hex()}{' tail' * 400}" for n in range(6)]
PICTURES = [
    text_of([{"type": "text", "text": "head\n" * 900}, {"type": "image", "data": str(n)}, TAIL]) for n in range(6)
]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("shown", [PAGES, PICTURES], ids=["pages", "pictures"])
def test_long_results_are_compared_whole(name, shown):
    """Law: of a long result every piece counts, though only its ends are kept: another text or picture in the middle
    is progress."""
    assert run_laps(SHAPES[name], [shown[0]] * 6) == LOOP
    if name in ONE_AT_A_TIME:
        assert set(run_laps(SHAPES[name], shown)) == {None}


@law
@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 5), st.integers(1, 4))
def test_a_request_that_is_sent_again_counts_once(name, at, times):
    """However often each request is sent again, and answered the same, the stages are those of a single one."""
    session, said, stages = ShrunkSession(), [], []
    for number in range(6):
        lap = make_lap(number, "the same")
        call = read_turns([*lap])[0].calls
        for _ in range(times if number == at else 1):
            request = SHAPES[name](HEAD, said, number)
            expected = session.expect(request)
            session.take(expected, Turn(call, (None,)))
        said += lap
        stages.append(len(session.window.kept))
    assert stages == [1, 2, 3, 4, 5, 6]


@law
@given(st.sampled_from(sorted(SHAPES)), st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9))
def test_a_client_that_sends_all_is_judged_by_that_alone(name, results):
    """The window adds nothing to what a full history shows: the stages are those without one."""
    seen = []
    for session in (ShrunkSession(), None):
        said, stages = [], []
        for number, result in enumerate(results):
            lap = make_lap(number, result)
            fresh = session or ShrunkSession()
            stages.append(run_laps(lambda *_, said=said: HEAD + said, [result], fresh)[0])
            said += lap
        seen.append(stages)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", SHAPES)
def test_a_user_who_speaks_rearms(name):
    """After a new message of the user's the streak begins anew, also where its answers are shown no more."""
    session = ShrunkSession()
    assert run_laps(SHAPES[name], ["the same"] * 4, session)[-1] is Stage.WARN
    spoken = [*HEAD, *make_lap(9, "the same"), {"role": "user", "content": "And now the other file, please."}]
    assert run_laps(SHAPES[name], ["the same"] * 2, session, spoken) == [None, None]


@pytest.mark.parametrize("rules", ["", "Judge it by the rules. " * 400])
def test_a_new_task_in_the_same_session_rearms(rules):
    """Law: a request without a history whose first message is another is a new task, wherever the two differ; what came
    before says nothing of it."""
    session = ShrunkSession()
    run_laps(FULL, ["the same"] * 4, session, [HEAD[0], {"role": "user", "content": f"{rules}The lamp."}])
    head = [HEAD[0], {"role": "user", "content": f"{rules}Something else altogether."}]
    assert run_laps(SHAPES["keeps the last 2"], ["the same"] * 2, session, head) == [None, None]


@pytest.mark.parametrize("words", ["Understood.", "Summary of the work so far: 4 calls."])
def test_words_of_the_client_join_no_other_task(words):
    """Law: words of the client in the assistant's name, which this server never said, are passed over; a new task that
    begins with them, too, is a new task."""
    session, foreword = ShrunkSession(), {"role": "assistant", "content": words}
    heads = [[HEAD[0], {"role": "user", "content": task}, foreword] for task in ("The lamp.", "The heating.")]
    assert run_laps(FULL, ["the same"] * 4, session, heads[0])[-1] is Stage.WARN
    assert run_laps(FULL, ["the same"] * 2, session, heads[1]) == [None, None]


@pytest.mark.parametrize("name", ["keeps the last 2", "keeps the last 4", "keeps nothing but the last 2"])
def test_a_text_agent_whose_requests_are_equal_is_stopped(name):
    """Its calls have no ids, so from some lap on all of its requests are equal to the letter: nudged, and ended at
    last; and one that is only sent again, a few times, is neither."""
    session, said, stages = ShrunkSession(), [], []
    text = 'Thought: I look at it.\nAction: read_file\nAction Input: {"path": "a"}'
    for number in range(10):
        judged = session.answer(SHAPES[name](HEAD, said, number), [Text(text)])
        stages.append(None if judged.loop is None else judged.loop.stage)
        said += [{"role": "assistant", "content": text}, {"role": "user", "content": "Observation:\nthe same"}]

    first = stages.index(Stage.BREAK)
    assert Stage.WARN in stages[2:first]
    assert first <= 8


def test_a_request_that_is_sent_again_a_few_times_is_no_loop():
    """One lap, and the same request four times more, each time with the answer that would be the second lap."""
    session, lap = ShrunkSession(), make_lap(0, "the same")
    run_laps(FULL, ["the same"], session)
    call = lap[0]["tool_calls"][0]["function"]
    event = CallDelta(index=0, id="c", name=call["name"], arguments=call["arguments"])
    assert {session.answer([*HEAD, *lap], [event]).loop for _ in range(5)} == {None}


def test_a_cycle_is_found_in_the_last_two_messages():
    """A, B, A, B, A, known two messages at a time: the third repetition begins at the fifth answer."""
    session, said, stages = ShrunkSession(), [], []
    for number in range(9):
        lap = make_lap(number, f"it is {'ab'[number % 2]}", f'{{"path": "{"ab"[number % 2]}"}}')
        expected = session.expect(SHAPES["keeps the last 2"](HEAD, said, number))
        turn = Turn(read_turns(lap)[0].calls, (None,))
        joined = loops.join_turns(session.window.kept, expected.shown, expected.turns, CONFIG)
        loop = find_kept_loop(joined, CONFIG, turn)
        stages.append(None if loop is None else loop.stage)
        session.take(expected, turn)
        said += lap
    assert stages == [None] * 4 + [Stage.WARN] * 4 + [Stage.BREAK]


@law
@given(st.lists(st.tuples(st.text(max_size=3_000), st.text(max_size=3_000)), max_size=12), st.integers(0, 200))
def test_what_is_kept_is_bounded(said, more):
    """Neither answers nor characters grow beyond the bounds, and a short turn stays as it is."""
    kept = ()
    pairs = [*said, *[("x" * 700, "y" * 900)] * more][:60]
    for number, (arguments, result) in enumerate(pairs):
        lap = make_lap(number, result, arguments)
        shown = read_shown([*HEAD, *lap], read_turns([*HEAD, *lap]), f"r{number}", CONFIG)
        kept = keep_answer(kept, shown, Turn((SeenCall("f", arguments),), (None,)), CONFIG)
        assert len(kept) <= KEPT_MAX
        assert count_kept_chars(kept) <= CHARS_MAX + 3_000


@law
@given(st.text(max_size=5_000))
def test_shortening_twice_is_shortening_once(text):
    """What is kept compares with what is shown, which is shortened by whoever comes to it first."""
    turn = Turn((SeenCall("f", text),), (text,))
    once = _shorten_turn(turn, CONFIG)
    assert _shorten_turn(once, CONFIG) == once


@law
@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "system", "?"])},
            optional={"content": st.none() | st.text(max_size=20) | st.lists(st.integers()), "tool_calls": st.text()},
        ),
        max_size=8,
    )
)
def test_any_history_is_read(messages):
    """Whatever stands in a history, what it shows is read."""
    turns = read_turns(messages)
    shown = read_shown(messages, turns, "r", CONFIG)
    assert keep_answer((), shown, Turn(text="ok"), CONFIG)
