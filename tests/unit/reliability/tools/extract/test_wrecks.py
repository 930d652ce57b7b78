"""The law of what was meant as a call: it is asked for again, never delivered as text; a sentence about a tool is."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.tool_calls import Uncertainty
from reliability.tools import extract_calls
from reliability.tools.extract.wrecks import KEYS_MAX, NAMES_MAX, find_names, is_wreck
from tests.support.call_values import made
from tests.support.renderings import ALL, tool
from tests.support.streaming import cut_at, play, whole

KEYS = {"path": {"type": "string"}, "n": {"type": "integer"}, "opts": {"type": "object"}}
BOX = made([tool("write_file", {"type": "object", "properties": KEYS}), tool("Bash", {"properties": {"command": {}}})])
GOOD = '{"name": "Bash", "arguments": {"command": "ls"}}'
WRECKS = [
    '{"name"": "write_file", "arguments": {"path": "a"}}', '{"name": write_file", "arguments": {"path": "a"}}',
    '{""tool": "write_file", "args": {"n": 1}}', '"name": "write_file", "arguments": {"path": "a"}}',
    '{"arguments" {"path": "a"}, "name": "write_file"}', '<functionwrite_file>{"path": "a"}</function>',
    '<function,write_file>{"path": "a"}</function>',
    '<invoke name>"write_file">\n<parameter name="path">a</parameter>\n</invoke>',
    '<invoke tool="write_file">\n<parameter name="path">a</parameter>\n</invoke>',
    "<python_tag|>write_file(path='a')", "<|python_tag|>write_file(path='a'), n=1)",
    'Action write_file\nAction Input: {"path": "a"}',
    '{“name”: “write_file”, “arguments”: {“path”: “a”}}',
    '<tool_use><name>write_file</name><args>{"n": 1}</args></tool_use>',
    '<tool_use>\n  <name>write_file</name>\n  <arguments>{"path": "a"}</arguments>\n</tool_use>',
    "<tool_use>\n<tool_name>write_file</tool_name>\n<parameters>\n<path>a</path>\n</parameters>\n</tool_use>",
    '&lt;tool_call&gt;{"name": "write_file", "arguments": {"path": "&lt;a"}}',
    "&lt;function=write_file&gt;\n&lt;parameter=path&gt;\na\n&lt;/parameter&gt;\n&lt;/function&gt;",
    '<write_file>{"path": "a"}',
    'assistantcommentary to"functions.write_file json{"path": "a"}',
    '**Action:** write_file\n**Action Input:** {"path": "a"}', "Action: write_file(path='a')",
    "```tool_code\nr = write_file(path='a')\nprint(r)\n```",
    "```tool_code\nfor p in 'ab':\n    write_file(path=p, n=1)\n```",
]  # fmt: skip


@pytest.mark.parametrize("wreck", WRECKS)
@pytest.mark.parametrize("frame", ["{}", "I write it.\n\n{}\n", "{}\n" + GOOD, GOOD + "\n{}", "```\n{}\n```"])
def test_what_was_meant_as_a_call_is_no_text(wreck, frame):
    """Law: alone, in prose, in a fence and beside a good call it is reported, whole and streamed."""
    text = frame.format(wreck) if "name" not in frame else frame.replace("{}", wreck)
    found = extract_calls(text, BOX)
    assert found.malformed, text
    assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in (1, 7, 1000))


@pytest.mark.parametrize("text", [
    "write_file(path: str, n: int = 1) writes a file.", "write_file(path: str, opts: dict)", "write_file(path)",
    "Use write_file(path='a') here.", 'The tool write_file takes "path": a string.',
    '"write_file" takes "path" and "n".', "- write_file: path, n and opts", "**write_file** (path, n): writes n lines.",
    "`write_file(path='a'))`", "Use `write_file` with path='a' if you like.",
    'Never write {"name"": "write_file", "arguments": {"path": "a"}} into a file.',
    '> {"name"": "write_file", "arguments": {"path": "a"}}', "write_file(path='a')\nis how one writes.",
    "In HTML `&lt;tool_call&gt;` opens a call.", "Write &lt;invoke name=...&gt; in the page.",
    '<write_file>{"title": "a"}</write_file>', "<write_file>{path}</write_file>", "<name>Bash</name> is a shell.",
    '{"tool": "write_file", "path": "a", "why": "it is data"}', "write_file", "Bash: command not found",
    "1. Bash(command=\"git status\")\n2. write_file(path='a', n=50)\n\nAll tests pass.",
    '● Bash(command: "git status")\n  ⎿  clean', "```toml\n[Bash]\ncommand = 30\n```",
    'tool: Bash\nargs:\n  command: "ls"', "| Bash | command: 3 |", 'tool=Bash command="ls" ms=12',
    'function Bash({command = "x"}) {', '### Bash\n\n- `command`: "x"', "write_file(path'a', opts={'c': x'})",
    'shell Bash {"command": ["ls"]}',
    "```python\nimport os\nwrite_file(path'a')\n```\nis wrong.",
])  # fmt: skip
def test_a_sentence_about_a_tool_is_text(text):
    """Law: words that no call has, quotation, code around it, and what a reader knows as data make it none."""
    assert extract_calls(text, BOX).malformed == ()
    assert extract_calls(text, BOX).text == text


@pytest.mark.parametrize("kind", list(ALL))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_whole_call_is_never_taken_for_one_in_pieces(kind, data):
    """Law: what a reader reads is what it says, beside any other notation."""
    other = data.draw(st.sampled_from([*ALL]))
    text = ALL[kind]("write_file", {"path": "a"}) + "\n\n" + ALL[other]("Bash", {"command": "ls"})
    assert all(one.format != "wreck" for one in extract_calls(text, BOX).malformed)


LOOSE = [
    'Calling write_file with {"path": "a"}', 'write_file: {"path": "a"}', '["write_file", {"n": 1}]',
    '**write_file**\n```json\n{"path": "a"}\n```', 'Tool: write_file\nInput: {"path": "a"}',
    'Function call: write_file\nArguments: {"n": 1}', '[Calling tool: write_file({"path": "a"})]',
    'await tools.write_file({"path": "a"})', "result = write_file(path='a')", "print(write_file(path='a'))",
    "```python\nresult: dict = await write_file(path='a')\nprint(result)\n```", "return write_file(path='a')",
    'const r = await write_file({path: "a"});', "r = write_file('a')\nprint(r['n'])", 'write_file(path: "a")',
    'Tool call: write_file(path="a")', '**write_file**(path="a")', 'write_file(path="a") -> 5', "write_file(n=1) → {}",
    "write_file(path='a')  # the first",
]  # fmt: skip


@pytest.mark.parametrize("text", LOOSE)
@pytest.mark.parametrize("thought", ["", "<think>Hm.</think>\n"])
def test_a_whole_answer_of_a_tool_and_its_arguments_is_asked_about(text, thought):
    """Law: it is no silent text, and may be the answer itself: whole and streamed. Beside other words, of a name that
    no tool has, with other arguments, or where JSON was asked for, it is."""
    (one,) = extract_calls(thought + text, BOX).malformed
    assert one.doubt is Uncertainty.SUSPECTED
    for size in (1, 7, 1000):
        assert play(cut_at(thought + text, [size]), BOX) == whole(thought + text, BOX)
    others = (f"So:\n{text}\nis how it goes.", text.replace("write_file", "write_book"))
    others += (text.replace('"path"', '"title"').replace('"n"', '"m"'),) if '{"' in text and "await" not in text else ()
    for data, box in (*((other, BOX) for other in others), (text, replace(BOX, wants_json=True))):
        found = extract_calls(data, box)
        assert (found.calls, found.malformed, found.text) == ((), (), data)


def test_names_are_found_from_behind_and_bounded():
    """The next to look at is the last; a text that holds nothing but names is bounded."""
    assert find_names("Bash write_file Bash", BOX, 1) == [(16, "Bash"), (5, "write_file")]
    assert len(find_names("Bash " * 2 * NAMES_MAX, BOX, 0)) == NAMES_MAX
    assert is_wreck('{"name"": "Bash", "input": {"command": "ls"}}', 0, 11, "Bash", BOX)


def test_a_tool_with_many_parameters_is_looked_at_by_the_first():
    """A client's schema may have any number of them."""
    keys = {f"key_{number}": {} for number in range(2 * KEYS_MAX)}
    box = made([tool("search", {"type": "object", "properties": keys})])
    found = [extract_calls(f'It is:\n{{"name"": "search", "args": {{"{key}": 1}}}}', box).malformed for key in keys]
    assert [bool(one) for one in found] == [True] * KEYS_MAX + [False] * KEYS_MAX


def test_long_names_of_parameters_cost_nothing():
    """Law: what isn't in the text is not made ready to be found, and not kept: 20 tools of 128 kB each."""
    keys = {f"{'key' * 667}{number}": {} for number in range(KEYS_MAX)}
    boxes = [made([tool(f"tool_{number}", {"properties": {**keys, f"p{number}": {}}})]) for number in range(20)]
    tracemalloc.start()
    wrecks = [is_wreck(f'tool_{n}({{"path": "a"', 0, 0, f"tool_{n}", box) for n, box in enumerate(boxes)]
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert not any(wrecks)
    assert kept_bytes < 100_000
