"""Conversations: who goes on is who he was, who begins is somebody new."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.sessions import conversations as module
from reliability.sessions import read_trail
from tests.evals.sessions_eval import Crowd
from tests.support.conversation_world import S, World

BEGIN: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "The same task."}]


def say(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def ask(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def test_an_equal_block_with_other_words_is_another_answer():
    """Of clients that show nothing but the last two messages each is known by all of its text; one that shows another
    text around the same block, where two wait for another request, is nobody's."""
    world = World()
    block = "\n```bash\nls -la src\n```"
    texts = [f"{words} the source folder:{block}" for words in ("I list all of", "Let me look at")]
    names = [world.ask([BEGIN[0], ask(f"Task {n}.")], say(text)) for n, text in enumerate(texts)]
    shown = [[BEGIN[0], say(text), ask("a.py")] for text in texts]
    assert [world.ask(each, None) for each in reversed(shown)] == names[::-1]

    assert world.ask([BEGIN[0], say(f"So I see the sources:{block}"), ask("b.py")]) not in names


def test_who_got_no_answer_waits_for_another_request():
    """Of two runs equal so far one took the other's place when it asked again; the other one, whose next request
    differs, goes on where nobody was answered."""
    world = World()
    begun = [world.begin(BEGIN) for _ in range(2)]
    for name, ticket in begun:
        world.end(name, ticket, "I have looked at all of the files.")
    more = [*BEGIN, say("I have looked at all of the files.")]
    world.ask([*more, ask("Go on.")], None)
    taken = world.ask([*more, ask("Go on.")], "I go on with all of them.")
    left = ({name for name, _ in begun} - {taken}).pop()

    assert world.ask([*more, ask("And the tests?")], "I look at the tests, too.") == left


FILES = [ask("These are the files: a.py"), say("Ok, any changes I propose will be to those files.")]
RULES = "\n\n# Every edit must be written like this."


def show_moving_files(turns: int, last: str) -> list[dict[str, Any]]:
    """The request after so many answers of a client that puts its files before the newest message, says the rules
    behind it, and adds an answer of its own to each of ours."""
    said: list[dict[str, Any]] = []
    for turn in range(turns):
        said += [ask(f"Edit {turn} failed."), say(f"I change the line number {turn}:"), ask("Done."), say("Ok.")]
    return [BEGIN[0], *said, *FILES, ask(last + RULES)]


def test_who_moves_messages_and_adds_answers_is_followed():
    """What stands before an answer is elsewhere in the next request, its message has lost its end, and newer answers
    are the client's own: it is known by how the message began, also after a request that got no answer."""
    world = World()
    names = []
    for turn in range(6):
        name, ticket = world.begin(show_moving_files(turn, f"Edit {turn} failed."))
        names.append(name)
        world.end(name, ticket, {"role": "assistant", "content": f"I change the line number {turn}:\n"})
    name, ticket = world.begin(show_moving_files(6, "Edit 6 failed."))
    world.end(name, ticket, None)

    assert {*names, name, world.begin(show_moving_files(6, "Then do something else."))[0]} == {names[0]}


def test_the_words_of_an_older_answer_alone_prove_nothing():
    """A request that shows words of an older answer, after another message, is somebody else's."""
    world = World()
    first, ticket = world.begin(show_moving_files(0, "Edit 0 failed."))
    world.end(first, ticket, {"role": "assistant", "content": "I change the line number 0:"})
    other = [BEGIN[0], ask("Another task."), say("I change the line number 0:"), ask("So."), say("Well."), ask("On.")]
    assert world.begin(other)[0] != first


@pytest.mark.parametrize("seed", range(100, 130))
def test_a_crowd_of_agents_finds_its_sessions(seed):
    """Whatever clients do to their histories, and however many begin alike: every request is in its own session."""
    crowd = Crowd(seed)
    crowd.play()
    assert crowd.wrong == []


@pytest.mark.parametrize("mark", ["\n</code>", "<end_code>", " [edited]"])
def test_what_a_client_adds_to_an_answer_is_no_other_answer(mark):
    """Of two runs that began alike each is known by how its own answer begins."""
    world = World()
    answers = [f"{word} look at all of the files in the repository." for word in ("First I", "Now let me")]
    names = [world.ask(BEGIN, answer) for answer in answers]
    found = [world.ask([*BEGIN, say(answer + mark), ask("Go on.")]) for answer in reversed(answers)]
    assert found == names[::-1]


def test_a_first_request_that_got_no_answer_may_be_sent_again():
    """A retry is no new session: else a budget would leak. After a while the same words are a new run."""
    world = World()
    name = world.ask(BEGIN, None)
    assert world.ask(BEGIN, None) == name
    world.now_ns += module._RETRY_NS
    assert world.ask(BEGIN, None) != name


def test_a_later_request_may_be_sent_again():
    """In vain or answered, in flight or not: it goes on from its own conversation."""
    world = World()
    name = world.ask(BEGIN, "I have looked at all of the files.")
    more = [*BEGIN, say("I have looked at all of the files."), ask("And now?")]
    assert world.ask(more, None) == name
    assert world.begin(more)[0] == name
    assert world.ask(more, "Now I write the tests for them.") == name
    assert world.ask(more, "Now I write something else.") == name
    assert world.ask([*more, say("Now I write something else."), ask("Why?")]) == name


def test_an_older_answer_may_be_gone_on_from():
    """Who edits what he asked stays in his session."""
    world = World()
    name = world.ask(BEGIN, "I have looked at all of the files.")
    more = [*BEGIN, say("I have looked at all of the files.")]
    for words in ("one", "two", "three"):
        assert world.ask([*more, ask(words)], f"This is my answer to {words}.") == name


def test_an_ended_run_takes_nothing_of_a_later_one():
    """A run that begins as an ended one did is new, and stays it."""
    world = World()
    old = world.ask(BEGIN, "I have looked at all of the files.")
    world.ask([*BEGIN, say("I have looked at all of the files."), ask("Thanks.")], "You are welcome, any time.")
    new = world.ask(BEGIN, "I have looked at all of the files.")
    assert new != old
    assert world.ask([*BEGIN, say("I have looked at all of the files."), ask("Go on.")]) == new


def test_words_that_a_client_puts_into_every_run_prove_nothing():
    """Examples in the assistant's name that nobody here wrote make no session."""
    world = World()
    example = [ask("Change it."), say("Ok, I have changed all of the files."), ask("A new task.")]
    assert world.ask(example, "Done with all of it.") != world.ask(example, "Done with all of it.")


@pytest.mark.parametrize(("key", "owner"), [("l", ""), ("k", "other")])
def test_two_keys_never_share(key, owner):
    """The same history under another key, or another credential, is another's."""
    world = World()
    name = world.ask(BEGIN, "I have looked at all of the files.")
    more = [*BEGIN, say("I have looked at all of the files."), ask("Go on.")]
    assert world.ask(more, None, key, owner) != name
    assert world.ask(more) == name


def test_the_same_sending_is_found_again():
    """A step that comes twice asks twice under one ticket: one session, and one answer."""
    world = World()
    trail = read_trail(BEGIN)
    names = {world.known.find("k", trail, "t", now) for now in range(3)}
    assert len(names) == len(world.known) == 1


def test_a_summary_is_its_session():
    """A history that was folded into words of ours, or by the client of the only run that began so."""
    world = World()
    a = world.ask(BEGIN, "I have looked at all of the files.")
    more = [*BEGIN, say("I have looked at all of the files."), ask("Summarize the conversation.")]
    world.ask(more, "All of the files were read, and two of them are empty.")
    other = world.ask(BEGIN, "I have looked at all of the files.")
    quoted = "Continued from a previous conversation.\nAll of the files were read, and two of them are empty.\nGo on."
    assert world.ask([*BEGIN, ask(quoted)], "Then I delete the two of them.") == a
    world.ask([*BEGIN, ask(quoted), say("Then I delete the two of them."), ask("Summarize.")], f"Both {'a' * 40}.")
    acknowledged = [ask(f"<state_snapshot>\nBoth {'a' * 40}.\n</state_snapshot>"), say("Got it."), ask("Next one.")]
    assert world.ask([BEGIN[0], *acknowledged], "The next one, as you say.") == a
    world.now_ns += module._RETRY_NS
    world.ask([*BEGIN, say("I have looked at all of the files."), ask("Go on, please.")], "I go on, as you say.")
    assert world.ask([*BEGIN, ask("Summary of the work so far: files were read.")]) == other


def test_what_nobody_can_tell_is_new():
    """Two runs that began alike, and a summary that quotes neither: a new session, not another's."""
    world = World()
    names = {world.ask(BEGIN, f"I have looked at file {n} of them.") for n in range(2)}
    assert world.ask([*BEGIN, ask("Summary of the work so far: files were read.")]) not in names


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_what_is_known_is_bounded(most, asked):
    """Never more conversations than that, nor a digest of a forgotten one, nor an open ticket of one."""
    world = World(most)
    for number, (begin, answered) in enumerate(asked):
        messages = [ask(f"task {begin}"), *([say("A long enough answer of mine."), ask("x")] if number % 3 else [])]
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
        said = [ask(f"task {run}")]
        for number in range(20):
            answer = f"Answer number {number} in run {run}."
            world.ask(said, answer)
            said += [say(answer), ask("go on")]

    assert len(world.known._index) <= 200 + 10 * module._NODES_MAX
    assert len(world.known) >= 2


def test_what_is_idle_is_forgotten():
    """After its time to live a conversation is unknown, and what goes on from it is new."""
    world = World(ttl_ns=60 * S)
    name = world.ask(BEGIN, "I have looked at all of the files.")
    world.now_ns += 60 * S
    assert world.ask([*BEGIN, say("I have looked at all of the files."), ask("Go on.")]) != name
    assert len(world.known) == 1
