"""Names that mean a declared tool without a guess, and names that don't."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.tools import RawCall, check_calls, extract_calls
from reliability.tools.schema.tool_names import ToolNames
from tests.support.call_values import IDS, made
from tests.support.renderings import tool
from tests.support.streaming import cut_at, inked, play

GITHUB = "mcp__github__create_issue"
WORDS = ["get", "weather", "math", "gcd", "issue", "v2", "http", "list"]
CALLED = ["web.search", "web__search", "functions.web_search", "webSearch", "tools.web.search"]
FOLDED = ["Web-Search", "WEB_SEARCH"]
SEPARATORS = ["_", "__", ".", "-", ":", "/", "::"]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)


def spelled(parts: list[str], separator: str, style: int) -> str:
    """A name of these words in one of the ways in which models write one."""
    if style == 1 and len(parts) > 1:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    name = separator.join(parts)
    return name.upper() if style == 2 else name


@given(words, st.sampled_from(SEPARATORS), st.sampled_from(SEPARATORS), st.integers(0, 2), st.integers(0, 2))
def test_what_stands_between_the_words_of_a_name_says_nothing(parts, declared, called, style, other):
    """However its words are joined, and with capitals or without, one declared name is meant."""
    name = spelled(parts, declared, style)
    assert ToolNames((name, "other_tool")).find(spelled(parts, called, other)) == name


@pytest.mark.parametrize(("declared", "called"), [
    ("math_gcd", "math.gcd"), ("math_gcd", "math__gcd"), ("math_gcd", "functions.math_gcd"),
    ("math_gcd", "functions.math.gcd"), ("math_gcd", "functions_math_gcd"), ("math_gcd", "default_api.math_gcd"),
    ("math_gcd", "default_api:math_gcd"), ("math_gcd", "tools.math_gcd"), ("math_gcd", "tool__math_gcd"),
    ("math_gcd", "MathGcd"), ("math.gcd", "math_gcd"), ("math.gcd", "gcd"), ("math_gcd", "mcp__calculator__math_gcd"),
    ("math_gcd", "mcp_calculator_math_gcd"), ("math_gcd", "mcp.calculator.math_gcd"),
    ("calculator_gcd", "mcp__calculator__gcd"), (GITHUB, "mcp.github.create_issue"),
    (GITHUB, "mcp_github_create_issue"), (GITHUB, "github.create_issue"), (GITHUB, "github__create_issue"),
    (GITHUB, "github_create_issue"), (GITHUB, "create_issue"), (GITHUB, "functions.create_issue"),
    (GITHUB, "createIssue"), ("HTTPServer_get", "http_server_get"),
])  # fmt: skip
def test_a_name_in_another_spelling_or_namespace_is_meant(declared, called):
    """The name that is delivered is the client's, and the change is recorded."""
    box = made([tool(declared, {}), tool("search", {})])
    text = f'<tool_call>{{"name": "{called}", "arguments": {{}}}}</tool_call>'
    verdict = check_calls(extract_calls(text, box).calls, box, new_id=IDS)
    assert [call.name for call in verdict.calls] == [declared]
    assert [(repair.kind, repair.path) for repair in verdict.repairs] == [("name", "/0/name")]


@pytest.mark.parametrize(("declared", "called"), [
    (["a.search", "b.search"], "search"), (["a__search", "b__search"], "functions.search"),
    (["math.gcd", "math__gcd"], "math_gcd"), (["getItem", "get_item"], "get.item"),
    (["Read-File", "read_file"], "READ_FILE"),
    (["mcp__github__search", "mcp__jira__search"], "mcp__gitlab__search"),
    (["math_gcd"], "gcd"), (["gcd"], "math.gcd"), (["math_gcd"], "mathgcd"), (["math_gcd"], "math_gcd_v2"),
    (["math_gcd"], "do_math_gcd"), (["math_gcd"], "math_lcm"), (["remove"], "os.remove"),
    (["mcp__github__search"], "mcp__jira__search"), (["search"], "functions."), (["search"], "mcp__"), (["search"], ""),
    (["run_c"], "run_c++"), ([], "functions.search"), (["web.search", "github_search"], "search"),
    (["mcp__web__search", "githubSearch"], "functions.search"), (["mcp__a__get_item", "b_get_item"], "get-item"),
    (["a.b.search", "c_b_search"], "b.search"),
])  # fmt: skip
def test_what_would_be_a_guess_is_not_meant(declared, called):
    """Several that fit, another word, another namespace: the model is asked again."""
    box = made([tool(name, {}) for name in declared])
    assert box.find(called) is None


@pytest.mark.parametrize("other", ["github_find", "search_github", "research", "mcp__github__code_search"])
def test_a_name_without_its_namespace_is_meant_where_no_other_tool_ends_with_it(other):
    """Law: words that follow others in a name of its own, or behind another namespace, are no namespace and a name."""
    assert ToolNames(("web.search", other)).find("search") == "web.search"


@pytest.mark.parametrize("called", [
    "functions.search:0", "search<|channel|>commentary", " search\n", "`search`", '"search"', "search()", "SEARCH:12",
    "search.call", "web\\_find",
])  # fmt: skip
def test_what_is_left_on_a_native_name_is_taken_off(called):
    """A special token, an index, quotes, brackets, Markdown's escapes and the `.call` of Llama's tools are no name."""
    raw = RawCall(name=called, arguments="{}")
    verdict = check_calls([raw], made([tool("search", {}), tool("web_find", {})]), new_id=IDS)
    assert [call.name for call in verdict.calls] == ["web_find" if "web" in called else "search"]
    assert [repair.kind for repair in verdict.repairs] == ["name"]


def test_who_might_be_meant_is_said():
    """A name that several tools answer to is asked for again with all of them."""
    box = made([tool("a.search", {}), tool("b.search", {}), tool("c.find", {})])
    text = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    (violation,) = check_calls(extract_calls(text, box).calls, box, new_id=IDS).violations
    assert violation.message == "'search' may be any of several tools: call 'a.search' or 'b.search'"


@given(st.lists(st.text(alphabet="ab_.:/-A", min_size=1, max_size=8), min_size=1, max_size=4, unique=True))
def test_a_declared_name_means_itself(names):
    """Whatever else is declared, an exact name is exact."""
    index = ToolNames(tuple(names))
    assert [index.find(name) for name in names] == names


@given(
    words, st.sampled_from(SEPARATORS), st.integers(0, 2), st.sampled_from(["", "functions.", "mcp__srv__", "tools."])
)
def test_every_beginning_of_a_meant_name_may_become_it(parts, separator, style, before):
    """The gate lets no beginning of a name leave that the complete answer has as a call's."""
    index = ToolNames(("_".join(parts),))
    called = before + spelled(parts, separator, style)
    assert index.find(called) is not None
    assert all(index.may_become(called[:end]) for end in range(1, len(called) + 1))


FORMS = [
    "{0}(query='x')", '[{0}(query="x")]', '{0}\n{{"query": "x"}}',
    '{{"name": "{0}", "arguments": {{"query": "x"}}}}',
    "<function={0}><parameter=query>x</parameter></function>",
    '<invoke name="{0}"><parameter name="query">x</parameter></invoke>',
    '<tool_call>{{"name": "{0}", "arguments": {{"query": "x"}}}}</tool_call>', '{0}[ARGS]{{"query": "x"}}',
    'Action: {0}\nAction Input: {{"query": "x"}}',
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("called", [*CALLED, *FOLDED])
@pytest.mark.parametrize("before", ["", "I will look.\n", "I will look. "])
def test_a_name_in_another_spelling_is_held_in_a_stream(form, called, before):
    """In whatever pieces it comes, the call is delivered under its declared name, and none of it leaves as text."""
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    text = before + form.format(called)
    if before.endswith(" ") and form.startswith(("{0}(", "{0}\n", "Action", *["{0}"] * (called in FOLDED))):
        return  # a call that begins a line; behind a sentence a word counts to the letter
    box = made([tool("web_search", parameters)])
    for size in (1, 3, 8, len(text)):
        assert play(cut_at(text, [size]), box) == ([("web_search", {"query": "x"})], False, inked(before))


@pytest.mark.parametrize("prefix", ["", "functions.", "tools.", "default_api.", "functions::", "function/"])
def test_a_namespace_that_says_nothing_leaves_a_name_exact(prefix):
    """Law: next to a tool that is spelled nearly alike, the one to the letter is meant."""
    names = ToolNames(("get-user", "get_user", "Search", "search"))
    for name in ("get-user", "get_user", "Search", "search"):
        assert names.find(prefix + name) == name
    assert names.find(prefix + "SEARCH") is None
