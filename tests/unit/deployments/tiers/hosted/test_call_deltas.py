"""Pieces of calls as upstreams send them: each finds its call."""

import json
from collections.abc import Collection
from itertools import combinations, pairwise, product
from typing import Any

import pytest

from deployments.tiers.hosted.call_deltas import CallDeltas
from reliability.types import CallDelta, FinishReason
from tests.support.chat_chunks import delta, one
from tests.support.counted_work import measure_growth


def piece(index: Any = None, call_id: str | None = None, name: str | None = None, arguments: Any = "") -> Any:
    fields: dict[str, Any] = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    return fields | ({} if index is None else {"index": index}) | ({} if call_id is None else {"id": call_id})


def calls(*lists: list[dict[str, object]], names: Collection[str] = ()) -> list[tuple[str, str]]:
    """Name and arguments of the calls that these lists of pieces make; `names`: those of the declared tools."""
    found: dict[int, tuple[str, str]] = {}
    for event in one(*(delta(tool_calls=pieces) for pieces in lists), delta("tool_calls"), names=names):
        if isinstance(event, CallDelta):
            assert (event.id is not None) == (event.index not in found)
            name, arguments = found.get(event.index, (event.name or "", ""))
            found[event.index] = (name, arguments + event.arguments)
    assert sorted(found) == list(range(len(found)))
    return list(found.values())


TWO = [("f", "{}"), ("g", "[]")]
PIECES = [
    ([[piece(0, "a", "f", "{")], [piece(1, "b", "g", "[")], [piece(0, arguments="}"), piece(1, arguments="]")]], TWO),
    ([[piece(0, "a", "f", "{}")], [piece(0, "b", "g", "[]")]], TWO),  # all parallel calls numbered 0
    ([[piece(None, "a", "f", "{}"), piece(None, "a", "g", "[]")]], TWO),  # one id for all
    ([[piece(0, "a", "f", "{")], [piece(0, "a", "f", "}")], [piece(1, "a", "g", "[]")]], TWO),
    ([[piece(0, None, "f", "{}")], [piece(0, None, "g", "[")], [piece(0, None, "g", "]")]], TWO),
    ([[piece(0, None, "f", "")], [piece(0, None, "g", "[]")]], [("f", ""), ("g", "[]")]),
    ([[piece(5, "", "f", {}), piece(9, "", "g", [])]], TWO),
    # An index that counts pieces; half a character; a name that never comes.
    ([[piece(0, "a", "f", '{"x"')], [piece(1, arguments=": 1")], [piece(2, arguments="}")]], [("f", '{"x": 1}')]),
    ([[piece(0, "a", "f", '{"x": "\ud83c')], [piece(0, arguments='\udf0d"}')]], [("f", '{"x": "\U0001f30d"}')]),
    ([[piece(0, "a", None, "{}")]], [("", "{}")]),
]


@pytest.mark.parametrize(("lists", "expected"), PIECES)
def test_pieces_find_their_call(lists: Any, expected: list[tuple[str, str]]) -> None:
    """Law: pieces in any form that was seen make the calls that were meant; nothing is dropped."""
    assert calls(*lists) == expected


def test_the_legacy_call_is_a_call() -> None:
    """Law: `function_call` pieces make call 0."""
    end = delta("function_call", function_call={"arguments": "}"})
    found, last = one(delta(function_call={"name": "f", "arguments": "{"}), end)
    assert isinstance(found, CallDelta)
    assert (found.index, found.name, found.arguments) == (0, "f", "{}")
    assert last.reason is FinishReason.TOOL_CALLS


def test_a_call_that_only_the_complete_message_has_is_told_once():
    """Law: the message behind its pieces brings the calls that no piece brought, and none a second time."""
    called = [piece(0, "a", "f", "{}")]
    whole = {"choices": [{"message": {"content": "Hi", "tool_calls": called}, "finish_reason": "stop"}]}
    for before in (delta(content="Hi"), delta(content="Hi", tool_calls=called)):
        found = [event for event in one(before, whole) if isinstance(event, CallDelta)]
        assert [(call.name, call.arguments) for call in found] == [("f", "{}")]


@pytest.mark.parametrize("form", [int, str, float])
def test_the_number_of_a_call_is_one_in_any_form(form: type[int | str | float]) -> None:
    """Law: an index counts as a text or with a point, too, also where each piece names the call."""
    first, second = (piece(form(at), f"c{at}", "f", "{") for at in (0, 1))
    ends = [piece(form(at), None, "f", "}") for at in (0, 1)]

    assert calls([first], [second], ends) == [("f", "{}"), ("f", "{}")]


INDEXES = ("each", "first", "not the first", "not for call 0", "none")


def stream_of(count: int, index: str, call_id: str, name: str, *, mixed: bool) -> list[dict[str, object]]:
    """The pieces of so many calls of one tool: three each, which bring index, id and name in all, or in some."""
    rows = []
    for at in range(count):
        text = json.dumps({"path": "abc", "n": at})
        row = []
        for part, given in enumerate(("", text[:6], text[6:])):
            told = {
                "each": True,
                "first": part == 0,
                "not the first": part > 0,
                "not for call 0": at > 0,
                "none": False,
            }
            has_id = call_id == "each" or (call_id == "first" and part == 0)
            named = "f" if name == "each" or part == 0 else None
            row.append(piece(at if told[index] else None, f"c{at}" if has_id else None, named, given))
        rows.append(row)
    return [one for row in (zip(*rows, strict=True) if mixed else rows) for one in row]


@pytest.mark.parametrize("index", INDEXES)
def test_any_mixture_of_index_id_and_name_makes_the_calls_that_were_meant(index: str) -> None:
    """Law: whichever pieces have an index, an id or a name, one call stays one and several stay several, each with its
    own arguments, wherever the pieces say to which they belong."""
    for count, call_id, name, mixed in product((1, 2, 3), ("each", "first", "none"), ("each", "first"), (False, True)):
        told = call_id == "each" or index == "each" or (call_id == "first" and index == "not the first")
        if mixed and not told:
            continue
        pieces = stream_of(count, index, call_id, name, mixed=mixed)
        expected = [("f", {"path": "abc", "n": at}) for at in range(count)]
        found = [(called, json.loads(given or "null")) for called, given in calls(*([one] for one in pieces))]
        assert found == expected, (count, call_id, name, mixed)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("numbers", [(0, 1), (0, 0), (None, None), (None, 0), (0, None)])
def test_a_call_that_comes_twice_is_one(numbers: tuple[int | None, int | None], apart: bool) -> None:
    """Law: the same id, name and complete arguments are one call, in one list or in two; what differs in its name or,
    in a list, its arguments, is another."""
    first, again = (piece(number, "a", "f", '{"x": 1}') for number in numbers)
    lists = [[first], [again]] if apart else [[first, again]]
    assert calls(*lists) == [("f", '{"x": 1}')]
    other = piece(numbers[1], "b", "f", '{"x": 1}')
    assert calls(*([[first], [other]] if apart else [[first, other]])) == [("f", '{"x": 1}')] * 2
    if numbers == (0, 1):
        changed = piece(1, "a", "f", '{"x": 2}')
        assert calls([first, changed]) == [("f", '{"x": 1}'), ("f", '{"x": 2}')]


TOWNS = [json.dumps({"city": city}) for city in ("Paris", "Rome", "Lima")]


@pytest.mark.parametrize("call_id", [None, ""])
@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_complete_calls_of_one_tool_are_several(count: int, index: int | None, call_id: str | None) -> None:
    """Law: Gemini's API numbers all parallel calls 0, and some proxies give them no id: each name with complete
    arguments of its own is a call; the same ones again are told twice, and `{}` before them is none."""
    pieces = [[piece(index, call_id, "f", text)] for text in TOWNS[:count]]
    assert calls(*pieces) == [("f", text) for text in TOWNS[:count]]
    if index == 0:
        assert calls(*pieces, pieces[-1])[:-1] == [("f", text) for text in TOWNS[: count - 1]]
        assert len(calls([piece(index, call_id, "f", "{}")], pieces[0])) == 1


NAMES = ("get", "get_weather", "get_weather_now", "edit_existing_file", "sum")


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("call_id", ["each", "first", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_pieces_is_one_name(name: str, call_id: str, early: bool) -> None:
    """Law: wherever a declared name is cut, and whether its arguments have begun, the call is that of the whole name,
    also next to another call and where each piece repeats what it belongs to."""
    cuts = [(0, *at, len(name)) for n in range(3) for at in combinations(range(1, len(name)), n)]
    for cut in cuts:
        parts = [name[start:end] for start, end in pairwise(cut)]
        begins_declared = any(name[:end] in NAMES for end in cut[1:-1])
        if (early and begins_declared) or any(part in NAMES for part in parts[1:]):
            continue  # who calls which of the two tools, nothing tells
        row, last = [], len(parts) - 1
        for at, part in enumerate(parts):
            given = TOWNS[0][at:] if at == last else TOWNS[0][at]
            if not early:
                given = TOWNS[0] if at == last else ""
            own = call_id == "each" or (call_id == "first" and at == 0)
            row.append([piece(0, "a" if own else None, part, given)])
        whole = (name, TOWNS[0])
        assert calls(*row, names=NAMES) == [whole], parts
        assert calls(*row, [piece(1, "b", "sum", TOWNS[1])], names=NAMES) == [whole, ("sum", TOWNS[1])], parts


def test_declared_names_in_a_row_are_several_calls() -> None:
    """Law: a declared name is never the rest of another one."""
    begun = ("get", "", "sum"), ("get", "{}", "sum"), ("get_weather", "", "sum"), ("get", "{}", "get_weather")
    for name, arguments, other in begun:
        pieces = [[piece(0, None, name, arguments)], [piece(0, None, other, "{}")]]
        assert calls(*pieces, names=NAMES) == [(name, arguments), (other, "{}")]


@pytest.mark.parametrize("index", [0, None])
def test_an_id_made_up_for_each_piece_parts_no_call(index: int | None) -> None:
    """Law: a piece with the call's name and another id, in the middle of its arguments, is of that call, wherever those
    are cut; behind complete arguments it is another call's, also where they are a literal of Python or a text."""
    text = '{"city": {"name": "Paris", "at": [1, {"n": 2}]}}'
    for cut in combinations(range(1, len(text)), 2):
        parts = [text[start:end] for start, end in pairwise((0, *cut, len(text)))]
        if any(before.endswith("}") and part[0] == "{" for before, part in pairwise(parts)):
            continue
        assert calls(*([piece(index, f"c{at}", "f", part)] for at, part in enumerate(parts))) == [("f", text)], parts
    parts = ['{"city":', ' ["Paris"]', "\n", "}"]
    assert calls(*([piece(index, f"c{at}", "f", part)] for at, part in enumerate(parts))) == [("f", "".join(parts))]
    for whole in ("{'city': 'Paris'}", json.dumps(TOWNS[0]), TOWNS[0]):
        for parts in ((whole,), ("", whole)):
            rows = [[piece(index, call_id, "f", part)] for call_id in "ab" for part in parts]
            assert calls(*rows) == [("f", whole)] * 2


RETOLD = [
    *TOWNS, "{}", '{ "a": {"a": 1}, "b": [{"a": 1}, {"a": {"a": "{"}}]}', '{"a": "{\\"a\\": 1}", "b": "", "a b": ":["}'
]  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("text", RETOLD)
def test_arguments_so_far_in_each_piece_are_told_once(text: str, named: bool) -> None:
    """Law: pieces that each bring all that came before make the same call as pieces that bring what is new, wherever
    they are cut (but for a first cut where a value begins, which could be an object in itself)."""
    own = ("a", "f") if named else (None, None)
    for cut in ((), *combinations(range(1, len(text)), 1), *combinations(range(1, len(text), 3), 2)):
        ends = [*cut, len(text)]
        pieces = [[piece(0, *own, text[start:end])] for start, end in pairwise((0, *ends))]
        assert calls([piece(0, "a", "f")], *pieces) == [("f", text)]
        if text[: ends[0]].rstrip()[-1] in ":[," or "{ " in (text[:end] for end in ends):
            continue
        pieces = [[piece(0, *own, text[:end])] for end in ([*ends, len(text)] if cut else ends)]
        assert calls([piece(0, "a", "f")], *pieces) == [("f", text)], cut


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ('{"a": "', "}"),
        ("{", "]"),
        ("{}", " "),
        ("{}x", "x"),
        (" ", "\n"),
        ('"', "x"),
        ("1" * 4_400, "1" * 100),
        ('"', "\\"),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"name": "f"}])
def test_each_piece_is_looked_at_once(first: str, more: str, fields: dict[str, str]) -> None:
    """Law: where no index says to which call a piece belongs, twice as many pieces of one are twice the work, also
    where each might be its last."""

    def prepare(size: int) -> Any:
        given = [[piece(name="f", arguments=first)], *([piece(arguments=more, **fields)] for _ in range(size))]

        def read() -> None:
            deltas = CallDeltas()
            for each in given:
                deltas.read(each)

        return read

    assert measure_growth(prepare, 200) <= 2.2
