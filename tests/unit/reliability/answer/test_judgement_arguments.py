"""What a client gets as a call's arguments is JSON, whatever stood around it."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.answer.judgement import expect, judge
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, RepairKind
from reliability.types import CallDelta, Finish, FinishReason
from tests.support.call_values import arguments, made
from tests.support.conversation import user
from tests.support.renderings import tool

# Blank to Python's `str.strip`, and no white space of JSON.
ODD_BLANKS = ["\u00a0", "\u3000", "\u2028", "\x0b", "\x0c", "\x1c", "\x85", "\u200a"]
BOX = made([tool("note", {})])
around = st.lists(
    st.sampled_from([*ODD_BLANKS, "\ufeff", " ", "\n", "\t", "\r", "```", "```json\n", "}", "Done."])
).map("".join)


def judged(text):
    expected = expect([user("hi")], BOX, id_seed="r", checks=CheckConfig(placeholders=()), loops=LoopConfig())
    held = [CallDelta(index=0, id="c", name="note", arguments=text)]
    return judge(expected, held, Finish(reason=FinishReason.TOOL_CALLS), sent="", text_committed=False, attempt=0)


@given(before=around, value=arguments, after=around)
@example(before="", value={}, after="\u00a0")
@example(before="\u3000", value={"a": 1}, after="")
def test_delivered_arguments_are_json_of_an_object(before, value, after):
    """Whatever is delivered as a call's arguments, a strict reader reads an object from it: the one that was meant."""
    for call in judged(before + json.dumps(value) + after).calls:
        assert json.loads(call.arguments) == value


@given(text=st.text() | st.lists(st.sampled_from([*ODD_BLANKS, "{", "}", '"', "a", ":", "1", "[", "]"])).map("".join))
def test_delivered_arguments_are_json_of_an_object_for_any_text(text):
    """The same for texts that were never meant to be JSON."""
    for call in judged(text).calls:
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("blank", ODD_BLANKS)
@pytest.mark.parametrize("text", ['{"a": 1}%s', '%s{"a": 1}', '```json\n{"a": 1}\n```%s', '%s```\n{"a": 1}```'])
def test_what_is_blank_outside_json_only_is_taken_off_on_record(blank, text):
    """An odd blank is a repair like any text around the value; JSON's own white space stays to the letter."""
    mended = judged(text % blank)
    plain = judged('{"a": 1}\r\n\t ')
    assert [call.arguments for call in mended.calls] == ['{"a": 1}']
    assert RepairKind.EXTRA_TEXT in {repair.kind for repair in mended.repairs}
    assert [call.arguments for call in plain.calls] == ['{"a": 1}\r\n\t ']
    assert plain.repairs == ()
