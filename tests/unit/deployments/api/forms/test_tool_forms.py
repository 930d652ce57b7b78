"""Tools that another server runs are named in one bounded note, in each dialect."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from deployments.api.anthropic import message_tools
from deployments.api.forms.tool_forms import leave_out_served
from deployments.api.openai_responses import response_tools

FUNCTION = {"name": "f", "input_schema": {"type": "object"}}
Tools = Sequence[Mapping[str, Any]]
READERS: dict[str, Callable[[Tools], Sequence[str]]] = {
    "chat": lambda tools: leave_out_served([*tools, FUNCTION])[1],
    "messages": lambda tools: message_tools.read_message_tools([*tools, FUNCTION], ()).notes,
    "responses": lambda tools: response_tools.read_tools([*tools, {"type": "function", "name": "f"}], None).notes,
}
LONG = "x" * 100_000


@pytest.mark.parametrize("dialect", READERS)
@pytest.mark.parametrize(
    "tools",
    [
        [{"type": f"web_search_{LONG}"}],
        [{"type": f"web_search_{LONG}", "name": LONG}],
        [{"type": f"web_search_{number}", "name": f"n{number}"} for number in range(400)],
        [{"type": "web_search", "name": LONG}] * 400,
    ],
)
def test_a_note_is_bounded_however_long_and_many_the_kinds_are(dialect: str, tools: Tools) -> None:
    """Law: each kind is cut, eight are named, and of the others the number is told."""
    (note,) = READERS[dialect](tools)

    assert len(note) < 700
    assert "web_search" in note


@pytest.mark.parametrize("dialect", READERS)
def test_few_kinds_are_all_named(dialect: str) -> None:
    """Counter-case: what stands in real requests is named in full, each once."""
    (note,) = READERS[dialect]([{"type": kind} for kind in ("web_search", "image_generation", "web_search")])

    assert note.endswith(": web_search, image_generation")
