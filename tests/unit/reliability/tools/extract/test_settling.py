"""How a walk settles what it finds, and where in its text a place stands."""

import pytest

from reliability.tool_calls import Uncertainty
from reliability.tools import extract_calls
from tests.support.call_values import made
from tests.support.extracting import BOX, CALL, calls
from tests.support.streaming import cut_at, inked, play, settled, whole


@pytest.mark.parametrize(
    "before",
    ["Don't do this:", "Never write:", "Avoid this:", "For example:", "def main():", "    if found:", "async def f():"],
)
def test_a_call_that_is_shown_is_prose(before):
    """Where the line before says that it is an example, or heads a block of code, the last line is not run."""
    assert calls(f"{before}\n    search(query='x')") == []
    assert calls("I look it up:\nsearch(query='x')") == [("search", {"query": "x"})]


FORMS = [
    CALL, f"```json\n{CALL}\n```", f"<tool_call>\n{CALL}\n</tool_call>", "[search(query='x')]", "search(query='x')",
    "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>", 'search\n{"query": "x"}',
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", ["Never run this:\n", "It fails. **Do not use:**\n", "You shouldn't write this:\n"])
def test_a_call_that_the_model_warns_of_is_not_run(before, form):
    """Law: words right before a call that say not to make it make it prose, in each form, whole and streamed; the call
    that is made behind it is one."""
    for size in (1, 4, 999):
        found = play(cut_at(before + form, [size]), BOX)
        assert (found.calls, found.refused, found.text) == ([], False, inked(before + form))
    assert calls(f"{before}{form}\n\nInstead:\n<tool_call>{CALL}</tool_call>") == [("search", {"query": "x"})]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "before",
    [
        "For example:\n", "Sure. **For instance:**\n\n", "A call, e.g.:\n", "The call would look like this:\n",
        "Such a call looks like this:\n", "Here is an example of a tool call:\n", "You can call it like this:\n",
        "A call is written like so:\n", "Another example:\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("joint", ["", "\n", "\n\n", "\nor:\n", "\n\nOr, of another thing:\n"])
def test_a_call_that_is_shown_as_an_example_is_asked_about(before, form, joint):
    """Law: words right before a call, or near others, that say that it is an example make it one that is asked about,
    and delivered as words where the model stays with it: in each form, whole and streamed."""
    text = before + form + (joint + form.replace("x", "y") if joint else "")
    found = extract_calls(text, BOX)
    assert found.calls == ()
    assert {one.doubt for one in found.malformed} == {Uncertainty.SUSPECTED}
    assert extract_calls(text, made([])).text == text
    for size in (1, 4, 999):
        assert play(cut_at(text, [size]), BOX) == whole(text, BOX)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "before",
    [
        "I'll search, for example:", "Let me try e.g.:", "Cats, for example a lynx. I look it up:", "Here is the call:",
        "For example, I look for cats:", "It looks like this is missing. Looking it up:", "We can search, for example:",
        "You can see that I call it like this:", "You can use it. Like this I find it:",
    ],
)  # fmt: skip
def test_a_call_behind_an_example_of_another_thing_is_made(before, form):
    """Law: where the sentence says that the model acts, or another one stands between, the call is made."""
    assert calls(f"{before}\n{form}") == [("search", {"query": "x"})]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("between", ["\n\nNow I search:\n", "\n\nThat is how. Let me do it.\n", "\nWe do it:\n"])
def test_what_is_shown_beside_a_call_that_is_made_is_text(form, between):
    """Law: the call that the model makes beside an example is made, before it or behind words that say who acts, and
    the example is part of the text: whole and streamed."""
    made_call = CALL.replace("x", "y")
    for text in (f"For example:\n{form}{between}{made_call}", f"{made_call}\n\nFor example:\n{form}"):
        found = settled(text, BOX, (1, 4, 999))
        assert (found.calls, found.text) == ([("search", {"query": "y"})], inked(text.replace(made_call, "")))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [
    "I don't know that, so I will search:", "I have never seen it. I look it up:", "If it isn't there I try again:",
    "With this I can find it:", "To avoid mistakes, I search:", "Don't worry, I will call it:", "Never mind:",
    "You should not use old data, so I search:", "Don't use the old file, use the new one:",
    "Do not run the tests yet:", "Avoid guessing:",
])  # fmt: skip
def test_a_call_behind_words_of_another_sense_is_made(before, form):
    """Law: a no in a sentence that speaks of something else, or a word that code has as well, loses no call."""
    assert calls(f"{before}\n{form}") == [("search", {"query": "x"})]


def test_text_around_calls_is_kept_in_order():
    """Prose before, between and after calls stays; commas between calls and fences around them go."""
    found = extract_calls(f"First.\n```json\n{CALL}\n```\nThen:\n{CALL}, {CALL}\nDone.", BOX)
    assert len(found.calls) == 3
    assert found.before == "First.\n"
    assert found.text == "First.\nThen:\nDone."


@pytest.mark.parametrize(("sent", "left"), [(0, "First.\nThen: Done."), (7, "Then: Done."), (12, "en: Done.")])
def test_what_has_left_is_not_given_back(sent, left):
    """Prose that a client has already is read, and not said again."""
    found = extract_calls(f"First.\n{CALL}Then: Done.", BOX, min(sent, 7) if sent < 8 else 7 + len(CALL) + 2)
    assert [call.name for call in found.calls] == ["search"]
    assert found.text == left


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_the_fence_that_closes_a_code_block_stays(blocks):
    """A fence right before a call frames it only where it opens a block."""
    shown = "\n".join(["```python\nx = 1\n```"] * blocks)
    assert extract_calls(f"{shown}\n<tool_call>{CALL}</tool_call>", BOX).text == f"{shown}\n"
    assert extract_calls(f"{shown}\n```json\n{CALL}\n```", BOX).text == f"{shown}\n"


@pytest.mark.parametrize("joint", ["\n", ",\n", "\n\n", "\nthen\n"])
def test_a_fence_around_several_calls_goes_as_a_whole(joint):
    """Law: the fence that closes behind the last of several calls goes with the one that was opened before the first;
    one that opens a block of the prose behind them stays."""
    other = CALL.replace('"x"', '"y"')
    found = extract_calls(f"So:\n```json\n{CALL}{joint}{other}\n```\nDone.", BOX)
    assert (len(found.calls), found.text) == (2, "So:\nDone.")
    shown = "```python\nx = 1\n```"
    for text in (f"```json\n{CALL}{joint}{other}\n```\n{shown}", f"```json\n{CALL}\n```{joint}{other}\n{shown}"):
        assert extract_calls(text, BOX).text == shown
