"""The gate: what left plus what is held is what came in, and no part of a call leaves."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.answer import gate as gates
from reliability.answer.call_starts import PARTIAL, find_call_start, prepare_names
from reliability.answer.gate import Gate, TextKind, finish, open_gate, step
from reliability.tools.format_row import Place
from reliability.types import CallDelta, Failed, Fault, Finish, FinishReason, Hold, Reasoning, Refusal, Started, Text

TOOLS = ("get_weather", "search", "write-file", "f")


def decide(text: str, before: str = "") -> TextKind:
    """A small stand-in for the extraction: a tag, or a declared name in brackets, makes a call."""
    bare = text.strip().removesuffix("```").strip()
    if bare.startswith(("<tool_call>{", "[TOOL_REQUEST]", "<|channel|>commentary", "⏺ get_weather")):
        return TextKind.CALL
    if bare.startswith(("get_weather(", "search(", "[get_weather(")):
        return TextKind.CALL
    try:
        value = json.loads(bare)
    except ValueError:
        return TextKind.OPEN if len(text) < 200 else TextKind.PROSE
    items = value if isinstance(value, list) else [value]
    named = any(isinstance(item, dict) and item.get("name") in TOOLS for item in items)
    return TextKind.CALL if named else TextKind.PROSE


def never(text: str, before: str = "") -> TextKind:
    return TextKind.PROSE


def always_open(text: str, before: str = "") -> TextKind:
    return TextKind.OPEN


def fed(gate: Gate, chunks: list[str]) -> tuple[str, str]:
    out: list[Any] = []
    for chunk in chunks:
        gate, events = step(gate, Text(chunk))
        out += events
    events, held = finish(gate)
    return "".join(e.text for e in (*out, *events) if isinstance(e, Text)), "".join(
        e.text for e in held if isinstance(e, Text)
    )


def cut(text: str, seed: int, size: int = 9) -> list[str]:
    """The text in pieces of 1 to `size` characters."""
    dice = random.Random(seed)
    chunks, at = [], 0
    while at < len(text):
        end = at + dice.randint(1, size)
        chunks.append(text[at:end])
        at = end
    return chunks


def live(chunks: list[str], kind: object = decide) -> list[str]:
    """What leaves after each chunk, before the answer is over."""
    gate, outs = open_gate(TOOLS, kind), []  # type: ignore[arg-type]
    for chunk in chunks:
        gate, events = step(gate, Text(chunk))
        outs.append("".join(e.text for e in events if isinstance(e, Text)))
    return outs


FRAGMENTS = (
    *"{}[]()<>`:\"'\\|, \né",
    *["```", "```json\n", '{"name": ', '"get_weather"', "get_weather", "functions.", "search", '{"a": 1}'],
    *["(q='a')", "<tool_call>", "</tool_call>", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "<|channel|>"],
    *["⏺ ", "key: ", "word ", "it's ", "    "],
)
SOUP = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join)


@given(SOUP, st.integers(), st.sampled_from([decide, never, always_open]))
@example("[functions.functions.", 0, decide)
def test_nothing_is_lost_and_cuts_do_not_matter(text: str, seed: int, kind: object) -> None:
    """What left plus what is held is what came in, and where the line between them runs doesn't depend on the cuts."""
    gate = open_gate(TOOLS, kind)  # type: ignore[arg-type]
    whole = fed(gate, [text])
    assert "".join(whole) == text
    assert kind is not never or whole == (text, "")
    assert fed(gate, list(text)) == whole
    assert fed(gate, cut(text, seed)) == whole


@given(st.text(alphabet="xyz .,;!?\n\t()}*#_é", max_size=300), st.integers())
def test_plain_prose_is_never_delayed(text: str, seed: int) -> None:
    """Text in which nothing can begin, not even a name, leaves with the very chunk that brought it."""
    chunks = cut(text, seed)
    assert live(chunks) == chunks


@given(st.text(alphabet="xyz .,;!?-'\"\n\t()>]}*#_é", max_size=300))
def test_a_sign_of_prose_waits_for_the_next_one(text: str) -> None:
    """A sign that may be the first of a mark is settled by the next character, a row of them by the one behind it."""
    waiting = ""
    for char, left in zip(text, live(list(text)), strict=True):
        waiting = (waiting + char)[len(left) :]
        assert len(waiting) <= 2 or set(waiting) <= set("-> \t")


@pytest.mark.parametrize(("text", "later"), [
    ("A {", "brace"), ("{ return x", "; }"), ("{a", ", b}"), ("{}", ""), ('{"a"', ", 1}"), ("[", "link](url)"),
    ("[search", "](url)"), ("``", "x``"), ("```", "python\nimport os"), ("```c\nint f() {", "\n  return 1;\n}"),
    ("<", "b>bold</b>"), ("#include <function", "al>"), ("search", " for it"), ("[search", ", x]"), ("[search", "es]"),
    ("[search]", "(url)"), ("`````````", "json {"), ("get_weather", "s (not the tool"),
    ("{" + '"' + "k" * 200, '": 1}'),
])  # fmt: skip
def test_a_doubt_ends_with_certainty(text: str, later: str) -> None:
    """A beginning that can't become a call leaves as soon as that is certain, without asking."""
    outs = live([text, later + " and so on."], kind=lambda *_: pytest.fail("asked"))
    assert "".join(outs) == text + later + " and so on."


def test_an_object_that_is_no_call_leaves_at_its_end() -> None:
    """JSON that isn't a call leaves with its closing bracket, not at the end of the answer."""
    outs = live(['Like {"city": {"a": "}"}', ', "n": 1', "} so", " it is."])
    assert outs == ["Like ", "", '{"city": {"a": "}"}, "n": 1} so', " it is."]


def test_an_apostrophe_is_no_string() -> None:
    """A quote in the middle of a word doesn't hide the closing bracket."""
    assert live(["{it: I'm here}", " ok"], kind=never) == ["{it: I'm here}", " ok"]


def test_the_line_behind_a_candidate_may_begin_a_call() -> None:
    """Where a candidate that is prose ends with its line, a name that begins the next line is seen."""

    def ask(candidate: str, before: str) -> TextKind:
        return TextKind.PROSE if candidate.startswith("search:") else TextKind.CALL

    gate = open_gate(TOOLS, ask)
    assert fed(gate, ["search: no\nget_weather(1)"]) == ("search: no\n", "get_weather(1)")


def test_unescaped_quotes_do_not_hide_the_end() -> None:
    """A string with unescaped quotes inside still ends where its object ends."""
    text, asked = '{"text": "He said "hi" to me"}', []
    assert live([text, " x"], kind=lambda candidate, _: asked.append(candidate) or TextKind.PROSE) == [text, " x"]
    assert asked == [text]


@given(st.integers(0, 6))
def test_a_backslash_at_a_cut_still_escapes(at: int) -> None:
    """An escaped quote is no end of a string, wherever the chunks are cut."""
    text = 'x {"a": "b\\"}c"} y'
    split, asked = text.index("b") + at, []
    left = live([text[:split], text[split:]], kind=lambda candidate, _: asked.append(candidate) or TextKind.PROSE)
    assert "".join(left) == text
    assert asked == [text[2:-2]]


def test_calls_and_what_follows_are_held() -> None:
    """Call parts never leave, and neither does any text after the first of them."""
    gate = open_gate((), decide)
    gate, first = step(gate, Text("Let me see."))
    gate, second = step(gate, CallDelta(index=0, id="1", name="search"))
    gate, third = step(gate, Text("after"))
    gate, fourth = step(gate, CallDelta(index=0, arguments="{}"))
    end, held = finish(gate)
    assert first == (Text("Let me see."),)
    assert second == third == fourth == end == ()
    assert [type(e) for e in held] == [CallDelta, Text, CallDelta]


@pytest.mark.parametrize(("kind", "leaves"), [(never, True), (decide, False)])
def test_a_native_call_settles_the_text_before_it(kind: object, leaves: bool) -> None:
    """Text in doubt when a native call comes leaves if it is prose, else it is held in its place."""
    gate, _ = step(open_gate(TOOLS, kind), Text('{"name": "sea'))  # type: ignore[arg-type]
    gate, out = step(gate, CallDelta(index=0, name="search"))
    _, held = finish(gate)
    assert out == ((Text('{"name": "sea'),) if leaves else ())
    assert held == ((() if leaves else (Text('{"name": "sea'),)) + (CallDelta(index=0, name="search"),))


@pytest.mark.parametrize("hold", list(Hold))
def test_the_frame_of_an_answer_passes(hold: Hold) -> None:
    """Started, Finish and Failed pass in every state and every mode."""
    frame = (Started(), Finish(reason=FinishReason.STOP), Failed(fault=Fault.CRASHED, message="gone"))
    gate, _ = step(open_gate(TOOLS, decide, hold), CallDelta(index=0))
    for event in frame:
        gate, out = step(gate, event)
        assert out == (event,)


def test_hold_all_holds_all() -> None:
    """With hold mode `all` neither text nor reasoning nor calls leave before the end."""
    gate = open_gate((), decide, Hold.ALL)
    events = (Reasoning("hm"), Text("a"), Text("b"), Refusal("no"), CallDelta(index=0), Text("c"))
    for event in events:
        gate, out = step(gate, event)
        assert out == ()
    out, held = finish(gate)
    assert out == ()
    assert held == (Reasoning("hm"), Text("ab"), Refusal("no"), CallDelta(index=0), Text("c"))


def test_reasoning_passes_a_held_call() -> None:
    """Reasoning is no part of the text: it passes even while a call is held."""
    gate, _ = step(open_gate(TOOLS, decide), CallDelta(index=0))
    assert step(gate, Reasoning("hm"))[1] == (Reasoning("hm"),)


def test_a_refusal_waits_for_the_end() -> None:
    """Law: no word of it leaves before the answer is complete, so that one that breaks off leaves no trace; text before
    it has left."""
    gate, out = step(open_gate((), decide), Text("Well. "))
    gate, held = step(gate, Refusal("I can't"))
    assert (out, held) == ((Text("Well. "),), ())
    assert finish(gate) == ((), (Refusal("I can't"),))


def test_without_tools_text_is_not_looked_at() -> None:
    """Where the request declares no tools, even a call in text leaves at once."""
    gate = open_gate((), lambda *_: pytest.fail("asked"))
    for chunk in ('{"name": "x"', "<tool_call>", "```"):
        gate, out = step(gate, Text(chunk))
        assert out == (Text(chunk),)


@given(st.lists(st.sampled_from(['{"a":', '"b{"', "}\n", "{", "}", "<tool_call>\n", "x\n"]), max_size=60))
def test_questions_cost_linear_time(parts: list[str]) -> None:
    """All texts that are ever asked about are together no more than a few times as long as the answer."""
    text = "".join(parts) * 4
    asked = [0]

    def ask(candidate: str, before: str) -> TextKind:
        asked[0] += len(candidate)
        return TextKind.OPEN

    fed(open_gate(TOOLS, ask), list(text))
    assert asked[0] <= 4 * len(text)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("piece", ["<search>", "<search> ", '{"a":1}\n', '`{"a":1}` ', "<tool_call>x ", "[{"])
def test_what_stands_before_a_candidate_is_read_a_few_times(piece: str, size: int) -> None:
    """Law: in a row of candidates that are prose each question is about as much text as stands before it, so that all
    questions together read linear text, with what stands before each."""
    text, read = piece * (10_000 // len(piece)), [0]

    def ask(candidate: str, before: str) -> TextKind:
        read[0] += len(candidate) + len(before)
        return TextKind.PROSE

    assert fed(open_gate(TOOLS, ask), [text[at : at + size] for at in range(0, len(text), size)]) == (text, "")
    assert read[0] <= 5 * len(text)


@given(st.sampled_from([*FRAGMENTS, "{ ", "[ ", "``` ", "{{", "search ", "<tool_call"]))
def test_what_waits_undecided_is_bounded(fragment: str) -> None:
    """Nothing repeats so often that a doubt about a beginning grows beyond the bounds of an opening."""
    gate = open_gate(TOOLS, never)
    for _ in range(1000):
        gate, _ = step(gate, Text(fragment))
        assert len(gate.tail) <= 400


@pytest.mark.parametrize(
    ("begin", "leaves"), [('{"data": "', True), ('{"name": "get_weather", "x": "', False), ("<tool_call>{", False)]
)
def test_an_endless_candidate_is_decided(begin: str, leaves: bool) -> None:
    """At HOLD_CHARS a candidate that names no tool leaves; a tag, or one that does, stays held to the end."""
    gate = open_gate(TOOLS, always_open)
    chunks = [begin, *["y" * 1000] * (gates.HOLD_CHARS // 1000 + 1), "tail"]
    held = True
    for chunk in chunks:
        gate, out = step(gate, Text(chunk))
        held = held and not out
    assert held is not leaves
    assert fed(open_gate(TOOLS, always_open), chunks) == fed(open_gate(TOOLS, always_open), ["".join(chunks)])


@given(SOUP, SOUP, SOUP)
def test_gates_are_values(start: str, one: str, other: str) -> None:
    """A gate can be gone on from twice: the branches don't see each other."""
    gate, _ = step(open_gate(TOOLS, decide), Text('{"name": ' + start or "x"))
    before = finish(gate)
    expected = fed(gate, [one])
    fed(gate, [other])
    assert fed(gate, [one]) == expected
    assert finish(gate) == before
    held, _ = step(gate, CallDelta(index=0))
    left, _ = step(held, Text(one + "1"))
    right, _ = step(held, Text(other + "2"))
    assert left != right
    assert hash(left.held) == hash(left.held)
    assert finish(left)[1] != finish(right)[1]


@pytest.mark.parametrize("text", ["I call search(q=1) now", "research(q=1)", "search_all(q=1)", "search now"])
def test_names_count_only_as_words_at_line_starts(text: str) -> None:
    """A declared name inside a line, or inside another word, opens nothing."""
    assert "".join(live([text, " on"], kind=lambda *_: pytest.fail("asked"))) == text + " on"


@pytest.mark.parametrize(
    "text",
    [
        *["search: x\n", "search {", "search\n{", "search <arg", "[search] {"],
        *["[ search(", '{{"a":', "[ {", '{"a" :', '{\\"a\\":'],
        *[sign + " " * 70 + '"name": 1' for sign in ("{", "[", '{"a"')],  # further than is looked at
    ],
)
def test_spaced_openings_are_held(text: str) -> None:
    """White space between the parts of an opening changes nothing."""
    assert live([text], kind=always_open) == [""]


def test_too_much_space_behind_a_name_is_prose() -> None:
    """A name and its bracket further apart than the bound are no call."""
    text = "search" + " " * 70 + "(x)\n[search]" + " " * 70 + "{\n```" + " " * 70 + "x"
    assert "".join(live([text], kind=always_open)) == text


def test_words_know_no_empty_name() -> None:
    """An empty name declares nothing, and without names only the marks of turns and messages begin anything."""
    assert prepare_names(["", "a"]).names == ("a",)
    assert find_call_start(prepare_names([""]), "a(1) and {", 0, Place.LINE) == (10, Place.ANYWHERE, None)
    assert find_call_start(prepare_names([""]), "a(1) and <|im_e", 0, Place.LINE) == (9, Place.ANYWHERE, PARTIAL)
