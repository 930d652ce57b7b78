"""Equal calls of one answer, native and written: which of them are delivered, in whatever pieces they come."""

import json
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request.attempt import record_attempt
from reliability.tools import build_toolbox, extract_calls
from reliability.tools.formats import CALL_FORMATS
from reliability.types import CallDelta, Event, Finish, FinishReason, Hold, Text
from tests.support.readings import Reading
from tests.support.written_calls import write_query
from tests.unit.deployments.request.test_attempt_loops import CALL, read, reading

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = [{"type": "function", "function": {"name": "search", "parameters": QUERY}}]
SEARCH_BOX = build_toolbox(SEARCH)


def is_read_twice(written: str) -> bool:
    """Whether two calls of this form in one answer are two."""
    return len(extract_calls(f"{written}\n{write_query(written, 'y')}\n", SEARCH_BOX).calls) == 2


WRITTEN = [
    pytest.param(example, id=f"{row.family}-{at}")
    for row in CALL_FORMATS
    if row.reader is not None
    for at, example in enumerate(row.examples)
]
READ = [param for param in WRITTEN if is_read_twice(str(param.values[0]))]
# The first form of each family, and with the full number of examples all of them.
FORMS = [
    pytest.param(*one.values, id=one.id, marks=[pytest.mark.further] * (not str(one.id).endswith("-0"))) for one in READ
]
LONGER = "x and what the tide tables of the northern sea say about it"
PATTERNS = ["a" * 3, "aab" * 2, "abab", "a" * 43, "b" + "a" * 43, "ab" * 20]


def test_all_forms_are_read_twice():
    """What the next tests are about."""
    assert READ == WRITTEN


VALUES = ["x", "x. and y", "x (and y", "x, see [1]: y } z", "x\u00e9. " * 30 + "y"]


@pytest.mark.parametrize("written", FORMS)
@given(st.sampled_from(VALUES), st.sampled_from(VALUES), st.integers(1, 90), st.sampled_from(list(Hold)))
@example("x", "x. and y", 1, Hold.TOOL_CALLS).via("the second is longer than the first")
def test_of_two_calls_in_a_row_none_is_lost(written, one, other, size, hold):
    """Both are delivered or the answer is a flaw, and nothing of a call leaves as text, in whatever pieces it comes."""
    text = f"{write_query(written, one)}\n{write_query(written, f'{other}!')}\n"
    made = reading(tools=SEARCH, hold=hold)
    left = read(made, [Text(text[at : at + size]) for at in range(0, len(text), size)])

    found = [json.loads(call.arguments) for call in made.judged.calls]
    out = "".join([left, *(event.text for event in made.judged.events if isinstance(event, Text))]).strip()
    assert len(found) == 2 or record_attempt(made, 2).flaw is not None
    assert not out or not found


@pytest.mark.parametrize("written", FORMS)
@given(st.sampled_from(PATTERNS), st.integers(1, 60), st.sampled_from(list(Hold)), st.sampled_from(["x", LONGER]))
@example("a" * 43, 1, Hold.TOOL_CALLS, "x").via("tiers write in pieces")
@example("aab" * 2, 7, Hold.ALL, LONGER).via("tiers write in pieces")
def test_a_run_of_equal_calls_is_each_of_them_once_in_whatever_pieces(written, pattern, size, hold, value):
    """The tier is stopped in the middle of a copy, by whichever rule: what is broken off there spoils none of the calls
    before it, and each call is delivered once, in the order in which they came."""
    calls = {"a": write_query(written, value), "b": write_query(written, f"{value} and y")}
    text = "".join(f"{calls[letter]}\n" for letter in pattern)
    made = reading(tools=SEARCH, hold=hold)
    left = read(made, [Text(text[at : at + size]) for at in range(0, len(text), size)])

    meant = {"a": {"query": value}, "b": {"query": f"{value} and y"}}
    found = [json.loads(call.arguments) for call in made.judged.calls]
    assert found == [meant[letter] for letter in dict.fromkeys(pattern)]
    assert made.judged.dropped_calls >= 1
    assert record_attempt(made, 2).good
    assert not "".join([left, *(event.text for event in made.judged.events if isinstance(event, Text))]).strip()


ORDERS = ["Press Tab {} times, then Enter.", "Press Tab and Space {} times."]


@pytest.mark.parametrize("written", FORMS)
@given(st.sampled_from(ORDERS), st.integers(2, 6), st.integers(1, 90), st.sampled_from(list(Hold)), st.integers(0, 3))
@example(ORDERS[0], 3, 12, Hold.TOOL_CALLS, 0).via("one Tab, and no Enter")
def test_as_many_written_calls_as_the_user_orders_are_delivered(written, words, number, size, hold, more):
    """Law: in every notation as many equal calls as the user orders are delivered, in the order in which they were
    written, and in whatever pieces; those that come too often, and what stands behind them, are left out."""
    letters = ["x", "z"] * number if "Space" in words else ["x"] * number + ["x"] * more + ["z"] * (not more)
    text = "".join(f"{write_query(written, letter)}\n" for letter in letters)
    check_ordered(text, words.format(number), letters[: len(letters) - more * (letters[-1] == "x")], size, hold)


LISTS = [
    lambda letters: "[" + ", ".join(f'search(query="{letter}")' for letter in letters) + "]",
    lambda letters: json.dumps([{"name": "search", "arguments": {"query": letter}} for letter in letters]),
]


@pytest.mark.parametrize("write", LISTS)
@given(st.integers(2, 12), st.integers(1, 90), st.sampled_from(list(Hold)))
def test_as_many_calls_of_a_list_as_the_user_orders_are_delivered(write, number, size, hold):
    """Law: a list of calls holds as many equal ones as the user orders."""
    letters = ["x"] * number + ["z"]
    check_ordered(write(letters), ORDERS[0].format(number), letters, size, hold)


def check_ordered(text: str, words: str, letters: list[str], size: int, hold: Hold) -> None:
    """Check that an answer of this text makes the calls of these letters."""
    made = reading(tools=SEARCH, hold=hold, messages=[{"role": "user", "content": words}])
    read(made, [Text(text[at : at + size]) for at in range(0, len(text), size)])
    assert read_queries(made) == letters
    assert record_attempt(made, 2).good


def test_who_orders_a_thing_twice_gets_a_pair():
    """Law: "twice" is an order of repetitions, too."""
    text = CALL.replace("look", "search").replace("what", "query") * 2
    check_ordered(text, "Look up twice, then stop.", ["up"] * 2, 12, Hold.TOOL_CALLS)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.booleans())
def test_equal_native_calls_are_one_whatever_their_ids(letters, same_ids):
    """Three and more equal native calls are one, a pair may be meant; spacing and ids make no other call."""
    made = reading(tools=SEARCH)
    calls = list[Event]()
    for i, letter in enumerate(letters):
        arguments = f'{{"query":{" " * i}"{letter}"}}'
        calls.append(CallDelta(index=i, id="c" if same_ids else f"c{i}", name="search", arguments=arguments))
    made.take(calls, 1)
    made.take([Finish(reason=FinishReason.TOOL_CALLS)], 1)
    made.finish()

    counts = Counter(letters)
    kept = [letter for i, letter in enumerate(letters) if counts[letter] <= 2 or letter not in letters[:i]]
    assert read_queries(made) == kept
    assert made.judged.dropped_calls == len(letters) - len(kept)
    assert record_attempt(made, 2).good


@given(st.sampled_from(["Press Tab {} times, then Enter.", "Roll {} dice."]), st.integers(3, 12), st.integers(1, 5))
@example("Press Tab and Space {} times, then Enter.", 3, 1).via("tab, space, space: a sequence that nobody made")
def test_what_the_user_orders_in_number_is_delivered(words, number, size):
    """Law: as many equal native calls as the user orders are delivered, in their order, with what stands behind."""
    letters = ["a", "b"] * number + ["c"]
    made = asked_in_number(words.format(number), letters, size)
    assert read_queries(made) == letters
    assert (made.loop, made.judged.dropped_calls, made.judged.finish.notes) == (None, 0, ())


@given(st.integers(3, 12), st.integers(2, 40), st.integers(1, 5))
def test_a_runaway_behind_an_order_ends(number, more, size):
    """Law: one call more than the user orders is a loop, and as many as are ordered are delivered. The report says that
    some were left out."""
    made = asked_in_number(f"Press Tab {number} times.", ["a"] * (number + more), size)
    assert read_queries(made) == ["a"] * number
    assert made.loop is not None
    assert len(made.judged.finish.notes) == 1


NAMED = [
    "There are {} failing tests. Fix them.",
    "Make it fit in {} lines.",
    "Fix the bug in line {}.",
    "Serve it on port {} please.",
    "Tick the {} boxes.",
    "The build failed {} times. Fix it.",
]


@given(st.sampled_from(NAMED), st.integers(3, 100), st.lists(st.sampled_from("ab"), max_size=60), st.integers(1, 5))
def test_a_number_that_is_only_named_lets_no_stutter_through(words, number, letters, size):
    """Law: a number that is no order of repetitions changes nothing: the third equal call of an answer is a loop, the
    first stands for all, and the tier is stopped there."""
    letters = ["a"] * 3 + letters
    made, plain = (asked_in_number(text, letters, size) for text in (words.format(number), "Fix them."))
    assert read_queries(made) == read_queries(plain)
    assert made.loop == plain.loop
    assert max(Counter(read_queries(made)).values()) <= 2
    assert made.loop is None or made.loop.repetitions == 3


GOODS = {
    "I'd like {} cappuccinos, please.": "add_to_order",
    "Order {} espressos.": "add_to_order",
    "Buy {} tickets for tonight.": "buy_ticket",
    "Get me {} apples.": "add_to_cart",
    "Put {} bottles of water into my cart.": "add_to_cart",
    "Book {} seats in row 2.": "book_seat",
    "Open {} new terminals.": "open_terminal",
    "Start {} workers.": "start_worker",
    "Spawn {} reviewers on this diff.": "spawn_agent",
    "Ask the oracle with {} votes.": "ask_oracle",
}
FIGURES = {2: "two", 3: "three", 5: "five", 8: "eight"}
WRITES = ["<tool_call>\n{}\n</tool_call>", "{}", "[TOOL_CALLS][{}]"]


@pytest.mark.parametrize("words", GOODS)
@pytest.mark.parametrize("number", FIGURES)
@given(st.sampled_from(["native", *WRITES]), st.integers(0, 9), st.booleans(), st.integers(1, 60))
def test_as_many_as_the_user_wants_are_made(words, number, form, more, spelled, size):
    """Law: where the user names a number and the tool does something, as many equal calls are delivered as are named,
    native and in the text, and no more; a tool that reads is called as if no number were named."""
    text = words.format(FIGURES[number] if spelled else number)
    assert len(call_equally(GOODS[words], text, form, number, size)) == number
    assert len(call_equally(GOODS[words], text, form, number + more, size)) == number
    plain = call_equally("read_notes", "Go on.", form, number, size)
    assert call_equally("read_notes", text, form, number, size) == plain


def call_equally(name: str, words: str, form: str, count: int, size: int) -> list[str]:
    """Return the calls that are made where so many equal ones come."""
    tool = {"type": "function", "function": {"name": name, "parameters": QUERY}}
    made = reading(tools=[tool], messages=[{"role": "user", "content": words}])
    call = json.dumps({"name": name, "arguments": {"query": "x"}})
    text = "\n".join(form.replace("{}", call) for _ in range(count))
    events: list[Event] = [Text(text[at : at + size]) for at in range(0, len(text), size)]
    if form == "native":
        events = [CallDelta(index=at, name=name, arguments='{"query": "x"}') for at in range(count)]
    read(made, events, size)
    return [call.name for call in made.judged.calls]


def asked_in_number(words: str, letters: list[str], size: int) -> Reading:
    """Read an answer to this request that calls for each of the letters."""
    made = reading(tools=SEARCH, messages=[{"role": "user", "content": words}])
    calls = [CallDelta(index=i, name="search", arguments=json.dumps({"query": one})) for i, one in enumerate(letters)]
    read(made, list[Event](calls), size)
    assert record_attempt(made, 2).good
    return made


def read_queries(made: Reading) -> list[str]:
    return [json.loads(call.arguments)["query"] for call in made.judged.calls]


def test_what_a_repair_makes_equal_is_one():
    """Three calls that differ only in what is repaired are delivered once."""
    unit = {"type": "object", "properties": {"unit": {"enum": ["Celsius", "Kelvin"]}}}
    made = reading(tools=[{"type": "function", "function": {"name": "read", "parameters": unit}}])
    for i, word in enumerate(("celsius", "Celsius", "CELSIUS", "kelvin")):
        made.take([CallDelta(index=i, id=f"c{i}", name="read", arguments=json.dumps({"unit": word}))], 1)
    made.take([Finish(reason=FinishReason.TOOL_CALLS)], 1)
    made.finish()

    assert [json.loads(call.arguments)["unit"] for call in made.judged.calls] == ["Celsius", "Kelvin"]
    assert made.judged.dropped_calls == 2
    assert [repair.path for repair in made.judged.repairs] == ["/0/arguments/unit", "/1/arguments/unit"]
