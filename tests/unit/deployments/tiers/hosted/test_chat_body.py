"""A request as the JSON body of an upstream call."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.history_words import UNREADABLE
from deployments.tiers.hosted.chat_body import chat_body
from deployments.tiers.hosted.upstream_form import UpstreamForm
from reliability.surrogates import join_surrogates
from tests.support.tier_asking import WEATHER_TOOL, ask

OURS = {
    "model": "m", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 64, "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip
NEVER = ("models", "fallbacks", "max_completion_tokens", "n", "functions", "function_call")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def sent(form: UpstreamForm | None = None, **fields: Any) -> Any:
    """The body that an upstream of this form is sent for such a request."""
    return json.loads(chat_body(ask(**fields), "m", *filter(None, [form])))


@given(st.dictionaries(st.sampled_from([*OURS, *NEVER, "top_k", "user"]) | st.text(max_size=5), JSON, max_size=8))
def test_what_a_client_adds_decides_nothing(extra: dict[str, Any]) -> None:
    """Law: whatever else a client sends, the model, the messages, the cap and the shape of the answer are this
    server's; the rest is passed on as it is, also numbers beyond 64 bits."""
    assert sent(extra=extra) == {key: value for key, value in extra.items() if key not in NEVER} | OURS


@pytest.mark.parametrize("text", ["\ud83c", "a\udf0d", "\ud83c\udf0d \ud800"])
def test_half_a_character_can_be_sent(text: str) -> None:
    """Law: a message with half a character in it leaves as JSON that every server reads: with U+FFFD in its place."""
    assert json.loads(chat_body(ask(text), "m").decode())["messages"][0]["content"] == join_surrogates(text)


@pytest.mark.parametrize("value", [object(), {1, 2}])
def test_what_is_no_json_is_an_error(value: object) -> None:
    """Law: what can't be written is an error that the tier knows, and never half a body."""
    with pytest.raises((TypeError, ValueError)):
        chat_body(ask(extra={"x": value}), "m")


MARKED = (
    {"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    {"role": "user", "content": "hi"},
)


def test_markers_of_the_prompt_cache_go_to_openrouter_alone() -> None:
    """Law: it hands them to models that honour them; others would refuse the key. No word of the message changes."""
    there, elsewhere = (sent(UpstreamForm(openrouter=one), messages=MARKED)["messages"] for one in (True, False))

    assert there == list(MARKED)
    assert elsewhere == [{"role": "system", "content": "a"}, MARKED[1]]


@given(st.lists(st.text("ab \n"), max_size=4), st.booleans())
def test_texts_alone_are_sent_as_one(texts: list[str], shows: bool) -> None:
    """Law: DeepSeek, Groq and gateways refuse a list of texts, in which Claude Code sends its system prompt: no word is
    lost and none is glued to another; next to an image they stay a list, which OpenRouter gets in any case."""
    parts: list[Any] = [{"type": "text", "text": text} for text in texts]
    parts += [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}] * shows
    plain, there = (sent(UpstreamForm(openrouter=one), messages=_say(parts))["messages"] for one in (False, True))

    assert all(message["content"] == parts for message in there)
    for message in plain:
        if shows:
            assert message["content"] == parts
        else:
            assert message["content"].split() == " ".join(texts).split()
            assert len(texts) != 1 or message["content"] == texts[0]


def _say(parts: list[Any]) -> tuple[dict[str, Any], ...]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return (
        {"role": "system", "content": parts},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": parts, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": parts},
    )


@pytest.mark.parametrize("openrouter", [True, False])
def test_calls_are_said_beside_pictures(openrouter: bool) -> None:
    """Law: where past calls are words, what the messages show beside text stays, and the call stands behind it."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    form = UpstreamForm(says_calls=True, openrouter=openrouter)
    messages = sent(form, messages=_say([{"type": "text", "text": "Look:"}, picture]))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert all(picture in message["content"] for message in messages)
    assert '{"name": "f", "arguments": {}}' in messages[2]["content"][-1]["text"]


def test_what_sdks_write_into_an_answer_is_not_sent_back() -> None:
    """Law: nulls, empty lists and the numbers of a stream's pieces say nothing, and strict APIs refuse their names."""
    said = {"role": "assistant", "content": "Hi.", "annotations": [], "tool_calls": [], "refusal": None, "audio": None}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call | {"index": 0}]}
    past = sent(messages=(MARKED[1], said, called))["messages"][1:]
    assert past == [{"role": "assistant", "content": "Hi."}, called | {"tool_calls": [call]}]


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"thinking": True}, {"enabled": True}),
        ({"thinking": False}, {"enabled": False}),
        ({"thinking": True, "extra": {"reasoning": {"effort": "low"}}}, {"effort": "low"}),
        ({"thinking_tokens_max": 2000}, {"enabled": True, "max_tokens": 2000}),
        ({"thinking_tokens_max": 2000, "thinking": False}, {"enabled": False}),
        ({"thinking_tokens_max": 2000, "extra": {"reasoning": {"max_tokens": 9}}}, {"max_tokens": 9}),
        ({"thinking_tokens_max": 2000, "extra": {"reasoning_effort": "low"}}, None),
    ],
)
def test_thoughts_are_asked_for_in_openrouters_words(fields: dict[str, Any], reasoning: Any) -> None:
    """Law: what the client asked for itself goes before it, and other servers, which might not know it, get nothing."""
    there, elsewhere = (sent(UpstreamForm(openrouter=one), **fields) for one in (True, False))
    extra = fields.get("extra", {})

    assert there.get("reasoning") == reasoning
    assert elsewhere.get("reasoning") == extra.get("reasoning")
    assert there.get("reasoning_effort") == extra.get("reasoning_effort")


@pytest.mark.parametrize("choice", [None, "auto", "none"])
@pytest.mark.parametrize("parallel", [None, True, False])
@pytest.mark.parametrize("tools", [(), (WEATHER_TOOL,)])
def test_what_is_said_of_tools_goes_with_tools(tools: Any, parallel: bool | None, choice: str | None) -> None:
    """Law: OpenAI's API refuses `parallel_tool_calls` and `tool_choice` without tools, which Codex sends when it
    condenses and a client whose tools were all left out."""
    given = {"parallel_tool_calls": parallel, "tool_choice": choice}
    body = sent(tools=tools, **given)

    said = {key: value for key, value in given.items() if tools and value is not None}
    assert {key: body[key] for key in given if key in body} == said


def test_a_refusal_goes_on_and_none_does_not() -> None:
    """Law: a model reads what it has refused; the nulls and the empty list of calls that SDKs write into an answer that
    is sent back are left out, since OpenAI's API and others refuse them."""
    told = [{"role": "assistant", "content": None, "refusal": "No."}, {"role": "assistant", "content": "a"}]
    nulls = dict.fromkeys(("refusal", "audio", "function_call", "annotations"))
    given = (told[0] | {"tool_calls": None}, told[1] | nulls | {"tool_calls": []})

    assert [sent(form, messages=given)["messages"] for form in (None, UpstreamForm(openrouter=True))] == [told] * 2


def test_the_old_form_of_a_call_is_mended_too() -> None:
    """Law: `function_call` has arguments like any call."""
    past = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{"}}
    (message,) = sent(messages=(past,))["messages"]

    assert json.loads(message["function_call"]["arguments"]) == {UNREADABLE: "{"}
