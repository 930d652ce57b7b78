"""Reasoning apart from the answer: every family, whole and in any pieces, opened by the model or in the prompt."""

import json
import re
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.answer.thoughts import Thoughts
from reliability.tools import build_toolbox
from reliability.tools.format_reasoning import MESSAGES, REASONING
from reliability.types import CallDelta, Flaw, Hold, Reasoning, Text
from tests.evals.tool_cases import written_calls
from tests.support.call_values import made
from tests.support.renderings import tool
from tests.support.streaming import cut_at, take_apart
from tests.support.thought_marks import K3, MARKS, OPENED, PROMPTED, row_of
from tests.support.value_paths import judge_events

TOOLS, _ = written_calls()
TOOLBOX, NO_TOOLS = build_toolbox(TOOLS), build_toolbox([])
CALL = '<tool_call>\n{"name": "find_part", "arguments": {"code": "K-7"}}\n</tool_call>'
THOUGHT = "The user asks for parts.\nI could do it so: `a < b`.\n- or [so]"
ANSWER = "There are 3 parts,\nand 2 < 3 [sic]."
SIZES = (1, 2, 3, 7, 64, 10_000)


each_opened = pytest.mark.parametrize("marks", OPENED, ids=lambda marks: marks[0].strip())
LATER = [marks for marks in MARKS if "im_start" not in marks[0]]
each_later = pytest.mark.parametrize("marks", LATER, ids=lambda marks: marks[0])


def trimmed(text):
    """The text without the white space that may differ where a mark was taken out."""
    return re.sub(r"\s+", " ", text).strip()


def both(pieces, box, **thinks):
    """What becomes of an answer streamed in these pieces, and held."""
    return take_apart(pieces, box, **thinks), take_apart(pieces, box, Hold.ALL, **thinks)


def reads(text, *boxes, **thinks):
    """What becomes of an answer in pieces of each size, streamed and held, with tools and without, or with `boxes`."""
    cuts = [(cut_at(text, [size]), box) for size in SIZES for box in boxes or (TOOLBOX, NO_TOOLS)]
    return [apart for pieces, box in cuts for apart in both(pieces, box, **thinks)]


@each_opened
def test_what_the_model_opens_is_apart(marks):
    """Law: the thought is reasoning, the rest is the text, to the letter, and no mark is left, however it was cut."""
    opener, closer, says, ends = marks
    text = f"{opener}{THOUGHT}{closer}{says}{ANSWER}{ends}"
    for apart in reads(text):
        assert (apart.text, apart.reasoning) == (ANSWER, THOUGHT)
        assert apart.judged.flaw is None


@each_opened
def test_what_a_prompt_opens_is_apart_where_the_tier_says_so(marks):
    """Law: without the opener too, whole and streamed, and even where a mention of the closer stands in it."""
    opener, closer, says, ends = marks
    mention = f"`{closer.strip()}`"
    text = f"{THOUGHT} {mention}{closer}{says}{ANSWER}{ends}"
    for apart in reads(text, inside=row_of(opener, closer)):
        assert (apart.text, apart.reasoning) == (ANSWER, f"{THOUGHT} {mention}")


@pytest.mark.parametrize("marks", PROMPTED, ids=lambda marks: marks[1].strip())
def test_what_a_strange_prompt_opens_is_apart_where_nothing_has_left(marks):
    """Law: only the closer tells. Held, the thought is reasoning; in a stream it has left, and only the marks go."""
    _, closer, says, ends = marks
    text = f"{THOUGHT}{closer}{says}{ANSWER}{ends}"
    for size, box in product(SIZES, (TOOLBOX, NO_TOOLS)):
        streamed, held = both(cut_at(text, [size]), box)
        assert (held.text.strip(), held.reasoning) == (ANSWER, THOUGHT)
        assert trimmed(streamed.text) == trimmed(f"{THOUGHT}{' ' * closer.startswith(chr(10))}{ANSWER}")
        assert streamed.reasoning == ""


@each_opened
@pytest.mark.parametrize("inside", [False, True], ids=["opened", "prompt"])
def test_a_thought_that_never_ends_is_no_answer(marks, inside):
    """Law: all of it is reasoning, the call in it is none, and the answer is empty."""
    opener, closer, _, _ = marks
    text = f"{'' if inside else opener}{THOUGHT}\n{CALL}"
    for apart in reads(text, inside=row_of(opener, closer) if inside else None):
        assert (apart.text, apart.reasoning) == ("", f"{THOUGHT}\n{CALL}")
        assert (apart.judged.flaw, apart.judged.calls) == (Flaw.EMPTY, ())


@each_opened
def test_a_call_behind_a_thought_is_one(marks):
    """Law: the call in the thought isn't made, the one behind it is, whole and streamed."""
    opener, closer, _, _ = marks
    text = f"{opener}I could do {CALL}.{closer}{CALL.replace('K-7', 'K-8')}"
    for apart in reads(text, TOOLBOX):
        assert [json.loads(call.arguments) for call in apart.judged.calls] == [{"code": "K-8"}]
        assert trimmed(apart.reasoning) == trimmed(f"I could do {CALL}.")


@each_later
def test_a_later_thought_is_apart_too(marks):
    """Law: one that begins a line of the answer, and one in a sentence's place; two behind one another."""
    opener, closer, says, ends = (mark.strip() for mark in marks)
    first, second = f"{opener}One.{closer}", f"{opener}Two.{closer}"
    for text in (f"{first}{second}Yes.", f"{first}Yes.\n{second}", f"Yes.\n{opener}One.\nTwo.{closer}{says}{ends}"):
        for apart in reads(text):
            assert (apart.text.strip(), trimmed(apart.reasoning.replace(".", ". "))) == ("Yes.", "One. Two.")


LETTERS = [
    "A `<think>` tag begins it, `</think>` ends it.", "In prose a <think> is only a word, and </think> too.",
    'The "<think>" of Qwen; the \'[THINK]\' of Mistral, and "[/THINK]".',
    "The format: <think> the reasoning </think> and then the answer.",
    "Write:\n```xml\n<think>\nso\n</think>\nanswer\n```\nThat is all.",
    "Write:\n\n```\n[THINK]so[/THINK]<|END_RESPONSE|>\n```\n",
    'Its JSON is {"text": "<b>x</b><think>so</think> it is", "end": "no.</think>"}.',
    '{\n  "a": "<think>",\n  "b": "see: <think>x</think>y"\n}',
    "Run `sed s/<think>.*<.think>// file </think> x` there.", "I <think> so, and < /think> not.",
    "a <b> c </b> [x] [/x] <|im| <c",
]  # fmt: skip


@pytest.mark.parametrize("text", LETTERS)
def test_what_is_talked_about_stays_to_the_letter(text):
    """Law: quoted, in code, in a string of data, in a sentence: nothing of it goes, and nothing is reasoning."""
    for full in (text, f"Yes. {text}", f"{text}\n\nAnd so on."):
        for apart in reads(full):
            assert (apart.text, apart.reasoning) == (full, "")


@each_later
def test_a_pair_in_a_sentence_stays_to_the_letter(marks):
    """Law: an opener in the middle of a sentence is only talked about, and so is its closer, wherever that stands."""
    opener, closer = marks[0].strip(), marks[1].strip()
    for inside in ("", "...", "x", " so ", f"\n{'so ' * 200}\n"):
        for text in (f"The tags {opener}{inside}{closer} wrap it.", f"5{opener}{inside}{closer}6"):
            for apart in reads(text):
                assert (apart.text, apart.reasoning) == (text, "")


@each_later
def test_a_thought_behind_a_mention_is_apart(marks):
    """Law: reasoning that begins a line is reasoning, though its marks were talked about before."""
    opener, closer = marks[0].strip(), marks[1].strip()
    for mention in (
        f"I use the tag {opener} here.", f"Models write {opener} and {closer}.", f"First {opener}, {opener}.",
    ):  # fmt: skip
        text = f"{mention}\n\n{opener}\nNow I think.\n{closer}\n\nDone."
        for apart in reads(text):
            assert (apart.text.split(), apart.reasoning) == (f"{mention} Done.".split(), "Now I think.")


@pytest.mark.parametrize("marks", MARKS, ids=lambda marks: marks[0].strip())
def test_marks_in_arguments_stay_to_the_letter(marks):
    """Law: what a call writes into a file is data, whatever marks stand in it, behind a thought too."""
    opener, closer = marks[0].strip().removeprefix("<|im_start|>assistant\n"), marks[1].strip()
    value = f"a\n{opener}b{closer}\nc"
    call = f"<tool_call>\n<function=find_part>\n<parameter=code>\n{value}\n</parameter>\n</function>\n</tool_call>"
    for text in (call, f"{opener}So.{closer}{call}", f"I write.\n{call}"):
        for apart in reads(text, TOOLBOX):
            assert [json.loads(call.arguments) for call in apart.judged.calls] == [{"code": value}]


PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "[THINK]", "[/THINK]", "<|open|>think<|sep|>", K3, "<|channel|>analysis<|message|>"),
        *("<|end|>", "<thi", "nk>", "<|", "</", "`", '"', " ", "\n", ". ", "So it is", "a < b", "```\n", CALL, "<b>"),
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=10).map("".join), st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_the_machine_does_not_depend_on_the_cuts(text, sizes, inside):
    """Law: the same reasoning and the same text, piece by piece or at once, and nothing else."""
    row = row_of("<think>", "</think>") if inside else None

    def read(pieces):
        thoughts = Thoughts(inside=row)
        events = [event for piece in pieces for event in thoughts.feed(piece)] + thoughts.end()
        assert all(event.text for event in events)
        return ["".join(one.text for one in events if isinstance(one, kind)) for kind in (Reasoning, Text)]

    assert read(cut_at(text, sizes)) == read([text])
    if not re.search(r"think|THINK|channel|open|im_start", text) and not inside:
        assert read([text]) == ["", text]


@pytest.mark.parametrize("text", ["I think.\n</think>", "ok <think>c</think>", "I think.\n[/THINK]\n", "So.\n<think>"])
@pytest.mark.parametrize("hold", [Hold.TOOL_CALLS, Hold.ALL])
def test_a_native_call_behind_a_mark_is_kept(text, hold):
    """Law: what comes next to text that ends in a mark of reasoning is delivered, in one piece and in two."""
    box = made([tool("find_part", {"properties": {"code": {"type": "string"}}})])
    for parts in (('{"code": "K-7"}',), ('{"code"', ': "K-7"}')):
        deltas = [CallDelta(index=0, name="find_part" * (not at), arguments=part) for at, part in enumerate(parts)]
        events, judged = judge_events([[Text(text)], *([delta] for delta in deltas)], box, hold)
        assert judged.flaw is None
        assert [(call.name, call.arguments) for call in judged.calls] == [("find_part", '{"code": "K-7"}')]
        assert any(isinstance(event, CallDelta) for event in events)


def test_at_most_a_mark_is_held_back():
    """Law: reasoning and answer leave as they come, but for the beginning of a mark and white space."""
    text = f"<think>{'I could do it <so>, or [so]. ' * 20}</think>{'It is < 3 [and so on]. ' * 20}"
    thoughts, came, left = Thoughts(), 0, 0
    for piece in cut_at(text, [3]):
        came += len(piece)
        left += sum(len(event.text) for event in thoughts.feed(piece))
        assert came - left < 40


@pytest.mark.parametrize(
    "part", ["<", " ", "</thin", "<think>", "</think>", "`</think>`", "<|im_start|>", '\\"</think>']
)
def test_hostile_text_costs_linear_time(part):
    """Law: twice the text is about twice the work, as many steps of the machine as there are pieces."""

    def work(count):
        thoughts, longest = Thoughts(), 0
        thoughts.feed("<think>" if part != "<|im_start|>" else "")
        for _ in range(count):
            thoughts.feed(part)
            longest = max(longest, len(thoughts._held))
        return longest

    assert work(4_000) <= 600


BARE_CALL = 'assistantcommentary to=functions.find_part json{"code": "K-7"}'


@pytest.mark.parametrize(("thought", "said"), [
    ("The user asks for parts.", "There are 3 parts."),
    ("We don't know: `a < b`, as seen.", "**Parts**\n- K-7"),
    ("I'll look. ", "analysis is done."),
])  # fmt: skip
def test_harmony_whose_marks_an_upstream_has_skipped_is_taken_apart(thought, said):
    """Law: behind `analysis` glued to a sentence all is reasoning, up to the word of the next message: the text, a
    remark, or a call."""
    box = build_toolbox([tool("find_part", {"properties": {"code": {"type": "string"}}})])
    for apart in reads(f"analysis{thought}assistantfinal{said}", box, NO_TOOLS):
        assert (apart.text, apart.reasoning) == (said, thought.rstrip())
    for apart in reads(f"assistantfinal{said}", box):
        assert (apart.text, apart.reasoning) == (said, "")
    for text, left in ((BARE_CALL, ""), (f"assistantcommentaryLet me look.{BARE_CALL}", "Let me look.")):
        for apart in reads(f"analysis{thought}{text}", box):
            assert (apart.text, apart.reasoning) == (left, thought.rstrip())
            assert [json.loads(call.arguments) for call in apart.judged.calls] == [{"code": "K-7"}]


@pytest.mark.parametrize("text", [
    "analysis of the parts", "Analysis", "An apple", "a", "analysisService is a class", "analysis: The parts",
    "analysisThe", "analysis The user asks", "assistantcommentary", "As said, assistantfinal is a word.",
])  # fmt: skip
def test_a_word_of_harmony_alone_is_text(text):
    """Law: a word that is a channel's name, and glued to no sentence, is what the answer says."""
    assert {(apart.text, apart.reasoning) for apart in reads(text)} == {(text, "")}
    assert {(apart.text, apart.reasoning) for apart in reads(f"<|im_start|>assistant\n{text}")} == {(text, "")}


@pytest.mark.parametrize("mark", ["</tool_response>", "</tool_results>", "\n</function_output>", "</observation>"])
def test_an_answer_that_ends_the_result_before_it_begins_behind_that(mark):
    """Law: the closing tag of the newest result is none of the answer, unless a sentence begins with it."""
    assert {(apart.text, apart.reasoning) for apart in reads(f"{mark}\nIt is 4.")} == {("It is 4.", "")}
    spoken = f"{mark.strip()} ends a result."
    assert {(apart.text, apart.reasoning) for apart in reads(spoken)} == {(spoken, "")}


def test_rows_do_not_open_each_other():
    """Law: no opener is the beginning of another one, so that a complete one is settled."""
    openers = sorted(opener for row in (*REASONING, *MESSAGES) for opener in row.opens)
    assert not any(later.startswith(one) for one, later in pairwise(openers))
