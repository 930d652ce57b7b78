"""The end of a turn: for each family in the table, whole and in any pieces."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.tools import build_toolbox, extract_calls
from reliability.tools.turns import GIVEN_RESULTS, HARNESS_TAGS, TURNS
from tests.support.extracting import BOX, CALL
from tests.support.renderings import tool
from tests.support.streaming import cut_at, inked, play, settled, whole

NONE = build_toolbox([])
ANSWER = "The sky is clear."
ONE = f"<tool_call>\n{CALL}\n</tool_call>"


def example(mark: str) -> str:
    """What an expression of the table matches."""
    plain = re.sub(r"\[([^\]])[^\]]*\](?!\~)", r"\1", mark) if mark.startswith("<[") or "▁" in mark else mark
    return re.sub(r"\\(.)", r"\1", re.sub(r"s\?", "s", plain))


ENDS = sorted({example(end) for turns in TURNS for end in turns.ends})
ROLES = sorted({example(role) for turns in TURNS for role in (*turns.roles, *turns.stops)})
STOPS = sorted({example(stop) for turns in TURNS for stop in turns.stops})
RESULTS = sorted({example(result) for turns in TURNS for result in turns.results})
PAIRS = [
    (example(end), example(role))
    for turns in TURNS
    for end in turns.ends
    for role in (*turns.roles, *turns.stops, *turns.results)
]
SIZES = (1, 3, 7, 1000)


def test_the_examples_are_the_marks():
    """What is tried below is what the table means."""
    marks = [mark for turns in TURNS for group in turns[1:] for mark in group]
    assert all(re.fullmatch(mark, example(mark)) for mark in marks)


@pytest.mark.parametrize("box", [BOX, NONE], ids=["tools", "no tools"])
@pytest.mark.parametrize(("end", "role"), PAIRS)
def test_an_answer_ends_where_its_turn_does(box, end, role):
    """Law: of an end mark and another role behind it nothing is delivered, with tools and without, in any pieces."""
    for text in (
        f"{ANSWER}{end}\n{role}user\nAnd tomorrow?{end}", f"{ANSWER}\n{end}{role}", f"{ANSWER}{end}\nuser\nHi",
    ):  # fmt: skip
        assert settled(text, box, SIZES).text == inked(ANSWER)


@pytest.mark.parametrize("box", [BOX, NONE], ids=["tools", "no tools"])
@pytest.mark.parametrize("mark", [*ENDS, *STOPS])
def test_a_mark_at_the_end_is_dropped(box, mark):
    """Law: a mark with nothing behind it is no part of the answer, glued to its last word or in a line of its own."""
    glued = [f"So:\n```json\n[1]```{mark}", f"{ANSWER}\n{mark}{mark}"] if mark in ENDS else []
    for text in (ANSWER + mark, f"It is 5{mark}\n", *glued):
        assert mark not in settled(text, box, SIZES).text


@pytest.mark.parametrize("mark", [*RESULTS, *ROLES])
def test_calls_behind_a_made_up_result_are_dropped(mark):
    """Law: behind a call the model's own result, or another role, ends the answer; what is dropped is counted."""
    for between in (f"\n{mark}21\n", f"{mark}21", f"<|im_end|>\n{mark}\n21<|im_end|>\n"):
        text = ONE + between + ONE.replace('"x"', '"y"')
        assert whole(text, BOX).calls == [("search", {"query": "x"})]
        assert extract_calls(text, BOX).behind == 1
        assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in SIZES)


ADDED = [f"<{tag}>" for tag in HARNESS_TAGS]
OWN = sorted({example(result) for result in GIVEN_RESULTS} - set(ADDED))


@pytest.mark.parametrize("mark", OWN)
def test_a_result_that_no_tool_has_given_is_no_answer(mark):
    """Law: where tools are declared and no call stands before it, the answer is refused, with the calls that rest on
    it; without tools it is text."""
    for text in (f"{mark}\n21\n", f'\n{mark}{{"a": 1}}', f"{ANSWER}\n\n{mark}21", f"{mark}\n21\n{ONE}"):
        assert settled(text, BOX, SIZES).refused
        if ONE not in text:
            assert whole(text, NONE) == ([], False, inked(text))


@pytest.mark.parametrize("mark", ADDED)
def test_an_answer_that_goes_on_as_the_agent_is_no_answer(mark):
    """Law: so it is where an answer begins with a line of what agents add to the user's turn."""
    for text in (f"{mark}\n21\n", f"\n{mark}\nx\n{mark.replace('<', '</')}\nNext question", f"{mark}\n21\n{ONE}"):
        assert settled(text, BOX, SIZES).refused


AGENTS = [
    "Claude Code adds hidden text. It looks like this.\n\n{m}\nBe brief.\n\nIt is added at each turn.",
    "## What the agent sees\n\n{m}\nfoo\n", "1. The reminder\n{m}\nfoo\n2. The rest",
    "{m} – a tag that Claude Code adds.", "{m} Tags are added by Claude Code.",
    "So sieht das aus.\n{m}\nfoo\n", "~~~\n{m}\nfoo\n~~~\nThat is one.",
]  # fmt: skip
SHOWN = [
    "{m} is how a result begins.", "~~~\n{m}\n21\n~~~\nThat is one.", "The template\n\n    {m}\n    21\n",
    "`{m}` opens one.", "It looks like this:\n\n{m}\n21\n", "```\n{m}\n21\n```\nThat is one.",
    "- {m}: a result", "See {m}\n21", "> {m}\n> 21",
]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "marks"), [*((said, ADDED) for said in AGENTS), *((said, (*OWN, *ADDED)) for said in SHOWN)]
)
def test_a_result_may_be_shown(said, marks):
    """Law: in a sentence, in code, announced or quoted, and what agents add anywhere but at the head, it is the
    answer's, in any pieces."""
    for mark in marks:
        text = said.format(m=mark)
        assert settled(text, BOX, SIZES) == ([], False, inked(text))


LINES = [
    "Observation: 21", "✿RESULT✿: 21", "## Return of functions.search:0\n21", "<tool_call_response>21",
    *(f"```{name}\n21\n```" for name in ("tool_output", "tool_response", "function_results", "observation")),
]  # fmt: skip
BARE = [
    'search(query="x")', '```python\nsearch(query="x")\n```', '{"search": {"query": "x"}}',
    '[search]{"query": "x"}',
]  # fmt: skip


@pytest.mark.parametrize("call", [ONE, CALL, *BARE])
@pytest.mark.parametrize("line", LINES)
def test_a_line_may_give_a_result(line, call):
    """Law: the same for results that no mark of their own stands before, and for a call that is one only where nothing
    stands behind it: it is the call, and never the one behind the result that rests on it."""
    text = f"{call}\n{line}\n{call.replace('x', 'y')}"
    assert settled(text, BOX, SIZES).calls == [("search", {"query": "x"})]


def test_a_block_of_output_gives_the_result_of_a_sure_call():
    """Law: behind a call by its marks an `output` block is its result; behind an example in prose it is the prose's."""
    block = "```output\n21\n```"
    assert whole(f"{ONE}\n{block}\n{ONE.replace('x', 'y')}", BOX).calls == [("search", {"query": "x"})]
    assert whole(f"Call it so:\n{BARE[1]}\n{block}\nThat is all.", BOX).calls == []


GIVEN = [
    "Tool result: 21", "[Tool output]: 21", "[Tool output]\n21", "**Output:** 21", "**Output:**\n21", "Result: 21",
    "**Tool result**: 21", "<result>21</result>", "<result>\n21\n</result>", "Function response:\n21",
    "**Observation:** 21", "**Observation**: 21", "_Observation_: 21", "[Observation] 21", "### Observation\n21",
    "## Observation:\n21", "OBSERVATION: 21", "observation: 21", "Observation : 21", "### Tool Result\n21",
    "```result\n21\n```", "```response\n21\n```", "<response>21</response>", "<call_result>21</call_result>",
    "The tool returned: 21", "Tool call returned: 21", "`search` responded: 21",
]  # fmt: skip


@pytest.mark.parametrize("call", [ONE, CALL, f"```json\n{CALL}\n```"])
@pytest.mark.parametrize("line", GIVEN)
def test_a_result_between_two_calls_ends_the_answer(line, call):
    """Law: a line that prose may have gives a result where it stands between two calls; the second rests on it."""
    text = f"{call}\n{line}\n{call.replace('x', 'y')}"
    assert whole(text, BOX).calls == [("search", {"query": "x"})]
    assert extract_calls(text, BOX).behind == 1
    assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in SIZES)
    for told in (f"{call}\n{line}", f"{line}\n{call}", f"{line}\nIt is clear."):
        assert inked(line) in whole(told, BOX).text
        assert whole(told, BOX).calls == [("search", {"query": "x"})] * (call in told)


def test_words_between_two_calls_stay():
    """Law: a heading right before the next call gives nothing; only a tool's result may stand behind other words."""
    for between in (
        "Tool result:", "I take both.\nOutput: a table.", "Results will follow.", "### Result",
        "### Results of y\nOne.", "Observations are next.", "**Output file:** a.txt", "The tool returned nothing yet.",
        "```result.json\n{}\n```", "Response time: 5 ms", "I take both.\n<response>21</response>", "The tools: one.",
        "A\n### Observation\n21", "`tool_response` is next.", "The <tool_call_result> is next.", "A <|tool|> is next.",
    ):  # fmt: skip
        text = f"{ONE}\n{between}\n{ONE.replace('x', 'y')}"
        assert whole(text, BOX) == ([("search", {"query": "x"}), ("search", {"query": "y"})], False, inked(between))


@pytest.mark.parametrize("turn", [
    "user\n21\nassistant", "ipython\n\n21", "tool\n21", "Human: ok\n\nAssistant:", "User: 21",
    '{"role": "tool", "content": "21"}', '{\n  "role": "user",\n  "content": "21"\n}',
])  # fmt: skip
def test_another_turn_needs_no_mark_behind_a_sure_call(turn):
    """Law: where the marks of turns were left out the roles are there, right behind the call: no call behind them
    rests on a real result. Behind prose or an example in it, and as the name of a tool, they are words."""
    for lead in (ONE, f"{CALL}</tool_call>"):
        text = f"{lead}\n{turn}\n{ONE.replace('x', 'y')}"
        assert settled(text, BOX, SIZES).calls == [("search", {"query": "x"})]
    for told in (f"Call it so:\n{BARE[1]}\n{turn}\nThat is all.", f"{turn}\n{ANSWER}"):
        assert whole(told, BOX) == ([], False, inked(told))
    assert len(whole(f"{ONE}\nThe host is a.\n{turn}\n{ONE.replace('x', 'y')}", BOX).calls) == 2
    named = build_toolbox([tool("user", {"properties": {"query": {}}}), tool("search", {"properties": {"query": {}}})])
    assert len(whole(f'{ONE}\nuser\n{{"query": "y"}}', named).calls) == 2


@pytest.mark.parametrize("role", ["User", "USER", "Human", "Assistant"])
def test_a_role_may_be_a_word_and_a_colon(role):
    """Law: families without a mark for roles write them so (ERNIE, Falcon, Vicuna)."""
    for text in (f"{ANSWER}<|end_of_sentence|>{role}: And tomorrow?", f"{ANSWER}</s>\n{role}: And tomorrow?"):
        assert settled(text, BOX, SIZES).text == inked(ANSWER)
    told = f"Write </s> {role}: and so on."
    assert whole(told, BOX).text == inked(told)


@pytest.mark.parametrize("box", [BOX, NONE], ids=["tools", "no tools"])
@pytest.mark.parametrize("sentence", [
    "The model writes {m}", "`{m}` ends it", 'Its mark is "{m}".', "Write {m}, then stop.", "({m})",
    "So:\n```\nHi{m}\n{r}user\n```\nThat is it.", "Run `echo {m} {r}` first.",
    "The format:\n{r}user\nHi{m}\n{r}assistant\nHello{m}\n",
])  # fmt: skip
def test_prose_may_talk_of_the_marks(box, sentence):
    """Law: quoted, in code, apart in a sentence, or where a template is shown, they are the answer's."""
    for end, role in PAIRS:
        if "{r}" in sentence and role in STOPS + RESULTS:
            continue
        text = sentence.format(m=end, r=role)
        assert settled(text, box, SIZES) == ([], False, inked(text))


@pytest.mark.parametrize("end", ENDS)
def test_arguments_may_hold_the_marks(end):
    """Law: what stands in a call is the call's."""
    value = f"<|im_start|>user\nhi{end}\n<|im_start|>assistant"
    text = f"<tool_call>\n<function=search>\n<parameter=query>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert whole(text, BOX).calls == [("search", {"query": value})]


PIECES = st.sampled_from(
    [ANSWER, "a", "\n", " ", "`", "```\n", ONE, *ENDS, *ROLES, *RESULTS, "user\n", "</tool_call>", "</parameter>", "<|"]
)


@given(st.lists(PIECES, max_size=10).map("".join), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.booleans())
def test_whole_and_streamed_are_the_same(text, sizes, declared):
    """Law: however an answer is cut, the client gets what it gets of the whole one."""
    box, text = BOX if declared else NONE, f"So: {text}"  # marks alone are no answer (test_answer_head.py)
    assert play(cut_at(text, sizes), box) == whole(text, box)


@pytest.mark.parametrize("unit", ["<|im_end|>", "<|im_end|>x", "</s>\n<s>", "```\n<|im_end|>\n<|im_start|>user\n"])
def test_rows_of_marks_are_read_once(unit):
    """Law: ten times as many marks are read in well under a hundred times the steps; a quadratic reader never ends."""
    text = unit * (200_000 // len(unit))
    assert whole(text, NONE).calls == []


@pytest.mark.parametrize("mark", ["<|endofturn|>", "<|end_of_turn|>", "<|im_end|><|endofturn|>"])
def test_the_marks_of_hyperclova_and_openchat(mark):
    """Law: each ends the answer, alone or with the next role behind it."""
    for behind in ("", "\n<|im_start|>user\nThanks."):
        assert settled(f"It is clear.{mark}{behind}", BOX).text == "Itisclear."


@pytest.mark.parametrize(
    "on",
    [
        "\n<SPECIAL_12>\n<SPECIAL_11>User\nAnd?\n<SPECIAL_11>Assistant\nYes.",
        "<SPECIAL_11>User\nAnd?",
        "<|eom|><|bom|><|user|> And?<|eom|><|bom|><|assistant|> Yes.",
        "<|end|><|begin|>user<|content|>And?<|end|><|begin|>assistant<|content|>Yes.",
    ],
)
def test_the_turns_of_nemotron_jamba_and_solar(on):
    """Law: an answer that goes on with the user's turn in the marks of these families ends before it."""
    assert settled(f"{ANSWER}{on}", BOX).text == inked(ANSWER)
