"""The response object: places, names and what it repeats of the request."""

from hypothesis import given

from reliability.types import CallDelta, Finish, FinishReason
from tests.support.response_wire import ANSWERS, FINISHES, TOOLS, answer, ask, check_response


@given(ANSWERS, FINISHES)
def test_names_are_the_places(batches, finish):
    """Every item has a name of its own, which ends with its place."""
    call = ask()
    items = answer(call, batches, finish)["output"]

    assert [item["id"].split("_", 1)[1] for item in items] == [f"{call.wanted.tag}_{i}" for i in range(len(items))]


def test_the_request_is_repeated():
    """A client finds in the response what it asked for, tools that were kept from the model included; a bound that has
    no effect isn't claimed."""
    asked = {
        "instructions": "Be good.", "max_output_tokens": 9, "metadata": {"a": "b"}, "parallel_tool_calls": False,
        "temperature": 0.5, "top_p": 0.5, "tool_choice": "none", "user": "u", "safety_identifier": "s",
        "prompt_cache_key": "k", "reasoning": {"effort": "low", "summary": None}, "store": False,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    }  # fmt: skip
    response = answer(ask(**asked, truncation="auto"), [], Finish(reason=FinishReason.STOP))
    check_response(response)

    assert {name: response[name] for name in asked} == asked
    assert response["tools"] == [{"description": None, "strict": None} | TOOLS[0], *TOOLS[1:]]
    assert response["truncation"] == "disabled"


def test_the_text_of_a_custom_tool_is_readable_whatever_its_arguments_are():
    """Half a character in it is U+FFFD; arguments that are no object, which only come unchecked, are the text."""
    finish = Finish(reason=FinishReason.TOOL_CALLS)
    for arguments, text in (('{"input": "a \\ud83d b"}', "a \ufffd b"), ("[1]", "[1]"), ("{", "{")):
        response = answer(ask(), [[CallDelta(index=0, id="call_0", name="c", arguments=arguments)]], finish)
        assert [item["input"] for item in response["output"]] == [text]
