"""Every name that a client may declare can be called, in every notation, whole and in pieces; and none of them makes a
call of prose."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request.attempt import record_attempt
from reliability.answer.judgement import expect
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import Event, Finish, FinishReason, Started, Text
from tests.support.readings import Reading, open_state
from tests.support.renderings import ALL, schema_of, tool

ARGUMENTS = {"item": "mail"}
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,63}", fullmatch=True)


def read(name: str, text: str, size: int) -> tuple[Reading, str]:
    """Read an answer in pieces, where a tool of this name is declared; return it, and the text that is delivered."""
    box = build_toolbox([tool(name, schema_of(ARGUMENTS)), tool("other", {"type": "object"})])
    expected = expect((), box, id_seed="r", checks=CheckConfig(placeholders=()), loops=LoopConfig())
    made = open_state(expected, 100_000)
    pieces = [Text(text[at : at + size]) for at in range(0, len(text), size)]
    out: list[Event] = []
    for event in (Started(), *pieces, Finish(reason=FinishReason.STOP)):
        out += made.take([event], 1)
    out += [*made.finish(), *made.judged.events]
    return made, "".join(event.text for event in out if isinstance(event, Text))


@pytest.mark.parametrize("kind", ALL)
@given(names, st.sampled_from([1, 3, 1_000]))
@example("1password_get_item", 3)
@example("21st_magic_component_builder", 1)
@example("42", 1_000)
@example("mcp/search", 3)
def test_each_name_can_be_called_in_each_notation(kind, name, size):
    """Law: a tool that may be declared may be called; nothing of its call is told as text."""
    made, told = read(name, ALL[kind](name, ARGUMENTS), size)
    assert record_attempt(made, 2).flaw is None
    assert [(call.name, json.loads(call.arguments)) for call in made.judged.calls] == [(name, ARGUMENTS)]
    assert not told.strip()


@pytest.mark.parametrize("name", ["3d_render", "2", "2024", "other_1"])
@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize(
    "text",
    [
        "1. First\n2. Second (see 2)\n3. Third",
        "In 2024 (a leap year) there were 2 of them.\n2 (two) is enough.",
        "2 + 2 = 4, f(2) = 3, and 2[0] is nothing.",
        "See [2] and [2024].\n\n[2]: https://example.org/2",
        'Version 2:\n{"size": 2, "year": 2024}',
        '[1]\n{"size": 2}',
        "Use `3d_render` for that, in <2> minutes.\n```\n2\n```",
        "2\n\n```json\n[2, 2024]\n```",
    ],
)
def test_figures_in_prose_are_no_calls(name, size, text):
    """Law: a text that calls nothing leaves as it came, though its figures are the name of a tool."""
    made, told = read(name, text, size)
    assert (told, made.judged.calls, made.judged.violations) == (text, (), ())
