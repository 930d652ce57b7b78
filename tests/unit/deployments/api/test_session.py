"""The session's name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.api.session import SESSION_CHARS_MAX, session_of
from tests.unit.deployments.api.test_openai_chat import HI


def test_the_session_is_named_in_the_order_of_trust():
    """Header, then what the body carries, then the conversation itself."""
    body = {"metadata": {"session_id": "m"}, "prompt_cache_key": "k", "user": "u"}

    assert session_of({"x-mlx-stack-session": "h", "x-session-id": "x"}, body, HI) == "h"
    assert session_of({"x-session-id": "x"}, body, HI) == "x"
    assert session_of({}, body, HI) == "m"
    assert session_of({}, {"prompt_cache_key": "k", "user": "u"}, HI) == "k"
    assert session_of({}, {"user": "u"}, HI) == "u"


def test_a_growing_conversation_keeps_its_session():
    """Turns that are added don't change the name; another first message, system prompt or key does."""
    first = session_of({}, {}, HI)
    later = [*HI, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}]

    assert session_of({}, {}, later) == first
    assert session_of({}, {}, [{"role": "system", "content": "s"}, *HI]) != first
    assert session_of({}, {}, [{"role": "user", "content": "ho"}]) != first
    assert session_of({"authorization": "Bearer b"}, {}, HI) != first


@given(st.text(max_size=600))
def test_a_session_s_name_is_fit_for_a_header(name):
    """Whatever a client calls its session, the name that goes back out is bounded printable ASCII."""
    out = session_of({"x-mlx-stack-session": name}, {}, HI)

    assert 0 < len(out) <= SESSION_CHARS_MAX
    assert out.isascii()
    assert out.isprintable()
