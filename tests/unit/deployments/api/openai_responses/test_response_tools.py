"""Tools and the choice among them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses.response_tools import join_namespace, read_tools
from tests.support.refusing import refusal_of

F: dict[str, Any] = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
F |= {"strict": True}
C: dict[str, Any] = {"type": "custom", "name": "c", "description": "d"}
SEARCH = {"type": "web_search_preview_2025_03_11"}
NAMED = {"type": "function", "function": {"name": "f"}}


def test_a_function_is_nested():
    """The flat form becomes that of chat completions."""
    read = read_tools([F], None)

    assert read.tools == [{"type": "function", "function": {key: value for key, value in F.items() if key != "type"}}]


def test_a_custom_tool_takes_one_text():
    """Its grammar is shown, and a note says that it isn't enforced."""
    form = {"type": "grammar", "syntax": "lark", "definition": "start: A"}
    read = read_tools([C | {"format": form}], None)
    function = read.tools[0]["function"]

    assert function["parameters"]["required"] == ["input"]
    assert "start: A" in function["description"]
    assert read.custom == {"c"}
    assert "isn't enforced" in read.notes[0]


def test_what_codex_declares_is_kept_out():
    """Tools that this server doesn't have are no error where every request declares them; the places of the others are
    known."""
    read = read_tools([SEARCH, {"type": "namespace", "name": "n"}, {"type": "image_generation"}, F], None)

    assert read.places == ("3",)
    assert "web_search_preview_2025_03_11, namespace n, image_generation" in read.notes[0]


@pytest.mark.parametrize("namespace", ["mcp__s", "mcp__s__"])
def test_tools_of_a_namespace_are_shown(namespace):
    """Law: the model is shown each tool of a namespace, by both names, and may be forced to call it: Codex declares the
    tools of its MCP servers and its helpers so, and had none of them."""
    read = read_tools(
        [C, {"type": "namespace", "name": namespace, "description": "d", "tools": [F, C, SEARCH]}],
        {"type": "function", "namespace": namespace, "name": "f"},
    )

    assert [tool["function"]["name"] for tool in read.tools] == ["c", "mcp__s__f", "mcp__s__c"]
    assert read.places == ("0", "1.tools.0", "1.tools.1")
    assert read.custom == {"c", "mcp__s__c"}
    assert read.namespaces == {"mcp__s__f": (namespace, "f"), "mcp__s__c": (namespace, "c")}
    assert read.choice == {"type": "function", "function": {"name": "mcp__s__f"}}


@given(st.lists(st.text("ab_", min_size=1, max_size=60), min_size=2, max_size=2), st.sampled_from([0, 20, 60]))
def test_no_joined_name_is_too_long(names, begin):
    """Law: OpenAI's API refuses names of more than 64 characters, so a longer one is shown shorter, always the same:
    its calls, its history and a choice of it are read as before, and no two tools have one name."""
    namespace, tools = "n" * begin + "__s", {"t" * begin + name for name in names}
    declared = [F | {"name": name} for name in tools]
    space = {"type": "namespace", "name": namespace, "tools": declared}
    read = read_tools([space], F | {"namespace": namespace, "name": min(tools)})
    shown = [tool["function"]["name"] for tool in read.tools]

    assert all(len(name) <= 64 for name in shown)
    assert {read.namespaces[name] for name in shown} == {(namespace, name) for name in tools}
    assert read.choice == {"type": "function", "function": {"name": join_namespace(namespace, min(tools))}}


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        (None, None),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, NAMED),
        ({"type": "custom", "name": "c"}, {"type": "function", "function": {"name": "c"}}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, SEARCH]},
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [SEARCH]}, "none"),
    ],
)
def test_a_choice_is_that_of_a_chat(choice, read):
    """Each form of the API has its form there."""
    assert read_tools([F, C, SEARCH], choice).choice == read


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        *((one, "tool_choice") for one in ("any", 3)),
        *((one, "tool_choice.type") for one in ({}, {"type": "web_search"}, {"type": "mcp"})),
        *((one, "tool_choice.name") for one in ({"type": "function", "name": "x"}, {"type": "function"})),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "x", "tools": []}, "tool_choice.mode"),
        ({"type": "allowed_tools", "tools": [3]}, "tool_choice.tools.0"),
        ({"type": "allowed_tools", "tools": [{"type": "mcp"}]}, "tool_choice.tools.0.type"),
        ({"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}, "tool_choice.tools"),
    ],
)
def test_a_choice_that_cannot_be_had_is_refused(choice, param):
    """A tool that the model isn't shown can't be forced, and nothing where all that is declared was kept from it."""
    assert refusal_of(read_tools, [F, SEARCH], choice).param == param
    assert "none of the declared tools" in refusal_of(read_tools, [SEARCH], "required").message


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({}, "tools.0.type"),
        ({"type": "function"}, "tools.0.name"),
        ({"type": "function", "function": {"name": "f"}}, "tools.0.name"),
        (F | {"description": 3}, "tools.0.description"),
        (F | {"strict": "yes"}, "tools.0.strict"),
        (C | {"description": 3}, "tools.0.description"),
        (C | {"format": 3}, "tools.0.format"),
        (C | {"format": {"type": "x"}}, "tools.0.format.type"),
        (C | {"format": {"type": "grammar", "definition": 3}}, "tools.0.format.definition"),
        (C | {"format": {"type": "grammar", "definition": "x", "syntax": "y"}}, "tools.0.format.syntax"),
        ({"type": "namespace", "name": "n", "tools": [F, 3]}, "tools.0.tools.1"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "function"}]}, "tools.0.tools.0.name"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "x"}]}, "tools.0.tools.0.type"),
        ({"type": "namespace", "tools": [F]}, "tools.0.name"),
    ],
)
def test_a_wrong_tool_is_named_by_its_path(tool, param):
    """The path is that in the client's list."""
    assert refusal_of(read_tools, [tool], None).param == param


@pytest.mark.parametrize("kind", ["file_search", "code_interpreter", "mcp", "computer", "local_shell", "x"])
def test_a_tool_of_the_servers_own_is_refused(kind):
    """Whoever declares it counts on it; the error names it."""
    refused = refusal_of(read_tools, [F, {"type": kind}], None)
    assert (refused.code, refused.param, kind in refused.message) == ("unsupported", "tools.1.type", True)
