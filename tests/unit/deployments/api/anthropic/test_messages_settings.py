"""What a request asks for besides an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_settings import NOTES_MAX, read_format, read_thinking, write_notes
from deployments.errors import ApiError

SCHEMA = {"type": "object"}
FORM = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(("config", "older"), [({"format": FORM}, None), ({"effort": "low"}, FORM), (None, FORM)])
def test_a_form_is_a_response_format(config: Any, older: Any):
    """In its place of today and in its older one."""
    form = read_format(config, older)

    assert form is not None
    assert (form["type"], form["json_schema"]["schema"]) == ("json_schema", SCHEMA)


@pytest.mark.parametrize(
    ("config", "param"),
    [
        ({"format": "json"}, "output_config.format.type"),
        ({"format": {"type": "json_schema"}}, "output_config.format.schema"),
        ({"speed": 1}, "output_config.speed"),
    ],
)
def test_another_form_is_refused(config: Any, param: str):
    """By the field."""
    with pytest.raises(ApiError) as refused:
        read_format(config, None)

    assert refused.value.param == param


@given(st.dictionaries(st.text(max_size=200), st.just({}), max_size=40))
def test_notes_are_bounded(fields: dict[str, Any]):
    """However many unknown fields a body has, and however long their names."""
    notes = write_notes(fields, ())

    assert len(notes) <= NOTES_MAX
    assert all(len(note) <= 100 for note in notes)


def test_an_edit_that_changes_the_answer_is_refused():
    """Clearing the prompt has no effect, and says so; condensing it would bring something else back."""
    clear = {"edits": [{"type": "clear_tool_uses_20250919"}]}

    assert write_notes({"context_management": clear}, {"context_management"}) == (
        "context_management: clear_tool_uses_20250919 has no effect here",
    )
    for edits in ([{"type": "compact_20260112"}], [{}], [5]):
        with pytest.raises(ApiError, match=r"^context_management\.edits\.0\.type: "):
            write_notes({"context_management": {"edits": edits}}, ())


def test_an_unknown_kind_of_thinking_is_refused():
    """By the field."""
    with pytest.raises(ApiError, match=r"^thinking\.type: "):
        read_thinking({"type": "auto"})
