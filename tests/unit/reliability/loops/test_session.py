"""The session window and the simple face: careful, bounded, and blind to retries."""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability import loops
from reliability.loops import LoopConfig, LoopDetector, LoopStatus, SeenCall, Stage, Turn, Window, name_asked, observe
from reliability.loops.session import window_repeats_already

NORMAL, WARNING, BREAK = LoopStatus.NORMAL, LoopStatus.WARNING, LoopStatus.CIRCUIT_BREAK
law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
answers = st.one_of(
    st.builds(
        lambda name, n: Turn((SeenCall(name, json.dumps({"n": n})),), (None,)),
        st.sampled_from(["read", "write"]),
        st.integers(0, 2),
    ),
    st.builds(
        lambda text: Turn(text=text), st.sampled_from(["", "Done.", "I will look at it now.", "Something else."])
    ),
)


def completion(name: str, arguments: str = "{}", call_id: str = "c", text: str | None = None) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"message": {"role": "assistant", "content": text, "tool_calls": [call]}}]}


@law
@given(st.lists(answers, max_size=30), st.integers(1, 12))
def test_the_window_is_bounded(said: list[Turn], size: int) -> None:
    """A window never holds more than `window_size` answers."""
    window, config = Window(), LoopConfig(window_size=size)
    for answer in said:
        window, _ = observe(window, answer, config)
        assert len(window.answers) <= size


@law
@given(st.lists(answers, max_size=12), answers, st.integers(2, 6))
def test_an_answer_to_the_same_request_counts_once(said: list[Turn], answer: Turn, times: int) -> None:
    """However often a request is sent again, its answers leave the window and the verdict as one would."""
    window = Window()
    for before in said:
        window, _ = observe(window, before, LoopConfig())
    once = observe(window, answer, LoopConfig(), "r1")
    repeated = once
    for _ in range(times):
        repeated = observe(repeated[0], answer, LoopConfig(), "r1")
    assert repeated == once


def test_the_third_equal_answer_warns_and_the_fifth_breaks() -> None:
    """Equal calls, with other ids, key order and wording, count; the circuit breaks two laps after that."""
    detector = LoopDetector(10, 3, 0.95)
    spellings = [
        '{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a":1,"b":2}', ' {"a": 1, "b": 2.0}', '{"b":2,"a":1}',
    ]  # fmt: skip
    said = [completion("read", s, call_id=f"c{i}", text=f"Thought {i}") for i, s in enumerate(spellings)]
    assert [detector.check("s", answer) for answer in said] == [NORMAL, NORMAL, WARNING, WARNING, BREAK]


def test_texts_count_by_likeness() -> None:
    """Texts are alike from the given similarity on, and below it they are not."""
    base = "I am going to look at the configuration file of the project once more, and then decide what to do"
    said = [f"{base}{mark}" for mark in (".", "!", " ", "…", ".")]
    assert [LoopDetector().check("s", base)] == [NORMAL]
    detector = LoopDetector()
    assert [detector.check("s", text) for text in said] == [NORMAL, NORMAL, WARNING, WARNING, BREAK]
    strict = LoopDetector(similarity=1.0)
    assert {strict.check("s", text) for text in said[:4]} == {NORMAL}


def test_sessions_are_apart() -> None:
    """One session's answers say nothing of another's."""
    detector = LoopDetector()
    for number in range(9):
        assert detector.check(f"s{number}", "The same text for everyone.") is NORMAL
    for _ in range(4):
        detector.check("a", completion("read"))
    assert detector.check("a", completion("read")) is BREAK


def test_sessions_are_bounded() -> None:
    """The least recently used session is forgotten first."""
    detector = LoopDetector(sessions_max=2)
    for session in ("a", "b", "a", "a", "c", "a"):
        detector.check(session, "The same text again and again.")
    assert len(detector) == 2
    assert detector.check("a", "The same text again and again.") is BREAK
    assert detector.check("b", "The same text again and again.") is NORMAL


def test_another_answer_ends_the_streak() -> None:
    """Only answers in a row count: equal ones anywhere in the window do not."""
    detector = LoopDetector()
    mixed = ["read", "read", "write", "read", "read", "look", "read"]
    assert {detector.check("s", completion(name)) for name in mixed} == {NORMAL}


def test_cycles_of_calls_are_found() -> None:
    """A, B, A, B, A is the third lap, as in the history; texts in turn are a conversation."""
    detector = LoopDetector()
    assert [detector.check("s", completion(n)) for n in "ababa"] == [NORMAL] * 4 + [WARNING]
    texts = ["Shall I go on?", "Here is the answer that you want."] * 4
    assert {detector.check("t", text) for text in texts} == {NORMAL}


def test_pollers_have_their_own_limit() -> None:
    """A declared or named poller is spared at the common thresholds."""
    detector = LoopDetector(window_size=32, pollers=("check_ci",))
    found = [detector.check("s", completion("check_ci")) for _ in range(20)]
    assert found == [NORMAL] * 9 + [WARNING] * 10 + [BREAK]
    assert {detector.check("t", completion("wait_for_it")) for _ in range(9)} == {NORMAL}


def test_nothing_said_counts_as_nothing() -> None:
    """Empty answers and a disabled detector never convict and leave no trace."""
    detector = LoopDetector()
    assert {detector.check("s", "") for _ in range(9)} == {NORMAL}
    assert observe(Window(), Turn(text="x"), LoopConfig(enabled=False)) == (Window(), None)
    off = LoopDetector(threshold=0)
    assert {off.check("s", "The same.") for _ in range(9)} == {NORMAL}


def test_a_loop_names_what_repeats() -> None:
    """The loop of a window carries the tool or the text, the laps and whether it is new."""
    window = Window()
    found = []
    for _ in range(4):
        window, loop = observe(window, Turn((SeenCall("read", "{}"),), (None,)), LoopConfig())
        found.append(loop)
    assert found[2] is not None
    assert (found[2].kind, found[2].tool, found[2].repetitions) == (loops.Kind.CALLS, "read", 3)
    assert found[3] is not None
    assert (found[3].repetitions, found[3].key) == (4, found[2].key)


@pytest.mark.parametrize("count", range(4))
def test_a_session_without_its_history_is_held_too(count):
    """There the window says it: the newest answer stood in it before, or a cycle of calls for the same."""
    config, window = LoopConfig(), Window()
    for number in range(count):
        window, _ = observe(window, Turn(text="I am done with it now."), config, str(number))
    assert window_repeats_already(window, config) is (count >= 2)
    other, _ = observe(window, Turn(text="Something else altogether."), config, "other")
    assert not window_repeats_already(other, config)
    assert not window_repeats_already(window, LoopConfig(enabled=False))
    window = Window()
    for number, name in enumerate("fgfg"[: 2 * count]):
        window, _ = observe(window, Turn((SeenCall(name, "{}"),), (None,)), config, str(number))
    assert window_repeats_already(window, config) is (count >= 2)


def user(text: str, system: str = "") -> list[dict[str, str]]:
    head = [{"role": "system", "content": system}] if system else []
    return [*head, {"role": "user", "content": text}]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.text(max_size=30), st.booleans(), st.booleans())
def test_only_what_a_request_goes_on_with_counts(texts, more, grows, shared):
    """Law: the answers to requests whose text the new one begins with, or has but for figures, are kept, whatever their
    system prompt, and no others: tasks of a batch, and of an agent's helpers, have nothing to do with each other. In a
    session of many tasks figures count, too."""
    asked = ["".join(texts[: n + 1]) if grows else text for n, text in enumerate(texts)]
    window = Window()
    for number, text in enumerate(asked):
        told = Turn(text=f"{number} words {text}")
        window, _ = observe(window, told, LoopConfig(), name_asked(user(text), str(number), shared))
    new = asked[-1] + more
    kept = loops.keep_continued(window, user(new, system="Today is Monday."))
    figures = [re.sub(r"\d+", "0", text.rstrip()) for text in (*asked, new)]
    wanted = [
        text
        for text, words in zip(asked, figures, strict=False)
        if new.rstrip().startswith(text.rstrip()) or (words == figures[-1] and not shared)
    ]
    assert len(kept.answers) == len(wanted)
    assert not grows or len(kept.answers) == len(asked)


@given(st.booleans(), st.booleans(), st.sampled_from(["", "Classify the command."]), st.booleans())
def test_an_agents_side_requests_are_no_laps(agent, tools, system, more):
    """Law: in a session that has tools, requests with a system prompt of their own and without tools differ by their
    figures, too; any other request goes on with one that differs in figures alone. One that grows goes on with the
    older ones everywhere."""
    window = Window(tools=agent)
    for number in (101, 108):
        asked = name_asked(user(f"Command: gh issue view {number}", system), str(number))
        window, _ = observe(window, Turn(text="gh issue view"), LoopConfig(), asked)
    new = user("Command: gh issue view 108\nIts result: nothing" if more else "Command: gh issue view 115", system)
    kept = loops.keep_continued(window, new, tools=tools)
    aside = agent and not tools and bool(system)
    assert len(kept.answers) == (1 if more else 0 if aside else 2)
    assert kept.tools == agent


def test_equal_answers_to_other_tasks_are_no_loop():
    """Law: mails that are classified alike are no loop; one conversation in a growing text is."""
    stages, count = {}, 8
    for name, text in {
        "tasks": lambda n: f"Classify this mail: {'abcdefgh'[n]} wrote to you.",
        "text": lambda n: "Fix it.\n" + "Result: nothing.\n" * n,
        "steps": lambda n: f"Go on with step {n + 8}.",
    }.items():
        window, stages[name] = Window(), []
        for n in range(count):
            kept = loops.keep_continued(window, user(text(n)))
            answer = Turn((SeenCall("label", '{"as": "spam"}'),), (None,))
            stages[name].append(observe(kept, answer, LoopConfig(), name_asked(user(text(n)), str(n)))[1])
            window, _ = observe(window, answer, LoopConfig(), name_asked(user(text(n)), str(n)))
    assert stages["tasks"] == [None] * count
    for name in ("text", "steps"):
        found = [loop and loop.stage for loop in stages[name]]
        assert found == [None, None, *[Stage.WARN] * 2, *[Stage.BREAK] * 4]


@pytest.mark.parametrize("quoted", [True, False])
def test_a_prompt_filled_in_its_middle_goes_on_where_it_quotes_the_answer(quoted: bool) -> None:
    """Law: steps written before the last paragraph of a prompt (DSPy) are one conversation where they quote the
    answers; a prompt that is filled with more and more of another text is none."""
    said, window, found = "I look for the thing that the question was about, in the index.", Window(), []
    for n in range(6):
        steps = f"[[ thought ]]\n{said if quoted else 'One more mail of somebody that says hello to you.'}\n\n" * n
        asked = user(f"[[ question ]]\nWhat?\n\n[[ trajectory ]]\n{steps}\n\nRespond with the fields.")
        window = loops.keep_continued(window, asked)
        window, loop = observe(window, Turn(text=f"[[ next ]]\n{said}"), LoopConfig(), name_asked(asked, str(n)))
        found.append(loop and loop.stage)
    assert found == ([None, None, Stage.WARN, Stage.WARN, Stage.BREAK, Stage.BREAK] if quoted else [None] * 6)
