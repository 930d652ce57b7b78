"""Conversations: who goes on is who he was, who begins is somebody new."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.sessions import conversations as module
from reliability.sessions import read_trail
from tests.evals.sessions_eval import Crowd
from tests.support.conversation import said, user
from tests.support.conversation_world import S, World

BEGIN: list[dict[str, Any]] = [{"role": "system", "content": "s"}, user("The same task.")]
LOOKED = "I have looked at all of the files."
BEGUN = [*BEGIN, said(LOOKED)]


def test_an_equal_block_with_other_words_is_another_answer(world):
    """Of clients that show nothing but the last two messages each is known by all of its text; one that shows another
    text around the same block, where two wait for another request, is nobody's."""
    block = "\n```bash\nls -la src\n```"
    texts = [f"{words} the source folder:{block}" for words in ("I list all of", "Let me look at")]
    names = [world.ask([BEGIN[0], user(f"Task {n}.")], said(text)) for n, text in enumerate(texts)]
    shown = [[BEGIN[0], said(text), user("a.py")] for text in texts]
    assert [world.ask(each, None) for each in reversed(shown)] == names[::-1]

    assert world.ask([BEGIN[0], said(f"So I see the sources:{block}"), user("b.py")]) not in names


def test_who_got_no_answer_waits_for_another_request(world):
    """Of two runs equal so far one took the other's place when it asked again; the other one, whose next request
    differs, goes on where nobody was answered."""
    begun = [world.begin(BEGIN) for _ in range(2)]
    for name, ticket in begun:
        world.end(name, ticket, LOOKED)
    world.ask([*BEGUN, user("Go on.")], None)
    taken = world.ask([*BEGUN, user("Go on.")], "I go on with all of them.")
    left = ({name for name, _ in begun} - {taken}).pop()

    assert world.ask([*BEGUN, user("And the tests?")], "I look at the tests, too.") == left


@pytest.mark.parametrize("end", ["\nThought:", "\nThought: "])
def test_who_writes_all_turns_into_one_prompt_is_followed(world, end):
    """A client that sends no messages but one prompt that grows (qwen-agent's ReAct) is known by how the
    prompt began, run by run; another question, and the same one asked anew, begin anew."""
    rules = "Use this:\nThought: think\nAction: a tool\nObservation: its result\n\nBegin!\nQuestion: "
    lap = "I go on.\nAction: look\nObservation: nothing\nThought: "

    def ask(question: str, laps: int) -> str:
        grown = f"{rules}{question}{end}{lap * laps}"
        return world.ask([BEGIN[0], user(grown)], "I go on.\nAction: look")

    runs = [[ask(question, laps) for laps in range(4)] for question in ("Rain?", "Snow?", "Rain?")]
    assert [len(set(run)) for run in runs] == [1, 1, 1]
    assert len({run[0] for run in runs}) == len(runs)


def write_trajectory(question: str, thoughts: list[str]) -> str:
    """A prompt of DSPy's ReAct: each step stands between its heading and its last paragraph."""
    steps = [
        f"[[ ## thought_{n} ## ]]\n{thought}\n\n[[ ## tool_name_{n} ## ]]\nlook\n\n[[ ## observation_{n} ## ]]\nnothing"
        for n, thought in enumerate(thoughts)
    ]
    lead = f"[[ ## question ## ]]\n{question}\n\n[[ ## trajectory ## ]]\n"
    return "\n\n".join([lead + "\n\n".join(steps), "Respond with the fields."])


def test_who_writes_all_turns_into_the_middle_of_a_prompt_is_followed(world):
    """Law: so it is where they stand before the prompt's last paragraph, if they quote what we answered; a prompt that
    is filled with other words is another conversation."""
    thoughts = [f"I look at the place number {n} of all that there are." for n in range(4)]

    def ask(question: str, done: int, words: str = "") -> str:
        prompt = write_trajectory(question, [words or thought for thought in thoughts[:done]])
        answer = f"[[ ## next_thought ## ]]\n{thoughts[done]}\n\n[[ ## next_tool_name ## ]]\nlook"
        return world.ask([BEGIN[0], user(prompt)], answer)

    runs = [[ask(question, done) for done in range(4)] for question in ("Rain?", "Snow?", "Rain?")]
    assert [len(set(run)) for run in runs] == [1, 1, 1]
    assert len({run[0] for run in runs}) == len(runs)
    first = ask("Hail?", 0)
    assert ask("Hail?", 1, "These are words of another one, and no answer.") != first


FILES = [user("These are the files: a.py"), said("Ok, any changes I propose will be to those files.")]
RULES = "\n\n# Every edit must be written like this."


def show_moving_files(turns: int, last: str) -> list[dict[str, Any]]:
    """The request after so many answers of a client that puts its files before the newest message, says the rules
    behind it, and adds an answer of its own to each of ours."""
    shown: list[dict[str, Any]] = []
    for turn in range(turns):
        shown += [user(f"Edit {turn} failed."), said(f"I change the line number {turn}:"), user("Done."), said("Ok.")]
    return [BEGIN[0], *shown, *FILES, user(last + RULES)]


def test_who_moves_messages_and_adds_answers_is_followed(world):
    """What stands before an answer is elsewhere in the next request, its message has lost its end, and newer answers
    are the client's own: it is known by how the message began, also after a request that got no answer."""
    names = []
    for turn in range(6):
        name, ticket = world.begin(show_moving_files(turn, f"Edit {turn} failed."))
        names.append(name)
        world.end(name, ticket, {"role": "assistant", "content": f"I change the line number {turn}:\n"})
    name, ticket = world.begin(show_moving_files(6, "Edit 6 failed."))
    world.end(name, ticket, None)

    assert {*names, name, world.begin(show_moving_files(6, "Then do something else."))[0]} == {names[0]}


def test_the_words_of_an_older_answer_alone_prove_nothing(world):
    """A request that shows words of an older answer, after another message, is somebody else's."""
    first, ticket = world.begin(show_moving_files(0, "Edit 0 failed."))
    world.end(first, ticket, {"role": "assistant", "content": "I change the line number 0:"})
    again = [user("Another task."), said("I change the line number 0:")]
    other = [BEGIN[0], *again, user("So."), said("Well."), user("On.")]
    assert world.begin(other)[0] != first


@pytest.mark.parametrize("seed", range(100, 130))
def test_a_crowd_of_agents_finds_its_sessions(seed):
    """Whatever clients do to their histories, and however many begin alike: every request is in its own session."""
    crowd = Crowd(seed)
    crowd.play()
    assert crowd.wrong == []


@pytest.mark.parametrize("mark", ["\n</code>", "<end_code>", " [edited]"])
def test_what_a_client_adds_to_an_answer_is_no_other_answer(world, mark):
    """Of two runs that began alike each is known by how its own answer begins."""
    answers = [f"{word} look at all of the files in the repository." for word in ("First I", "Now let me")]
    names = [world.ask(BEGIN, answer) for answer in answers]
    found = [world.ask([*BEGIN, said(answer + mark), user("Go on.")]) for answer in reversed(answers)]
    assert found == names[::-1]


def test_a_first_request_that_got_no_answer_may_be_sent_again(world):
    """A retry is no new session: else a budget would leak. After a while the same words are a new run."""
    name = world.ask(BEGIN, None)
    assert world.ask(BEGIN, None) == name
    world.now_ns += module._RETRY_NS
    assert world.ask(BEGIN, None) != name


def test_a_later_request_may_be_sent_again(world):
    """In vain or answered, in flight or not: it goes on from its own conversation."""
    name = world.ask(BEGIN, LOOKED)
    more = [*BEGUN, user("And now?")]
    assert world.ask(more, None) == name
    assert world.begin(more)[0] == name
    assert world.ask(more, "Now I write the tests for them.") == name
    assert world.ask(more, "Now I write something else.") == name
    assert world.ask([*more, said("Now I write something else."), user("Why?")]) == name


def test_an_older_answer_may_be_gone_on_from(world):
    """Who edits what he asked stays in his session."""
    name = world.ask(BEGIN, LOOKED)
    for words in ("one", "two", "three"):
        assert world.ask([*BEGUN, user(words)], f"This is my answer to {words}.") == name


def test_an_ended_run_takes_nothing_of_a_later_one(world):
    """A run that begins as an ended one did is new, and stays it."""
    old = world.ask(BEGIN, LOOKED)
    world.ask([*BEGUN, user("Thanks.")], "You are welcome, any time.")
    new = world.ask(BEGIN, LOOKED)
    assert new != old
    assert world.ask([*BEGUN, user("Go on.")]) == new


def test_words_that_a_client_puts_into_every_run_prove_nothing(world):
    """Examples in the assistant's name that nobody here wrote make no session."""
    example = [user("Change it."), said("Ok, I have changed all of the files."), user("A new task.")]
    assert world.ask(example, "Done with all of it.") != world.ask(example, "Done with all of it.")


@pytest.mark.parametrize(("key", "owner"), [("l", ""), ("k", "other")])
def test_two_keys_never_share(world, key, owner):
    """The same history under another key, or another credential, is another's."""
    name = world.ask(BEGIN, LOOKED)
    more = [*BEGUN, user("Go on.")]
    assert world.ask(more, None, key, owner) != name
    assert world.ask(more) == name


def test_the_same_sending_is_found_again(world):
    """A step that comes twice asks twice under one ticket: one session, and one answer."""
    trail = read_trail(BEGIN)
    names = {world.known.find("k", trail, "t", now) for now in range(3)}
    assert len(names) == len(world.known) == 1


def test_a_summary_is_its_session(world):
    """A history that was folded into words of ours, or by the client of the only run that began so."""
    a = world.ask(BEGIN, LOOKED)
    more = [*BEGUN, user("Summarize the conversation.")]
    world.ask(more, "All of the files were read, and two of them are empty.")
    other = world.ask(BEGIN, LOOKED)
    quoted = "Continued from a previous conversation.\nAll of the files were read, and two of them are empty.\nGo on."
    assert world.ask([*BEGIN, user(quoted)], "Then I delete the two of them.") == a
    world.ask([*BEGIN, user(quoted), said("Then I delete the two of them."), user("Summarize.")], f"Both {'a' * 40}.")
    acknowledged = [user(f"<state_snapshot>\nBoth {'a' * 40}.\n</state_snapshot>"), said("Got it."), user("Next one.")]
    assert world.ask([BEGIN[0], *acknowledged], "The next one, as you say.") == a
    world.now_ns += module._RETRY_NS
    world.ask([*BEGUN, user("Go on, please.")], "I go on, as you say.")
    assert world.ask([*BEGIN, user("Summary of the work so far: files were read.")]) == other


def test_what_nobody_can_tell_is_new(world):
    """Two runs that began alike, and a summary that quotes neither: a new session, not another's."""
    names = {world.ask(BEGIN, f"I have looked at file {n} of them.") for n in range(2)}
    assert world.ask([*BEGIN, user("Summary of the work so far: files were read.")]) not in names


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_what_is_known_is_bounded(most, asked):
    """Never more conversations than that, nor a digest of a forgotten one, nor an open ticket of one."""
    world = World(most)
    for number, (begin, answered) in enumerate(asked):
        messages = [user(f"task {begin}"), *([said("A long enough answer of mine."), user("x")] if number % 3 else [])]
        world.ask(messages, "A long enough answer of mine." if answered else None)
    known: Any = world.known

    assert len(known) <= most
    assert {at for holders in known._index.values() for at in holders} <= known._known.keys()
    assert not known._tickets


def test_the_digests_are_bounded(monkeypatch):
    """However long conversations grow, each keeps a few answers, and all of them so many digests."""
    monkeypatch.setattr(module, "_DIGESTS_MAX", 200)
    world = World(1_000)
    for run in range(20):
        shown = [user(f"task {run}")]
        for number in range(20):
            answer = f"Answer number {number} in run {run}."
            world.ask(shown, answer)
            shown += [said(answer), user("go on")]

    assert len(world.known._index) <= 200 + 10 * module._NODES_MAX
    assert len(world.known) >= 2


def test_what_is_idle_is_forgotten():
    """After its time to live a conversation is unknown, and what goes on from it is new."""
    world = World(ttl_ns=60 * S)
    name = world.ask(BEGIN, LOOKED)
    world.now_ns += 60 * S
    assert world.ask([*BEGUN, user("Go on.")]) != name
    assert len(world.known) == 1
