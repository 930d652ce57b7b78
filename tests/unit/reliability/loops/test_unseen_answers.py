"""The unseen answer: what would have to be looked up is answered in words."""

from typing import Any

import pytest

from reliability import loops
from reliability.answer.judgement import expect
from reliability.answer.wanted_form import read_wanted_form
from reliability.loops import Kind, LoopConfig, Stage, Turn, find_unseen, keep_looked, nudge, read_ask, read_turns
from reliability.loops.unseen_answers import Looked, read_looked
from reliability.steps import Steps
from reliability.tools import CheckConfig, build_toolbox
from tests.support.conversation import CONFIG, Message, acted, ask, said, told, user
from tests.support.renderings import tool

ANSWER = "The file has already been updated. The owner's name is Mira-433."
ASKS = (
    "Read the file part_{}.txt and say what its owner's name is.", "Run the tests of src/module{}.py, please.",
    "What does https://example.org/page{} say?", "请读取 part_{}.txt",
)  # fmt: skip
CALLED = [user("Read notes.txt."), *acted("f", {"a": 1}, "nothing in it")]
REMINDED = [user("<system-reminder>\nBe brief.\n</system-reminder>\nGo.")]


TOOLS = ("send_alert", "read_file", "bash")


def declare(*names: str) -> tuple[Message, ...]:
    return tuple(tool(name, {"type": "object"}) for name in names)


LOOKS, ACTS = declare("send_alert", "read_file"), declare("send_alert", "place_order", "set_status")


def read_copied(messages: list[Message], config: LoopConfig = CONFIG) -> str:
    """The answer that would be a copy."""
    asked = read_ask(messages, TOOLS, config)
    return "" if asked is None else asked.copied


def ask_for(asks: list[str], answers: list[Any], before: list[Message] = CALLED) -> list[Message]:
    """A conversation of these requests and answers, with a newest request that has no answer yet."""
    messages = [*before, said("There is nothing in it.")]
    for words, answer in zip(asks, [*answers, None], strict=True):
        messages += [user(words)] if answer is None else [user(words), said(answer)]
    return messages


@pytest.mark.parametrize("form", ASKS)
@pytest.mark.parametrize("before", [CALLED, REMINDED], ids=["calls", "reminders"])
@pytest.mark.parametrize("rounds", [2, 5, 40])
def test_the_answer_of_the_requests_before_is_a_copy(form, before, rounds):
    """Law: who gives a request that names another thing the words that the last two got is nudged, however long this
    has gone on, and told what is wrong; never more than nudged."""
    asks = [form.format(n) for n in range(rounds + 1)]
    messages = ask_for(asks, [ANSWER] * rounds, before)
    asked = read_ask(messages, TOOLS, CONFIG)
    loop = find_unseen(asked, (), Turn(text=f"\n{ANSWER}  "), CONFIG)

    assert (loop.kind, loop.stage) == (Kind.UNSEEN, Stage.WARN)
    assert "something else" in nudge(loop)
    assert loops.find_loop(read_turns(messages), LoopConfig(), Turn(text=ANSWER)) is None  # no other rule sees it
    assert find_unseen(asked, (), Turn(text="The owner's name is Tomas-919."), CONFIG) is None
    assert find_unseen(asked, (), Turn(calls=read_turns(CALLED)[0].calls, text=ANSWER), CONFIG) is None


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
        (FILES, [ANSWER] * 2, [user("Hello.")]),
        (["Is a.txt there?", "And b.txt?", "And c.txt?"], ["I have a.txt, b.txt and c.txt here."] * 2, CALLED),
        *((asks, [answer] * 2, CALLED) for asks, answer in BRINGS_DATA),
    ],
    ids=["thanks", "same", "back", "short", "others", "second", "chat", "named", *(asks[0] for asks, _ in BRINGS_DATA)],
)
def test_what_may_be_answered_alike_is_no_copy(asks, answers, before):
    """Law: thanks, a request that is said again, a short answer, answers that differ, the second one, a chat without
    calls, and an answer that names the thing."""
    assert read_copied(ask_for(asks, answers, before)) == ""


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
    assert read_copied(ask_for(asks, [ANSWER] * 3)) == ""
    assert read_copied(ask_for([f"{one} File {n}7.txt." for n, one in enumerate(asks)], [ANSWER] * 3)) == ANSWER


def test_a_call_between_is_work():
    """Law: only answers without a call count, and only a request of the user's is answered with a copy."""
    messages = ask_for(FILES, [ANSWER] * 2)
    worked = [*messages[:6], *CALLED[1:], *messages[6:]]

    assert read_copied(messages) == ANSWER
    assert read_copied(worked) == ""
    assert read_copied([*messages, *CALLED[1:]]) == ""


@pytest.mark.parametrize("threshold", [0, 1, 4])
def test_the_threshold_is_that_of_nudges(threshold):
    """Law: `duplicate_threshold` counts the copies, and 0 is off."""
    assert read_copied(ask_for(FILES, [ANSWER] * 2), LoopConfig(duplicate_threshold=threshold)) == ""


@pytest.mark.parametrize(("wanted", "form", "tools", "copied"), [
    (None, None, LOOKS, ANSWER), ("auto", None, LOOKS, ANSWER), ("none", None, LOOKS, ""),
    ("required", None, LOOKS, ""), (None, None, ACTS, ""), (None, None, (), ""),
    (None, {"type": "json_object"}, LOOKS, ""),
])  # fmt: skip
def test_words_that_are_ordered_are_no_copy(wanted, form, tools, copied):
    """Law: it matters only where the model may choose between a look and words in no form: a verdict in the form that
    the client wants may be the same each time."""
    asked = {"id_seed": "r", "tool_choice": wanted, "form": read_wanted_form(form, Steps(1_000)), "loops": CONFIG}
    found = expect(ask_for(FILES, [ANSWER] * 2), build_toolbox(tools), **asked).ask
    assert (found.copied if found else "") == copied


def look_up(form: str, place: str, name: str = "read_file") -> list[Message]:
    """A request that was looked up, and answered."""
    looked = ask(name, {"path": f"/work/{place}"}, place)
    return [user(form.format(place)), looked, told("Entry 1 is in order.", place), said("It is Mira-433.")]


def find_in(
    messages: list[Message], looked: tuple[Looked, ...] = (), *, tools: tuple[str, ...] = TOOLS, **turn: Any
) -> Any:
    """Find whether an answer to a conversation is unseen. `looked`: what its session remembers."""
    return find_unseen(read_ask(messages, tools, CONFIG), looked, Turn(**turn or {"text": "It is Tomas-919."}), CONFIG)


READ = "Read the file {} and say what its owner's name is."
#: How one request is asked, and how a later one is that wants the same of another place.
ALIKE = [
    (READ, READ), (READ, "Please read {} and say what its owner's name is"),
    ("What does {} do?", "What does {} do, please?"), ("Explain {}.", "And {}?"),
    ("Explain {}.", "Now the same for {}"), ("Explain {}.", "{}"),
    ("Lies {} und nenne den Besitzer.", "Lies jetzt {} und nenne den Besitzer."), ("请读取 {}", "请读取 {}"),
    ("Is {} in <b>order</b>? Report 17 problems.", "Is {} in <b>order</b>? Report 18 problems."),
]  # fmt: skip
PLACES = [("part_11.txt", "part_12.txt"), ("src/app.py", "src/models/user.py"), ("Main.java", "Other.java")]


@pytest.mark.parametrize(("first", "then"), ALIKE, ids=[then for _, then in ALIKE])
@pytest.mark.parametrize(("old", "new"), PLACES, ids=[new for _, new in PLACES])
@pytest.mark.parametrize("between", [0, 3])
def test_what_was_looked_up_once_is_looked_up_again(first, then, old, new, between):
    """Law: words about another place, where an earlier request for its like was looked up, are nudged, whatever they
    say, however long ago that was, and whether the conversation shows it or its session remembers it."""
    done = look_up(first, old)
    chat, asked = [user("Thanks!"), said("You are welcome.")] * between, user(then.format(new))
    remembered = keep_looked((), read_looked(done))
    folded = user(f"This session is continued. Summary: the user had me read {old}.")

    for loop in (
        find_in([*done, *chat, asked]),
        find_in([folded, said("I go on."), *REMINDED, *CALLED[1:], asked], remembered),
    ):
        assert (loop.kind, loop.stage, loop.looks) == (Kind.UNSEEN, Stage.WARN, ("read_file",))
        assert "look" in nudge(loop)
        assert "looked up" in loops.describe_loop(loop)
    assert find_in([*REMINDED, asked]) is None  # nothing tells that it wants a look
    assert find_in([*done, asked], calls=read_turns(done)[0].calls) is None


NOTED = "<system-reminder>\nCalled the Read tool: part_12.txt is Mira's.\n</system-reminder>"
#: How something was looked up, and what names no other file, answers a question, or tells what it names.
LEGIT = [
    ("Explain {}.", "Explain async/await."), ("Explain {}.", "And json.load?"), ("Explain {}.", "And in Node.js?"),
    ("What does {} do?", "What does asyncio.gather do?"), ("What does {} do?", "What would part_12.txt do?"),
    ("What does parse in {} do?", "What does load in part_11.txt do?"), ("Lies {} bitte.", "我已经修改了part_12.txt"),
    (READ, f"{NOTED}\n{READ.format('part_12.txt')}"),
    (READ, "Read the file part_11.txt and say what its owner's name is."),  # it was read
    (READ, "Thanks! I have put it into part_12.txt now."),
    (READ, "Don't read the file part_12.txt, and say what its owner's name is."),
    (READ, "Say what its owner's name is."),
    (READ, "Read the file and say what its owner's name is at 10:15."),
    (READ, "Is part_12.txt a good name for the next one, or would you take another?"),
    (READ, "From now on, write what you find into part_12.txt."),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then"), LEGIT, ids=[then[:40] for _, then in LEGIT])
def test_what_names_no_unknown_file_is_answered_in_words(first, then):
    """Law: what a library or a thing of code is called is no file, a file that was read is known, and what a harness
    puts beside a request tells of it. So do what is told, what is asked otherwise, and what names no place."""
    assert find_in([*look_up(first, "part_11.txt"), user(then)]) is None


@pytest.mark.parametrize("name", ["main.py", "Use part_12.txt."])
def test_a_name_may_answer_a_question(name):
    """Law: a name alone behind the model's question is an answer, and no request for a look."""
    looked = look_up("Explain {}.", "part_11.txt")
    question = [user("Write a program."), said("Which name should it have?")]
    assert find_in([*looked, *question, user(name)]) is None
    assert find_in([*looked, user("And main.py?")]) is not None


TOLD = [
    user("part_12.txt belongs to Tomas."),
    user("<system-reminder>\nContents of part_12.txt: Tomas-919\n</system-reminder>\nGo on."),
    told("part_12.txt:3: the owner has the name Tomas", "x"),
]
AGAIN = user(READ.format("part_12.txt"))
LISTED = [
    "part_11.txt\npart_12.txt\npart_13.txt",
    "total 8\n-rw-r--r-- 1 root root 123 Nov 29 12:00 part_11.txt\n-rw-r--r-- 1 root root 99 Nov 29 12:00 part_12.txt",
    '["part_11.txt", "part_12.txt", "part_13.txt"]',
    "?? part_11.txt\n?? part_12.txt",
]  # fmt: skip


@pytest.mark.parametrize("told", TOLD, ids=["person", "harness", "result"])
def test_a_place_that_was_told_of_is_known(told):
    """Law: a person, a harness or a result may have said what is in it."""
    assert find_in([*look_up(READ, "part_11.txt"), told, said("Well."), AGAIN]) is None


@pytest.mark.parametrize("listing", LISTED)
def test_a_place_that_was_listed_is_not(listing):
    """Law: that a file is there says nothing of what is in it."""
    assert find_in([told(listing, "x"), *look_up(READ, "part_11.txt"), AGAIN]) is not None


@pytest.mark.parametrize("name", ["write_file", "send_alert", "delete_file"])
def test_what_was_done_is_not_looked_up(name):
    """Law: only a look at the place that a request names shows that its like wants one."""
    assert find_in([*look_up(READ, "part_11.txt", name), AGAIN]) is None
    assert find_in([user(READ.format("part_10.txt")), *look_up(READ, "part_11.txt")[1:], AGAIN]) is None


def test_a_session_remembers_the_newest_few():
    """Law: the newest eight ways to ask, and one that comes again is the newest."""
    known: tuple[Looked, ...] = ()
    for number in [*range(12), 5]:
        known = keep_looked(known, (Looked(f"words {number}", "read"),))
    assert [one.words for one in known] == [f"words {number}" for number in (4, 6, 7, 8, 9, 10, 11, 5)]


@pytest.mark.parametrize("tools", [(), ("bash",), ("send_alert", "list_files")])
def test_only_the_tool_that_looked_is_asked_for(tools):
    """Law: where the tool by which the earlier request was looked up isn't declared, or isn't one that only looks, the
    words stand."""
    assert find_in([*look_up(READ, "part_11.txt"), AGAIN], tools=tools) is None


def test_a_session_of_many_tasks_remembers_nothing():
    """Law: what one user's request led to says nothing of another user's."""
    asked = {"id_seed": "r", "checks": CheckConfig(), "loops": CONFIG}
    looked = {
        shared: expect(look_up(READ, "a.txt")[:3], build_toolbox(LOOKS), shared=shared, **asked) for shared in (0, 1)
    }
    assert [bool(looked[shared].shown.looked) for shared in (0, 1)] == [True, False]


@pytest.mark.parametrize("sign", "-./_a")
def test_long_rows_of_signs_are_read_in_their_length(sign):
    """Law: rows of signs and lists of files end: what is read of them is bounded, and no pattern tries it twice."""
    rows = [user(f"{sign * 4000} and part_12.txt")] * 63
    messages = [*look_up(READ, "part_11.txt"), *[told("part_12.txt\n" * 8000, "x")] * 40, *rows]
    asked = read_ask(messages, TOOLS, CONFIG)
    assert asked is None or asked.words is None or "and" in asked.words
    assert read_looked(messages) == ()
