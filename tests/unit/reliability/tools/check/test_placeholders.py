"""Values that nobody means: placeholders, and calls that say nothing."""

from __future__ import annotations

import pytest

from reliability.tools import CheckConfig, Flaws
from tests.support.call_values import made
from tests.support.checking import verdict
from tests.support.renderings import tool

SEARCH = made(
    [
        tool(
            "search",
            {
                "properties": {
                    "query": {"type": "string"},
                    "kind": {"type": "string", "enum": ["string", "TODO"]},
                    "options": {"type": "object"},
                    "host": {"type": "string", "description": "such as example.com"},
                },
                "required": ["query"],
            },
        ),
        tool(
            "edit",
            {
                "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                "required": ["old", "new"],
            },
        ),
        tool(
            "note",
            {"properties": {"text": {"type": "string", "description": "may be empty"}}, "required": ["text"]},
        ),
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


@pytest.mark.parametrize("text", ["string", "TODO", "example.com", "https://www.example.com/"])
def test_plain_words_are_placeholders_only_if_nobody_said_them(text):
    """A word that may be meant counts only against a known conversation that lacks it."""
    assert not searched({"query": text}, ["find me the tide tables"]).ok
    assert searched({"query": text}, ["look for every string, todo and example.com"]).ok
    assert searched({"query": text}).ok


@pytest.mark.parametrize(
    "text",
    ["<div>", "a TODO list", "api.example.com/v1", "strings", "<b>your</b>", "x" * 500, "jane@example.com"],
)
def test_real_values_are_no_placeholders(text):
    """Only the whole value counts; what only holds such a word passes."""
    assert searched({"query": text}, ["nothing of it"]).ok


def test_what_the_schema_mentions_is_no_placeholder():
    """An enum or a description that names the word makes it a value; the list is the user's."""
    assert searched({"query": "x", "kind": "TODO", "host": "example.com"}, ["nothing"]).ok
    assert searched({"query": "<your_query>"}, placeholders=()).ok
    assert not searched({"query": "??"}, ["nothing"], placeholders=("??",)).ok


def test_only_a_call_that_says_nothing_is_empty():
    """All required strings blank and nothing else given: refused. One blank among others is an edit that
    deletes."""
    assert searched({"query": " "}).violations[0].kind is Flaws.EMPTY
    assert [v.path for v in searched({"old": "", "new": ""}, name="edit").violations] == [
        "/0/arguments/old",
        "/0/arguments/new",
    ]
    assert searched({"old": "x", "new": ""}, name="edit").ok
    assert searched({"query": "", "options": {"a": 1}}).ok
    assert searched({"text": ""}, name="note").ok
