"""Pieces of calls as upstreams send them: each finds its call."""

import pytest

from reliability.types import CallDelta, Finish, FinishReason
from tests.support.chat_chunks import delta, one


def piece(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: object = ""
) -> dict[str, object]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    fields: dict[str, object] = {"function": function}
    return fields | ({} if index is None else {"index": index}) | ({} if call_id is None else {"id": call_id})


def calls(*lists: list[dict[str, object]]) -> list[tuple[str, str]]:
    """Name and arguments of the calls that these lists of pieces make."""
    found: dict[int, tuple[str, str]] = {}
    for event in one(*(delta(tool_calls=pieces) for pieces in lists), delta("tool_calls")):
        if isinstance(event, CallDelta):
            assert (event.id is not None) == (event.index not in found)
            name, arguments = found.get(event.index, (event.name or "", ""))
            found[event.index] = (name, arguments + event.arguments)
    assert sorted(found) == list(range(len(found)))
    return list(found.values())


def test_pieces_find_their_call() -> None:
    """Law: pieces with an index, an id only, a repeated id, or neither make the calls that were meant."""
    two = [("f", "{}"), ("g", "[]")]
    assert (
        calls(
            [piece(0, "a", "f", "{")], [piece(1, "b", "g", "[")], [piece(0, None, None, "}"), piece(1, None, None, "]")]
        )
        == two
    )
    assert calls([piece(None, "a", "f", "{")], [piece(None, "b", "g", "[]")], [piece(None, "a", None, "}")]) == two
    assert calls([piece(None, None, "f", "{")], [piece(None, None, None, "}")], [piece(None, None, "g", "[]")]) == two
    assert calls([piece(0, "a", "f", "{}")], [piece(0, "b", "g", "[]")]) == two  # all parallel calls numbered 0
    assert calls([piece(None, "a", "f", "{}"), piece(None, "a", "g", "[]")]) == two  # one id for all
    assert calls([piece(0, "a", "f", "{")], [piece(0, "a", "f", "}")], [piece(1, "a", "g", "[]")]) == two
    assert calls([piece(0, None, "f", "{}")], [piece(0, None, "g", "[")], [piece(0, None, "g", "]")]) == two
    assert calls([piece(0, None, "f", "")], [piece(0, None, "g", "[]")]) == [("f", ""), ("g", "[]")]
    assert calls([piece(5, "", "f", {}), piece(9, "", "g", [])]) == two


def test_a_call_without_a_name_still_leaves() -> None:
    """Law: nothing is dropped: a call whose name never came leaves with an empty one."""
    assert calls([piece(0, "a", None, "{}")]) == [("", "{}")]


def test_the_legacy_call_is_a_call() -> None:
    """Law: `function_call` pieces make call 0."""
    chunks = [
        delta(function_call={"name": "f", "arguments": "{"}),
        delta("function_call", function_call={"arguments": "}"}),
    ]
    found, last = one(*chunks)
    assert isinstance(found, CallDelta)
    assert (found.index, found.name, found.arguments) == (0, "f", "{}")
    assert isinstance(last, Finish)
    assert last.reason is FinishReason.TOOL_CALLS


def test_a_character_split_over_two_pieces_of_a_call_is_joined() -> None:
    """Law: arguments, too, are joined where an upstream tears a character."""
    torn = [piece(0, "a", "f", '{"x": "\ud83c')], [piece(0, None, None, '\udf0d"}')]
    assert calls(*torn) == [("f", '{"x": "\U0001f30d"}')]


def test_a_nameless_piece_goes_on_with_the_last_call() -> None:
    """Law: an index that counts pieces, with neither an id nor a name, begins no call."""
    assert calls([piece(0, "a", "f", '{"x"')], [piece(1, None, None, ": 1")], [piece(2, None, None, "}")]) == [
        ("f", '{"x": 1}')
    ]


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
    first, second = ({"index": form(at), "function": {"name": "f", "arguments": "{"}, "id": f"c{at}"} for at in (0, 1))
    ends = [{"index": form(at), "function": {"name": "f", "arguments": "}"}} for at in (0, 1)]

    assert calls([first], [second], ends) == [("f", "{}"), ("f", "{}")]
