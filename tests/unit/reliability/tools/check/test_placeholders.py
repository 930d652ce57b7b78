"""Values that nobody means: placeholders, and calls that say nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.tool_calls import Uncertainty
from reliability.tools import CheckConfig, Flaws
from reliability.tools.check.placeholder_forms import split_words
from tests.evals.standins import HONEST, STANDINS, declare
from tests.support.call_values import made
from tests.support.checking import verdict
from tests.support.renderings import tool

TEXT = {"type": "string"}
KIND, HOST = {**TEXT, "enum": ["string", "TODO"]}, {**TEXT, "description": "such as example.com"}
QUERY = {"query": TEXT, "kind": KIND, "options": {"type": "object"}, "host": HOST}
SEARCH = made(
    [
        tool("search", {"properties": QUERY, "required": ["query"]}),
        tool("edit", {"properties": {"old": TEXT, "new": TEXT}, "required": ["old", "new"]}),
        tool("note", {"properties": {"text": {**TEXT, "description": "may be empty"}}, "required": ["text"]}),
    ]
)


def searched(arguments, conversation=None, name="search", **config):
    return verdict(arguments, name, SEARCH, CheckConfig(**config), conversation=conversation)


@pytest.mark.parametrize(
    "text", ["<your_query>", "<YOUR QUERY>", "<insert query here>", "<query>", "{{query}}", "[your query]"]
)
def test_placeholders_in_brackets_are_refused(text):
    """A bracketed stand-in is refused, wherever it stands, unless somebody said it."""
    assert searched({"query": text}).violations[0].path == "/0/arguments/query"
    assert searched({"query": text}, [f"please use {text} literally"]).ok
    nested = searched({"query": "x", "options": {"list": ["<your_list>"]}})
    assert nested.violations[0].path == "/0/arguments/options/list/0"
    assert nested.violations[0].kind is Flaws.PLACEHOLDER


@pytest.mark.parametrize("text", ["string", "query", "your query", "path/to/file", "YOUR_QUERY"])
def test_what_stands_in_without_brackets_counts_where_nobody_said_it(text):
    """It may be meant, so it only counts in a required text, against a known conversation that lacks it."""
    assert not searched({"query": text}, ["find me the tide tables"]).ok
    assert searched({"query": text}, [f"look for {text}, please"]).ok
    assert searched({"query": text}).ok
    assert searched({"query": "x", "host": text, "options": {"a": text}}, ["find me the tide tables"]).ok


@pytest.mark.parametrize("text", [
    "TODO", "example.com", "https://www.example.com/", "N/A", "unknown", "test", "none",
    "<div>", "a TODO list", "api.example.com/v1", "strings", "<b>your</b>", "x" * 500, "jane@example.com",
])  # fmt: skip
def test_no_word_is_a_placeholder_by_itself(text):
    """A word that says nothing of its argument is somebody's value, whoever has said it, and what only holds a
    placeholder passes: only the whole value counts."""
    assert searched({"query": text}, ["find me the tide tables"]).ok


@pytest.mark.parametrize("case", HONEST, ids=lambda case: f"{case[1]}={case[3]}"[:40])
def test_honest_values_are_accepted(case):
    """What looks like a placeholder is a value where it is at home, or was said."""
    assert judge_case(case).ok


@pytest.mark.parametrize("case", STANDINS, ids=lambda case: f"{case[1]}={case[3]}"[:40])
def test_stand_ins_are_convicted(case):
    """What only says what should stand there is refused, with its place."""
    (violation,) = judge_case(case).violations
    assert violation.kind is Flaws.PLACEHOLDER
    assert violation.path.startswith(f"/0/arguments/{case[1]}")


@pytest.mark.parametrize("case", STANDINS, ids=lambda case: f"{case[1]}={case[3]}"[:40])
def test_what_the_user_said_is_no_stand_in(case):
    """The same text is honest where the user wrote it."""
    said = case[3] if isinstance(case[3], str) else next(iter(getattr(case[3], "values", lambda: case[3])()))
    assert judge_case((*case[:4], f"Take {said} for it.")).ok


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=30))
def test_a_text_that_says_nothing_of_its_place_is_a_value(name, text, description):
    """Whatever the argument is called: a text without brackets that shares no word with it is accepted."""
    words = set(split_words(f"{name} {description}"))
    if words & set(split_words(text)) or any(sign in text for sign in "<[{%$") or not name.isalpha():
        return
    case = ("tool", name, {"type": "string", "description": description}, text + " 7 kg", "do it")
    assert judge_case(case).ok


def judge_case(case):
    name, key, _, value, said = case
    return verdict({key: value}, name, made([declare(case)]), conversation=[said])


def test_what_the_schema_mentions_is_no_placeholder():
    """An enum or a description that names the word makes it a value; the list is the user's."""
    assert searched({"query": "x", "kind": "TODO", "host": "example.com"}, ["nothing"]).ok
    assert searched({"query": "x", "kind": "string"}, ["nothing"]).ok
    assert searched({"query": "<your_query>"}, placeholders=()).ok
    assert not searched({"query": "??"}, ["nothing"], placeholders=("??",)).ok


def test_only_a_call_that_says_nothing_is_empty():
    """All required strings blank and nothing else given: refused. One blank among others is an edit that
    deletes."""
    assert searched({"query": " "}).violations[0].kind is Flaws.EMPTY
    both = searched({"old": "", "new": ""}, name="edit").violations
    assert [v.path for v in both] == ["/0/arguments/old", "/0/arguments/new"]
    assert searched({"old": "x", "new": ""}, name="edit").ok
    assert searched({"query": "", "options": {"a": 1}}).ok
    assert searched({"text": ""}, name="note").ok


def judged(name, key, value, said=None, **schema):
    parameters = {"properties": {key: {"type": "string", **schema}}, "required": [key]}
    conversation = None if said is None else [said]
    return verdict({key: value}, name, made([tool(name, parameters)]), conversation=conversation).violations


@pytest.mark.parametrize(("name", "key", "value", "schema"), [
    ("bash_input", "input", "\n", {"minLength": 1}), ("write_stdin", "chars", "\r\n", {}),
    ("split", "delimiter", "\t", {}), ("press_key", "key", " ", {}), ("keyboard", "text", " ", {}),
    ("join", "separator", " ", {}), ("pad", "character", "  ", {}), ("set_mode", "mode", " ", {"enum": [" ", "x"]}),
    ("set_mode", "mode", " ", {"default": " "}), ("set_mode", "mode", "", {"const": ""}),
    ("search", "query", "  ", None), ("get_weather", "city", " ", None), ("press_key", "key", "", None),
    ("join", "separator", "", None), ("fetch", "api_key", " ", None), ("ask", "input", " ", None),
    ("send_message", "text", " ", None), ("run_in_terminal", "command", " ", None),
])  # fmt: skip
def test_white_space_is_a_value_where_it_is_meant(name, key, value, schema):
    """Law: a tab and a line break say something; a space does where characters or keys are asked for, or the schema
    names it. Elsewhere (None) it says no more than nothing does."""
    found = judged(name, key, value, **schema or {})
    assert [one.kind for one in found] == ([Flaws.EMPTY] if schema is None else [])


NAMED = [
    "Your Song", "your first app", "Your orders", "Enter your email", "Your Library", "YOUR NAME",
    "Your Mother's Eyes",
]  # fmt: skip
PLACES = ["path", "slug", "key", "branch", "route", "filename", "component", "query", "title_id"]


def spell(title: str) -> list[str]:
    """Ways in which a title is written as a name."""
    words = title.replace("'", "").lower().split()
    stems = ["_".join(words), "-".join(words), "".join(map(str.title, words)), "_".join(words).upper()]
    return [frame.format(stem) for stem in stems for frame in ("{}", "{}.md", "/{}", "{}.tsx")]


@pytest.mark.parametrize("title", NAMED)
@pytest.mark.parametrize("key", PLACES)
def test_a_name_is_said_however_it_is_spelled(title, key):
    """Law: what the conversation says with spaces is no stand-in as a file, a slug or a key; where nobody said it, it
    is only suspected. What asks for the argument itself or stands in brackets is plain, and with both certain."""
    for value in spell(title):
        for said in (title, f"Write the page for '{title.upper()}', please.", f"It is\n# {title}\nby name."):
            assert not judged("make_thing", key, value, said), (value, said)
        assert all(one.doubt is Uncertainty.SUSPECTED for one in judged("make_thing", key, value, "Write it.")), value
    for value in (f"your_{key}", f"YOUR_{key}".upper(), f"<your {key}>", "[your thing]", f"<{key}>"):
        doubts = [one.doubt for one in judged("make_thing", key, value, "Write your page.")]
        assert Uncertainty.SUSPECTED not in doubts, value
        assert value != f"<your {key}>" or doubts == [None]
        assert value != "[your thing]" or doubts == [Uncertainty.PLAIN]


@pytest.mark.parametrize(("about", "asked"), [
    ('List a folder. Specify the root folder as an empty string rather than as "/".', False),
    ("Sets the status; leave it empty to clear it.", False), ("Leave text blank to remove it.", False),
    ("An empty query lists all.", False), ("The text must be a non-empty string.", True),
    ("It must not be an empty string.", True), ("Empties the bin.", True), ("", True),
])  # fmt: skip
def test_a_tool_that_takes_an_empty_text_says_so(about, asked):
    """Law: where the tool's own description takes an empty text, none is asked about; else it is suspected."""
    declared = tool("make_thing", {"properties": {"text": {"type": "string"}}, "required": ["text"]})
    declared["function"]["description"] = about
    found = verdict({"text": ""}, "make_thing", made([declared])).violations
    assert [(one.kind, one.doubt) for one in found] == [(Flaws.EMPTY, Uncertainty.SUSPECTED)] * asked
