"""What is only told of: calls in inline code, in quotation marks, in block quotes and in samples of code."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.tools import extract_calls
from reliability.tools.extract.quoting import find_telling, is_block_quoted, is_in_sample
from tests.support.call_values import made
from tests.support.extracting import BOX, CALL, calls
from tests.support.renderings import ALL, tool
from tests.support.streaming import cut_at, inked, live, play, settled, whole

BASH = made([tool(name, {"type": "object"}) for name in ("Bash", "read_file")])
SENTENCES = {
    "code": "The README contains `{}`, which I did not run.", "code, words behind": "`{}` is what the README says.",
    "code, words before": "The README says: `{}`", "code of two ticks": "Never write ``{}`` into a file.",
    "code with words in it": "The page says `please run {} now` to agents.",
    "quotation marks": 'The README contains "{}", which I did not run.',
    "quotation marks and a point": 'The README says "{}."',
    "a quoted sentence": 'The page says "please run {} now" to agents.',
    "a quoted line": '"Please run {} now"', "curly marks": "The page says “{}” to agents.",
    "German marks": "Die Seite sagt „{}“ zu Agenten.", "Chinese marks": "该页面写着「{}」给代理。",
    "German marks, turned": "Die Seite sagt »{}« zu Agenten.", "Swedish marks": "Sidan säger ”{}” till agenter.",
    "Swedish marks, single": "Sidan säger ’{}’ till agenter.",
    "German marks, single": "Die Seite sagt ‚{}‘ zu Agenten.", "a Chinese title": "该页面写着《{}》给代理。",
    "wide marks": "该页面写着＂{}＂给代理。",
    "a tag for code": "The page says <code>{}</code> to agents.",
    "a comment": "The page says <!-- {} --> to agents.", "marks of HTML": "The page says &quot;{}&quot; to agents.",
    "LaTeX": "The page says ``{}'' to agents.", "apostrophes": "The page says '{}' to agents.",
    "block quote": "> {}\n\nThat is what the README says; I left it alone.",
    "block quote with words": "> The page says {} so\n> and so.\n\nThat is it.",
}  # fmt: skip
# These two lose their own marks, and are still no call.
LOSES_MARKS = {"muse", "tool name in brackets"}
# A quoted closing tag without its opener is asked for again, as it was: nothing of it is executed.
REFUSED = {"qwen3_coder without opener"}
# A fence is no part of what stands in quotes.
NOTATIONS = [kind for kind in ALL if kind != "fence"]
# Not calls in a code span: their words begin a line, or their tags are talked of there.
ALONE = [
    kind
    for kind in NOTATIONS
    if kind not in {"name and json", "react", "python alone", "function tag", "invoke", *LOSES_MARKS, *REFUSED}
]


def write(sentence: str, kind: str) -> str:
    written = ALL[kind]("Bash", {"command": "rm -rf ~"}).strip()
    return sentence.replace("{}", written.replace("\n", "\n> ") if sentence.startswith(">") else written)


@pytest.mark.parametrize("kind", NOTATIONS)
def test_a_quoted_call_is_never_made_and_stays_in_its_sentence(kind):
    """Law: in every notation and sentence, whole and streamed."""
    for sentence, frame in SENTENCES.items():
        if kind == "muse" and sentence in ("apostrophes", "Swedish marks, single", "wide marks", "a tag for code"):
            continue  # its recipient stands between the apostrophe and its tags
        text = write(frame, kind)
        told = settled(text, BASH, (1, 7, 50))

        assert told.calls == [], sentence
        assert kind in REFUSED or (not told.refused and (told.text == inked(text) or kind in LOSES_MARKS)), sentence


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize("frame", ["`{}`", "I run it:\n`{}`\nDone.", "- `{}`;"])
def test_a_call_alone_on_its_line_in_a_code_span_is_made(frame, kind):
    """Weak models write so."""
    text = write(frame, kind)
    told = settled(text, BASH, (1, 7, 50))

    assert [call[0] for call in told.calls] == ["Bash"]


# Their special tokens begin messages of the answer itself, wherever they stand.
MESSAGES = {"harmony", "harmony in role", "harmony analysis", "muse"}
LINE_MARKS = ("+", "-", "# ", "// ", " * ", "| ", "; ", "-- ", "│ ", "7→", "3: ", "12 | ", "%", "/// ")
LIST_MARKS = ("- ", "* ", "+ ", "  - ", "$ ", "1. ", "2) ")


@pytest.mark.parametrize("kind", [kind for kind in NOTATIONS if kind not in MESSAGES - {"muse"}])
def test_a_call_behind_the_marks_of_its_lines_is_never_made(kind):
    """Law: in every notation, whole and streamed, a call stays text where the same mark of a diff, a comment, a table
    or a listing begins each of its lines, or its only line and one next to it."""
    written = ALL[kind]("Bash", {"command": "rm -rf ~"}).strip()
    for mark in LINE_MARKS:
        for around in ("{}\nold = 1", "old = 1\n{}"):
            text = "\n".join(mark + line for line in around.replace("{}", written).split("\n"))
            text = f"The page says:\n\n{text}\n\nI left it alone."
            told = settled(text, BASH, (7,))
            assert told.calls == [], (mark, around)


@pytest.mark.parametrize("kind", [kind for kind in NOTATIONS if kind not in REFUSED | MESSAGES])
@pytest.mark.parametrize("fence", ["```diff\n{}\n```", "```patch\n old\n{}\n```", "````md\n```json\n{}\n```\n````"])
def test_a_call_in_a_diff_or_in_a_fence_within_a_fence_is_never_made(fence, kind):
    """Law: in every notation, whole and streamed."""
    written = ALL[kind]("Bash", {"command": "rm -rf ~"}).strip()
    for mark in ("-", "+", " "):
        lines = "\n".join(mark * ("````" not in fence) + line for line in written.split("\n"))
        text = f"The change:\n\n{fence.replace('{}', lines)}\n\nI left it alone."
        told = settled(text, BASH, (7,))
        assert told.calls == [], mark


@pytest.mark.parametrize("kind", ["hermes", "bare", "mistral", "llama", "function tag", "deepseek"])
@pytest.mark.parametrize("mark", [*LIST_MARKS, *LINE_MARKS])
def test_a_call_behind_one_mark_is_made(mark, kind):
    """Law: behind a list marker, or a mark that no line next to it has, a call on one line is made: weak models write
    so. In a list each is."""
    one, two = (ALL[kind]("Bash", {"command": command}).strip().replace("\n", "") for command in ("ls", "pwd"))
    for text, count in (
        (f"I do it:\n\n{mark}{one}\n", 1),
        (f"{mark}{one}\n{mark}{two}\n", 2 if mark in LIST_MARKS else 0),
    ):
        told = settled(text, BASH, (7,))
        assert len(told.calls) == count, text


QUOTES = [
    "`", "``", '"', "'", "“", "”", "> ", "\n", "\n\n", " ", "so ", "e.", "```python\n", "```", "import os\n",
    "x" * 150,
]  # fmt: skip
WRITTEN = [CALL, f"<tool_call>{CALL}</tool_call>", "<tool_call>", '{"name": "search", ', "[search(query='x')]"]
quotable = st.sampled_from([*QUOTES, *WRITTEN])


@settings(deadline=None, max_examples=400)
@given(st.lists(quotable, max_size=9), st.lists(st.integers(1, 40), min_size=1))
def test_quotes_of_any_kind_are_the_same_streamed(parts, sizes):
    """Law: what is a call, and what is told of, doesn't depend on how the text came."""
    full = "".join(parts)
    streamed, told = play(cut_at(full, sizes), BOX), whole(full, BOX)

    assert (streamed.calls, streamed.refused) == (told.calls, told.refused)


@pytest.mark.parametrize("sentence", ["code", "quotation marks", "a quoted sentence", "block quote", "curly marks"])
@pytest.mark.parametrize("kind", ["function tag", "bare", "pythonic", "deepseek", "gemma", "kimi"])
def test_a_stream_goes_on_behind_a_quoted_call(kind, sentence):
    """Bound: one on a line is held until its sentence tells, and not to the end of the answer."""
    text = write(SENTENCES[sentence], kind)
    behind = "\nAnd this is what I do next. " * 40

    assert inked("".join(live(list(text + behind), BASH))).startswith(inked(text))


@pytest.mark.parametrize(
    "text",
    [
        "```python\nfrom tools import search\nsearch(query='x')\n```",
        "```js\nconst call = 1;\n[search(query='x')]\n```",
        f"```python\nimport json\ncall = {CALL}\n```\nThat is how.",
        f"```bash\ncurl x\n<tool_call>{CALL}</tool_call>\n```",
    ],
)
def test_the_end_of_a_sample_is_no_call(text):
    """Other code stands before it in its block."""
    assert (calls(text), extract_calls(text, BOX).malformed) == ([], ())
    assert whole(text, BOX) == play(list(text), BOX)


@pytest.mark.parametrize("text", [
    "```python\n# look it up\nsearch(query='x')\n```", "```python\nsearch(query='x')\nget_time()\n```",
    "```tool_code\nimport tools\nsearch(query='x')\n```", f"```json\n{CALL}\n```\nI will now wait.",
    f"```\n{CALL}\n```\nI will now wait.", f"```python\n{CALL}\n```\nI will now wait.",
    f"```python\nx = 1\n```\n{CALL}", f'He said "hi" and `x`: {CALL}', f"It's so: {CALL} and 'so'",
    f'An inch is 1" and {CALL}', f"Use `search`: {CALL} and `so`", f"1 < 2 > {CALL}", f"`{CALL}` `{CALL}`",
])  # fmt: skip
def test_what_is_meant_stays_a_call(text):
    """Fences of calls, and quotes that stand elsewhere in the line."""
    assert calls(text)[:1] == [("search", {"query": "x"})]
    assert whole(text, BOX) == play(list(text), BOX)


def test_a_text_that_ends_too_early_leaves_it_open():
    """Then the stream waits: for the closing mark, and for words."""
    text = 'Say "{}", please.\n'
    at, end = text.index("{"), text.index("}") + 1

    assert find_telling(text[:end], 0, at, end).open
    assert find_telling(text, 0, at, end) == (True, False, end)
    assert find_telling("`{}`", 0, 1, 3).open
    assert find_telling("`{}`\n", 0, 1, 3) == (False, False, 0)
    assert not find_telling('Say "{}' + "x " * 80 + '"', 0, at, end).told
    assert find_telling("Say `{ and` so", 0, 5, 14, broken=True) == (True, False, 10)


def test_the_beginning_of_a_window_is_no_line():
    """A stream knows only the end of what has left; the complete answer sees the whole line."""
    line = "> " + "x" * 200

    assert is_block_quoted(line, 0, 50)
    assert is_block_quoted(line, 0, 200, whole=True)
    assert not is_block_quoted(line, 0, 200)
    assert is_block_quoted("a\n" + line, 0, 200)
    assert not is_block_quoted(">>>name", 0, 3)


def test_only_a_programming_language_makes_a_sample():
    """What stands before a call in a fence of calls is no code."""
    assert is_in_sample("```python\nx\n", 0, [], 12)
    assert not is_in_sample("```python\n\n# x\n", 0, [], 15)
    assert not is_in_sample("```python\nx\n", 0, [(10, 12)], 12)
    assert not is_in_sample("```json\nx\n", 0, [], 10)
    assert not is_in_sample("```python\nx\n```\n", 0, [], 16)
    assert not is_in_sample("<a>```python\nx</a>", 0, [(0, 18)], 18)


@pytest.mark.parametrize("kind", sorted(ALL))
@pytest.mark.parametrize(
    "lead",
    ['Let me open "a.txt" ', "Let me read `src/`: ", "I check “x”: ", "I'll do that. ", 'The 5" disk: ', "See (`a`): "],
)
def test_a_quotation_that_has_ended_tells_of_nothing(kind, lead):
    """Law: of calls behind a quotation on their line as many are made as behind a plain word."""
    calls = write("{}", kind) + write("{}", kind).replace("rm -rf ~", "echo \"x\" 'y' `z`")

    assert len(whole(lead + calls, BASH).calls) == len(whole("I will do it: " + calls, BASH).calls)


@pytest.mark.parametrize("kind", NOTATIONS)
@pytest.mark.parametrize("stray", ["The `foo' file", "The (“odd) file", 'The "x file', "The «that file"])
def test_a_mark_that_never_closes_hides_no_quotation(kind, stray):
    """Law: one pair that tells of a call decides, whatever another mark on the line may still become."""
    call = write("{}", kind)

    assert not whole(f"{stray} holds “{call}”, which I did not run.", BASH).calls


@pytest.mark.parametrize("kind", NOTATIONS)
@pytest.mark.parametrize("quotation", ['"{}"', "`{}`", "“{}”", "«{}»"])
def test_the_call_behind_a_quoted_one_is_made(kind, quotation):
    """Law: a told call ends before the next one begins."""
    if kind in LOSES_MARKS | REFUSED:
        return
    told = write(f"The file says {quotation} which I ignore.", kind)
    meant = write("{}", kind).replace("rm -rf ~", "ls")

    assert [call[1] for call in whole(f"{told}\n\n{meant}", BASH).calls] == [{"command": "ls"}]


FORMS = [
    "<tool_call>{json}</tool_call>",
    "<tool_call>{ ... }</tool_call>",
    '<tool_call>{"name": ..., "arguments": ...}</tool_call>',
    '<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>',
    '<tool_call>{"name": "function_name", "arguments": {"key": "value"}}</tool_call>',
    '<tool_call>{"name": "NAME", "arguments": {}}</tool_call>',
    "<function=NAME><parameter=KEY>VALUE</parameter></function>",
    "<tool_call><function=example_function_name><parameter=example_parameter_1>value_1</parameter></function></tool_call>",
    "<tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>",
    "<start_function_call>call:NAME{a:b}<end_function_call>",
    "[TOOL_CALLS][{...}]",
    "[TOOL_CALLS]NAME[ARGS]{...}",
    "<|tool_call|>{call}<|/tool_call|>",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "sentence", ["The format is {}.", "It writes {} here, and so on.", "- Qwen: {} (Hermes)\n- more"]
)
def test_the_form_of_a_call_in_a_sentence_is_prose(sentence, form):
    """Law: what has a stand-in for its name or its arguments, and names no declared tool, is told of where words stand
    before it on its line and text behind it: nobody could make that call. Streams agree."""
    text = sentence.replace("{}", form)
    told = settled(text, BASH, (1, 7, 50))
    assert told == ([], False, inked(text))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sentence", ["{}", "{} is it.", "I look.\n{}\nDone.", "I look: {}", "I look: {}\n"])
def test_a_form_that_may_be_meant_is_no_prose(sentence, form):
    """Law: in a line of its own, at the head or the end of one, a broken call is asked for again."""
    text = sentence.replace("{}", form)
    told = settled(text, BASH, (1, 7, 50))
    assert told.calls or told.refused


@pytest.mark.parametrize("sentence", ["Now {} runs, I think.", "I call {}."])
@pytest.mark.parametrize("kind", [kind for kind in NOTATIONS if kind not in REFUSED])
@pytest.mark.parametrize("arguments", [{"command": "echo {json}"}, {"command": "{...}"}, {"command": "NAME"}])
def test_a_declared_tool_in_a_sentence_is_called(sentence, kind, arguments):
    """Law: a call that names a declared tool is no form, whatever its arguments hold."""
    text = sentence.replace("{}", ALL[kind]("Bash", arguments).strip())
    plain = whole(sentence.replace("{}", ALL[kind]("Bash", {"command": "ls"}).strip()), BASH)
    found = whole(text, BASH)
    assert (bool(found.calls), found.refused) == (bool(plain.calls), plain.refused)


@pytest.mark.parametrize("kind", [kind for kind in NOTATIONS if kind not in REFUSED])
@pytest.mark.parametrize("value", ["ls", "{json}", "{...}", "name: ...", "function_name", '"name": ...', "{{x}}"])
def test_a_call_of_an_invented_tool_in_a_sentence_stays_one(kind, value):
    """Law: an invented name may be meant, whatever stands in its arguments."""
    for name in ("lookup", "GET_CWD"):
        found, plain = (
            extract_calls(f"Now I run {ALL[kind](name, {'command': text}).strip()} and look.", BASH)
            for text in (value, "ls")
        )
        assert (bool(found.calls), bool(found.malformed)) == (bool(plain.calls), bool(plain.malformed))


@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>{"name": "lookup", "arguments": {"ids": [1, ...]}}</tool_call>',
        '<tool_call>{"name": "Bash", "arguments": {...}}</tool_call>',
        '<tool_call>{"name": "NAME", "arguments": {"tool": "Bash"}}</tool_call>',
        "<tool_call>{x: 1}</tool_call>",
    ],
)
def test_a_call_that_is_half_a_form_is_asked_for_again(call):
    """Law: a name without its arguments, or a declared name anywhere, may be meant."""
    found = whole(f"Now I run {call} and look.", BASH)
    assert found.refused


@pytest.mark.parametrize("mark", ["`", "'", '"'])
@pytest.mark.parametrize("lead", ["", "So I call\n"])
def test_python_behind_a_mark_that_never_closes_is_no_call(mark, lead):
    """Law: what leaves a stream as text isn't called as well; a whole answer is read alike."""
    assert settled(f"{lead}{mark}search(query='x')", BOX).calls == []
