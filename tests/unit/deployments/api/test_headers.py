"""The terms that a client sets by header."""

import contextlib
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.headers import (
    SESSION_CHARS_MAX,
    SESSION_HEADERS,
    deadline_of,
    find_session,
    is_local_only,
    may_keep,
    name_beginning,
    split_helper,
)
from deployments.api.openai_chat import parse_chat
from deployments.api.openai_responses.response_body import parse_response
from deployments.errors import ApiError
from tests.support.refusing import refusal_of

MOST_S = 600.0
WRONG = ["", "9" * 10_000, "inf", "-inf", "Infinity", "nan", "1e400", "-1", "0", "0.0", "1e99", "abc", "1_0"]
WRONG += ["0x10", "٣", "1e", "."]


def session_of(headers: dict[str, str], body: dict[str, Any]) -> str | None:
    """The name alone."""
    return find_session(headers, body)[0]


@pytest.mark.parametrize("text", WRONG)
def test_a_deadline_that_is_no_number_of_seconds_is_refused(text):
    """What no clock can hold, what isn't a number and what has passed already: a 400 that names the header."""
    caught = refusal_of(deadline_of, {"x-mlx-stack-deadline": text}, MOST_S)
    assert (caught.status, caught.param) == (400, "X-MLX-Stack-Deadline")


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), (" 0.5 ", 0.5), (".5", 0.5), ("1e2", 100.0), ("+7.", 7.0), ("86400", MOST_S)]
)
def test_a_deadline_is_what_the_client_says_within_the_servers(text, seconds):
    """At most the server's own."""
    assert deadline_of({"x-mlx-stack-deadline": text}, MOST_S) == seconds


@given(st.text(max_size=40) | st.from_regex(r"[-+0-9.eE_ infa]{0,40}", fullmatch=True))
def test_whatever_stands_in_the_header_is_a_deadline_or_refused(text):
    """Nothing else comes of it."""
    with contextlib.suppress(ApiError):
        assert 0 < deadline_of({"x-mlx-stack-deadline": text}, MOST_S) <= MOST_S


@pytest.mark.parametrize(
    ("sent", "stays"),
    [
        ([], False),
        (["0"], False),
        (["yes"], True),
        (["false", "true"], True),
        (["false, true"], True),
        (["no", ""], False),
    ],
)
def test_a_request_stays_where_any_of_its_headers_says_so(sent, stays):
    """Law: a header that is sent twice keeps the request here where one of them does; a typing error is refused."""
    raw = [(b"x-mlx-stack-local-only", text.encode()) for text in sent]

    assert is_local_only(Headers(raw=raw)) is stays
    with pytest.raises(ApiError):
        is_local_only(Headers(raw=[*raw, (b"x-mlx-stack-local-only", b"ture")]))


FIELDS = ["prompt_cache_retention", "store", "cache_prompt"]
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), st.lists, max_leaves=3)
HI = [{"role": "user", "content": "hi"}]


@given(st.dictionaries(st.text(max_size=15), st.text(max_size=9)), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_request_says_one_or_the_other(headers: dict[str, str], body: dict[str, Any]) -> None:
    """Law: whatever is sent, there is an answer."""
    assert may_keep(headers, body) in (True, False)


@pytest.mark.parametrize(
    ("headers", "body", "kept"),
    [
        *(({}, body, True) for body in ({}, {"store": None}, {"store": True})),
        *(({}, body, False) for body in ({"store": False}, {"cache_prompt": False})),
        ({}, {"prompt_cache_retention": "in_memory"}, False),
        ({}, {"prompt_cache_retention": "in-memory", "store": True}, False),
        ({}, {"prompt_cache_retention": "24h", "store": False}, True),
        ({"Cache-Control": "no-cache, No-Store"}, {}, False),
        ({"cache-control": "no-cache"}, {}, True),
    ],
)
def test_what_is_said_counts(headers: dict[str, str], body: dict[str, Any], kept: bool) -> None:
    """Law: a request that says nothing may be kept; each way to refuse counts; the retention has the last word."""
    assert may_keep(headers, body) is kept


@pytest.mark.parametrize("fields", [{}, {"store": False}, {"prompt_cache_retention": "in_memory"}])
def test_every_dialect_is_heard(fields: dict[str, Any]) -> None:
    """Law: what a body or a header says reaches the tier's request in each dialect that has the field."""
    known: dict[str, Any] = {"request_id": "r", "tokens_max": 10, "timeout_s": 1.0}
    chat = parse_chat(orjson.dumps({"messages": HI, **fields}), {}, **known)
    response = parse_response(orjson.dumps({"input": "hi", **fields}), {}, **known)
    assert {chat.request.keep, response.request.keep} == {not fields}
    raw = orjson.dumps({"model": "m", "max_tokens": 5, "messages": HI})
    headers = {"cache-control": "no-store"} if fields else {}
    assert parse_messages(raw, headers, **known).request.keep is not bool(fields)


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
    """Each of these names the session, however its header is spelled. Law: a user's and a prompt's name may be that of
    many tasks; a session's, also in a user's name, isn't."""
    for sent in (headers, {each.upper(): value for each, value in headers.items()}):
        assert find_session(sent, body) == (name, name in ("k", "u"))
    assert find_session({"session_id": "s"}, body)[1] is False
    for user in ("u-77", '{"device_id": "d"}'):
        assert find_session({}, {"metadata": {"user_id": user}}) == (user, True)


def test_the_narrowest_name_counts():
    """What stands further up in the table goes before what stands further down: a header before the body, a thread
    before its session, this server's own header before all."""
    for at, (headers, body, name) in enumerate(SENT):
        below = SENT[at:]
        sent = {each: value for more, _, _ in reversed(below) for each, value in more.items()} | headers
        fields = {each: value for _, more, _ in reversed(below) for each, value in more.items()} | body
        assert session_of(sent, fields) == name


@pytest.mark.parametrize("nothing", ["", " ", "\t", "undefined", "null", "None", "[object Object]", 7, None, [], {}])
def test_a_name_that_says_nothing_is_passed_over(nothing):
    """A client that fills in nothing, or its language's word for nothing, names no session."""
    fields = {"prompt_cache_key": nothing, "conversation": nothing, "metadata": {"session_id": nothing}}
    headers = dict.fromkeys(SESSION_HEADERS, nothing) if isinstance(nothing, str) else {}

    assert session_of(headers, fields) is None
    assert session_of(headers, {**fields, "user": "u"}) == "u"


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
    name = session_of({}, body)

    assert name is None or (0 < len(name) <= SESSION_CHARS_MAX and name.isascii() and name.isprintable())


@pytest.mark.parametrize(
    ("sent", "own", "parent"),
    [
        ({}, "main", ""),
        ({"x-claude-code-agent-id": "a1"}, "main.a1", "main"),
        ({"x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}, "main.a2", "main"),
        ({"x-claude-code-agent-id": " "}, "main", ""),
        ({"x-claude-code-agent-id": "a1", "x-mlx-stack-session": "main"}, "main.a1", "main"),
        ({"x-parent-session-id": "ses_parent"}, "main", "ses_parent"),
        ({"x-parent-session-id": "main"}, "main", ""),
        ({"x-parent-session-id": "ses_parent", "x-mlx-stack-session": "main"}, "main", ""),
        ({"x-codex-parent-thread-id": "first"}, "main", "first"),
        ({"x-codex-parent-thread-id": "second", "session-id": "first"}, "main", "first"),
        ({"session-id": "first"}, "main", ""),
    ],
)
def test_a_helper_has_a_session_of_its_own_below_its_agent_s(sent, own, parent):
    """The headers that Claude Code, opencode and Codex send for a helper name it and the session above, and helpers of
    helpers stand below the first session; the main agent's requests are nobody's helper, nor are those whose session
    the client has named by hand."""
    assert split_helper(Headers(sent), "main") == (own, parent)


@given(st.sampled_from(SESSION_HEADERS), st.text(max_size=600))
def test_a_session_s_name_is_fit_for_a_header(header, name):
    """Whatever a client calls its session, or its helper, the name that goes back out is bounded printable ASCII."""
    own, _ = split_helper({"x-claude-code-agent-id": name}, "s" * SESSION_CHARS_MAX)
    out = session_of({header: name}, {})

    for given_name in (own, out):
        assert given_name is None or (0 < len(given_name) <= SESSION_CHARS_MAX and given_name.isascii())
        assert given_name is None or given_name.isprintable()
    assert own


def test_the_beginning_names_a_conversation_until_it_is_found():
    """Turns that are added don't change the name; another first message, system prompt or key does."""
    first = name_beginning({}, HI)
    later = [*HI, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}]

    assert name_beginning({}, later) == first
    assert name_beginning({}, [{"role": "system", "content": "s"}, *HI]) != first
    assert name_beginning({}, [{"role": "user", "content": "ho"}]) != first
    assert name_beginning({"authorization": "Bearer b"}, HI) != first
