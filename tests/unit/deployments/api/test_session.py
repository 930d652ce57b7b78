"""The session's name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.session import SESSION_CHARS_MAX, SESSION_HEADERS, name_beginning, read_session
from tests.unit.deployments.api.test_openai_chat import HI

UUID = "0b9b1b8e-7b0e-4b3a-9d3e-2f6f1c2a4d5e"
# Header names and fields as the clients send them, in the order of trust.
SENT = [
    ({"X-MLX-Stack-Session": "own"}, {}, "own"),
    ({"thread-id": "codex-thread"}, {}, "codex-thread"),
    ({"conversation_id": "older-codex"}, {}, "older-codex"),
    ({"X-Claude-Code-Session-Id": "claude"}, {}, "claude"),
    ({"session-id": "codex"}, {}, "codex"),
    ({"session_id": "even-older-codex"}, {}, "even-older-codex"),
    ({"x-litellm-session-id": "openhands"}, {}, "openhands"),
    ({"x-opencode-session": "ses_1"}, {}, "ses_1"),
    ({"X-Session-Id": "opencode"}, {}, "opencode"),
    ({"x-session-affinity": "opencode-too"}, {}, "opencode-too"),
    ({}, {"conversation": {"id": "conv_1"}}, "conv_1"),
    ({}, {"metadata": {"session_id": "m"}}, "m"),
    ({}, {"prompt_cache_key": "k"}, "k"),
    ({}, {"metadata": {"user_id": f"user_abc_account__session_{UUID}"}}, UUID),
    ({}, {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": UUID})}}, UUID),
    ({}, {"user": "u"}, "u"),
]


@pytest.mark.parametrize(("headers", "body", "name"), SENT)
def test_a_session_is_read_wherever_a_client_names_it(headers, body, name):
    """Each of these names the session, however its header is spelled."""
    assert read_session(headers, body) == name
    assert read_session({each.upper(): value for each, value in headers.items()}, body) == name


def test_the_narrowest_name_counts():
    """What stands further up in the table goes before what stands further down: a header before the body, a thread
    before its session, this server's own header before all."""
    for at, (headers, body, name) in enumerate(SENT):
        below = SENT[at:]
        sent = {each: value for more, _, _ in reversed(below) for each, value in more.items()} | headers
        fields = {each: value for _, more, _ in reversed(below) for each, value in more.items()} | body
        assert read_session(sent, fields) == name


@pytest.mark.parametrize("nothing", ["", " ", "\t", "undefined", "null", "None", "[object Object]", 7, None, [], {}])
def test_a_name_that_says_nothing_is_passed_over(nothing):
    """A client that fills in nothing, or its language's word for nothing, names no session."""
    fields = {"prompt_cache_key": nothing, "conversation": nothing, "metadata": {"session_id": nothing}}
    headers = dict.fromkeys(SESSION_HEADERS, nothing) if isinstance(nothing, str) else {}

    assert read_session(headers, fields) is None
    assert read_session(headers, {**fields, "user": "u"}) == "u"


@given(
    st.dictionaries(
        st.sampled_from(["metadata", "user", "conversation", "prompt_cache_key"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=30),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "user_id", "session_id"]), inner)
            ),
            max_leaves=6,
        ),
    )
)
def test_no_body_breaks_the_reading(body):
    """Whatever stands in the fields, there is a name that fits a header, or none."""
    name = read_session({}, body)

    assert name is None or (0 < len(name) <= SESSION_CHARS_MAX and name.isascii() and name.isprintable())


@given(st.sampled_from(SESSION_HEADERS), st.text(max_size=600))
def test_a_session_s_name_is_fit_for_a_header(header, name):
    """Whatever a client calls its session, the name that goes back out is bounded printable ASCII."""
    out = read_session({header: name}, {})

    assert out is None or (0 < len(out) <= SESSION_CHARS_MAX and out.isascii() and out.isprintable())


def test_the_beginning_names_a_conversation_until_it_is_found():
    """Turns that are added don't change the name; another first message, system prompt or key does."""
    first = name_beginning({}, HI)
    later = [*HI, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}]

    assert name_beginning({}, later) == first
    assert name_beginning({}, [{"role": "system", "content": "s"}, *HI]) != first
    assert name_beginning({}, [{"role": "user", "content": "ho"}]) != first
    assert name_beginning({"authorization": "Bearer b"}, HI) != first
