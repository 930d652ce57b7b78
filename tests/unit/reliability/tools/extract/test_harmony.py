"""The Harmony format: messages, and what each of them is."""

import pytest

from reliability.tools import build_toolbox, extract_calls
from tests.support.extracting import BOX, CALL, calls
from tests.support.streaming import cut_at, play, settled, whole


def test_harmony_messages_are_told_apart():
    """Thinking is reasoning, preambles and the final channel are text, a recipient makes a call."""
    found = extract_calls(
        "<|channel|>analysis<|message|>Let me see.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
        '{"query":"x"}'
        "<|call|>rest\n<|start|>assistant<|channel|>final<|message|>Bye.<|return|>",
        BOX,
    )

    assert found.reasoning == "Let me see."
    assert found.text == "I look.\nrest\nBye."
    assert [(call.name, call.arguments) for call in found.calls] == [("search", {"query": "x"})]


def test_harmony_marks_inside_a_call_are_its_text():
    """A call of another notation may write about Harmony."""
    inner = "<|start|>assistant<|channel|>final<|message|>x<|end|>"
    assert calls(f'<tool_call>{{"name": "search", "arguments": {{"query": "{inner}"}}}}</tool_call>') == [
        ("search", {"query": inner})
    ]


FINAL = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final{}<|message|>Hi"


@pytest.mark.parametrize("box", [BOX, build_toolbox([])], ids=["tools", "no tools"])
@pytest.mark.parametrize("constrain", ["", " <|constrain|>json"])
@pytest.mark.parametrize("end", ["", "<|return|>", "<|end|>"])
def test_it_is_split_with_tools_and_without(box, constrain, end):
    """The final message is the answer, the analysis is reasoning; no header leaves, whole or streamed."""
    text = FINAL.format(constrain) + end
    found = extract_calls(text, box)
    assert (found.text, found.reasoning, found.calls) == ("Hi", "hm", ())
    assert all(play(cut_at(text, [size]), box) == whole(text, box) == ([], False, "Hi") for size in (1, 5, 1000))


@pytest.mark.parametrize("header", ["commentary to=<|constrain|>json", "commentary", "commentary to=assistant json"])
def test_a_call_of_nothing_is_asked_for_again(header):
    """Arguments without a recipient are no text: the end of the message says that it calls."""
    text = f'<|channel|>{header}<|message|>{{"city": "Oslo"}}<|call|>'
    assert [one.reason for one in extract_calls(text, BOX).malformed] == ["a call without a name"]
    assert all(play(cut_at(text, [size]), BOX).refused for size in (1, 5, 1000))


def test_a_tool_that_speaks_ends_the_answer():
    """The result and the call that rests on it are the model's own invention."""
    call = '<|start|>assistant<|channel|>commentary to=functions.search<|message|>{"query": "x"}<|call|>'
    result = "<|start|>functions.search to=assistant<|channel|>commentary<|message|>21<|end|>"
    found = extract_calls(call + result + call, BOX)
    assert (len(found.calls), found.behind, found.text) == (1, 1, "")


ATEM = (
    '<atem:function_calls>\n<atem:invoke name="search">\n<atem:parameter name="query">{}</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>"
)


def test_calls_in_tags_stand_in_messages_too():
    """Law: a message to a tool may hold a call in tags; one to the model itself is its reasoning, one to the user its
    answer."""
    head = "<|start|>assistant to="
    text = f" to=self<|message|>Hm.<|eom|>{head}search<|message|>{ATEM.format('x')}<|eom|>"
    text += f"{head}search<|message|>{ATEM.format('y')}<|eom|>{head}user<|message|>I look.<|eot|>"
    found = extract_calls(text, BOX)

    assert [(call.name, call.arguments) for call in found.calls] == [("search", {"query": q}) for q in "xy"]
    assert (found.reasoning, found.text, found.malformed) == ("Hm.", "I look.", ())
    assert play(list(text), BOX) == play([text], BOX) == whole(text, BOX)


ONE = f"<tool_call>\n{CALL}\n</tool_call>"
BODY = '{"query": "y"}'
HEADERS = [
    "<|start|>assistant to=functions.search<|channel|>commentary <|constrain|>json",
    "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json",
    "<|channel|>commentary to=functions.search code",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    "before", [ONE, f"{ONE}\nI look.\n", '[TOOL_CALLS]search[ARGS]{"query": "x"}', f"I look.\n{ONE}\n"]
)
def test_messages_may_stand_behind_calls_of_another_family(before, header):
    """Law: a message of the answer's own is read wherever its header is complete; one of a user ends the answer."""
    text = f"{before}{header}<|message|>{BODY}<|call|>"
    found = extract_calls(text, BOX)
    assert [call.arguments for call in found.calls] == [{"query": "x"}, {"query": "y"}]
    assert (found.text.rstrip(), found.malformed) == ("I look." if "look" in before else "", ())
    assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in (1, 5, 1000))
    assert calls(f"{before}<|start|>user<|message|>21<|end|>{header}<|message|>{BODY}") == [("search", {"query": "x"})]


@pytest.mark.parametrize(
    "behind",
    [ONE, f"\n{CALL}", f"{HEADERS[2]}<|message|>{BODY}", " to=functions.search<|channel|>commentary<|message|>{}"],
)
def test_a_message_may_lack_its_end(behind):
    """Law: a call whose end is missing ends where its object does; the calls behind it are read too."""
    text = f"{HEADERS[2]}<|message|>{BODY}{behind}"
    found = extract_calls(text, BOX)
    assert (len(found.calls), found.calls[0].arguments, found.text) == (2, {"query": "y"}, "")
    assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in (1, 5, 1000))
    assert extract_calls(f"{HEADERS[2]}<|message|>{BODY}{{}}", BOX).malformed != ()


@pytest.mark.parametrize("box", [BOX, build_toolbox([])], ids=["tools", "no tools"])
@pytest.mark.parametrize("mark", ["<|channel|>", "<|channel|>final", "<|start|>assistant<|channel|>", "<|constrain|>"])
def test_a_lone_mark_of_a_header_is_dropped(box, mark):
    """Law: without its header such a mark is no part of the answer, with its channel; in code and in quotes it is."""
    for text, left in ((f"Hello.{mark}", "Hello."), (f"{mark}\nHello.", "Hello."), (f"Hello.\n{mark}\n", "Hello.")):
        assert extract_calls(text, box).text.strip() == left
        assert all(play(cut_at(text, [size]), box) == whole(text, box) for size in (1, 5, 1000))
    for text in (f"The mark `{mark}` is used.", f'Write "{mark}".', f"So:\n```\n{mark}\n```\nThat is it."):
        assert extract_calls(text, box).text == text


@pytest.mark.parametrize("word", ["commentary", "assistant", "analysis"])
def test_a_word_of_a_header_behind_the_end_of_a_call_is_no_text(word):
    """Law: an engine that stops late leaves the beginning of another message."""
    text = f'<|channel|>commentary to=functions.search<|message|>{{"query": "x"}}<|call|>{word}'
    assert settled(text, BOX, (1, 5, 1000)) == ([("search", {"query": "x"})], False, "")
