"""Upstreams that refuse fields which other ones take, over real HTTP."""

import asyncio
import json
from itertools import combinations
from typing import Any

import pytest

from deployments.tiers.hosted import hosted_tier as hosted_tier_module
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint
from deployments.tiers.hosted.upstream_form import Missing, UpstreamForm, _find_missing, fill_missing
from reliability.types import Fault
from tests.support.plays import Play, Seen, good, status, whole
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, exchange, hosted_tier, text_of
from tests.support.upstream import Upstream
from tests.unit.deployments.tiers.hosted.test_connection_forms import read
from tests.unit.deployments.tiers.hosted.test_field_refusals import OF_FIELDS

# What Codex, opencode and the SDKs send beside a conversation.
EXTRA: dict[str, Any] = {"user": "u", "metadata": {"a": "b"}, "store": False, "prompt_cache_key": "k"}
EXTRA |= {"verbosity": "low", "reasoning_effort": "high"}
SAMPLING = {"temperature": 0.2, "top_p": 0.95}


def refuse(seen: Seen, fields: set[str], words: str) -> Play:
    """Refuse the first of these fields that was sent."""
    first = next((name for name in sorted(fields) if name in seen.body), None)
    return good("Fine.") if first is None else status(400, words.replace("{}", f"'{first}'"))


def notes_of(events: list[Any]) -> str:
    return " ".join(events[-1].notes)


@pytest.mark.parametrize("words", OF_FIELDS)
def test_a_field_that_changes_no_words_ends_no_session(words: str) -> None:
    """Law: what an upstream refuses of such fields, one after the other, is left out, and the report says so; the next
    request is sent without them at once. A model that reasons takes no temperature, and would refuse it for ever."""
    refused = EXTRA.keys() | SAMPLING.keys() | {"stream_options"}
    told, log = exchange(lambda seen: refuse(seen, refused, words), *[ask(extra=EXTRA, **SAMPLING)] * 2)
    bodies = [seen.body for seen in log]

    assert [text_of(events) for events in told] == ["Fine."] * 2
    assert len(bodies) == len(refused) + 2
    assert bodies[0].keys() - bodies[-1].keys() == refused
    assert all("takes no " + ", ".join(sorted(EXTRA | SAMPLING)) in notes_of(events) for events in told)


def test_all_that_one_refusal_names_is_left_out_at_once() -> None:
    """Law: Mistral lists what it refuses, each field with its place."""
    said = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
    detail = [said | {"loc": ["body", name]} for name in EXTRA]
    refusal = whole(json.dumps({"object": "error", "message": {"detail": detail}}).encode(), status_code=422)
    (events,), log = exchange(lambda seen: refusal if "user" in seen.body else good("Fine."), ask(extra=EXTRA))

    assert (text_of(events), len(log)) == ("Fine.", 2)


# How an API refuses one value: Groq, OpenAI, OpenAI again, FastAPI.
VALUE_WORDS = [
    "`{name}` must be one of `low`, `medium`, or `high`",
    "Unsupported value: '{name}' does not support '{value}' with this model. Supported values are: 'low' and 'high'.",
    "Invalid value: '{value}'. Supported values are: 'low', 'medium', and 'high'.",
    "['body', '{name}']: Input should be 'low', 'medium' or 'high'",
]


@pytest.mark.parametrize("words", VALUE_WORDS)
@pytest.mark.parametrize("name", ["reasoning_effort", "verbosity", "service_tier"])
def test_a_refused_value_costs_no_other_value(name: str, words: str) -> None:
    """Law: where one value of a field is refused, the field is left out with that value, at once the next time, and
    with no other one; the report names field and value."""
    values = ["high", "minimal", "high", "minimal", "low"]

    def play(seen: Seen) -> Play:
        value = seen.body.get(name)
        good_one = value in (None, "low", "medium", "high")
        return good("Fine.") if good_one else status(400, words.format(name=name, value=value), param=name)

    told, log = exchange(play, *[ask(extra={name: value}) for value in values])
    sent = [seen.body.get(name) for seen in log]

    assert [text_of(events) for events in told] == ["Fine."] * len(values)
    assert sent == ["high", "minimal", None, "high", None, "low"]
    assert [f'takes no {name} "minimal"' in notes_of(events) for events in told] == [v == "minimal" for v in values]


def test_refused_values_are_not_kept_without_end() -> None:
    """Law: whatever values clients name, what is kept of them is bounded."""
    form = UpstreamForm()
    for number in range(200):
        sent = ask(extra={"verbosity": f"{number} {'x' * 9999}"})
        form = form.learn(400, UpstreamComplaint(message="`verbosity` must be one of `low` or `high`"), sent)
        assert "verbosity" not in form.fit_fields(sent.extra)

    assert len(str(form)) < 20_000


def test_what_is_learned_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: one odd provider behind a gateway decides for an hour, not for ever, and what is learned in it has the same
    end; then the request is sent as it was asked."""
    monkeypatch.setattr(hosted_tier_module, "FORM_S", 0.8)
    refused = ["temperature", "user"]

    def play(seen: Seen) -> Play:
        return refuse(seen, {refused[0]}, OF_FIELDS[0]) if refused else good("Fine.")

    async def run(tier: HostedTier) -> None:
        await answer(tier, ask(temperature=0.2))
        await asyncio.sleep(0.5)
        refused.pop(0)
        await answer(tier, ask(temperature=0.2, extra={"user": "u"}))
        refused.pop(0)
        await asyncio.sleep(0.4)
        await answer(tier, ask(temperature=0.2, extra={"user": "u"}))
        await tier.close()

    with Upstream() as upstream:
        upstream.plays("m", play)
        asyncio.run(run(hosted_tier(upstream)))
        sent = [[name for name in ("temperature", "user") if name in seen.body] for seen in upstream.log]

    assert sent == [["temperature"], [], ["user"], [], ["temperature", "user"]]


@pytest.mark.parametrize("field", ["seed", "logit_bias", "response_format", "tools"])
def test_what_changes_the_answer_is_never_left_out(field: str) -> None:
    """Law: a field that the words of an answer depend on is another tier's to honour."""
    extra = EXTRA | {field: 1}
    (events,), log = exchange(lambda seen: refuse(seen, {field}, OF_FIELDS[0]), ask(extra=extra))

    assert events[-1].fault in (Fault.REFUSED, Fault.UNSUPPORTED)
    assert len(log) == 1


def test_a_server_that_fails_teaches_nothing() -> None:
    """Law: only what refuses a request says which fields aren't known. (`test_field_refusals.py` has the words.)"""
    form, said = UpstreamForm(), UpstreamComplaint(message="property 'user' is unsupported")
    assert form.learn(500, said, ask(extra=EXTRA)) == form != form.learn(400, said, ask(extra=EXTRA))


TOOLS = (WEATHER_TOOL,)
# OpenAI of gpt-5.6, OpenAI of gpt-5.4, and the same in other words.
TOGETHER = [
    "Function tools with reasoning_effort are not supported for gpt-5.6-terra in /v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'.",
    "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. Please use "
    "/v1/responses instead.",
    "reasoning_effort cannot be combined with tools",
    "`tools` can't be used with `reasoning_effort` for this model",
]
NO_PAIR = [
    "The following parameters are not supported: tools, reasoning_effort",
    "reasoning_effort is not supported with this model",
    "`parallel_tool_calls` with `reasoning_effort` is not supported",
    "tool_choice and reasoning_effort can't be set together",
    "Tools are fine, and reasoning_effort too",
]


@pytest.mark.parametrize("param", ["reasoning_effort", None])
@pytest.mark.parametrize("words", TOGETHER)
@pytest.mark.parametrize("effort", [None, "high"])
@pytest.mark.parametrize("default", ["none", "medium"])
def test_an_effort_goes_where_it_stands_next_to_tools(default, effort, words, param) -> None:
    """Law: a model that takes no effort next to tools, its own default or the client's, is asked for none there, at
    once the next time; the report says what wasn't sent; a request without tools keeps its effort."""
    extra = {} if effort is None else {"reasoning_effort": effort}

    def play(seen: Seen) -> Play:
        thinks = seen.body.get("reasoning_effort", default) != "none"
        return status(400, words, param=param) if "tools" in seen.body and thinks else good("Fine.")

    events, log = exchange(play, *[ask(tools=TOOLS, extra=extra)] * 2, ask(extra=extra))
    efforts = [seen.body.get("reasoning_effort") for seen in log]

    assert [text_of(one) for one in events] == ["Fine."] * 3
    assert efforts[-1] == effort
    assert efforts[-3] == efforts[-2]
    assert efforts[-2] in (("none", None) if default == "none" else ("none",))
    assert len(log) <= 5
    noted = ["takes no reasoning_effort next to tools" in notes_of(one) for one in events]
    assert noted == ([effort is not None] * 2 + [False])


@pytest.mark.parametrize("words", NO_PAIR)
def test_what_refuses_another_pair_keeps_the_effort_of_tools(words: str) -> None:
    """Law: a list of fields, a field alone or another pair sets no effort."""
    request = ask(tools=TOOLS, extra={"reasoning_effort": "high"}, parallel_tool_calls=True)
    form = UpstreamForm().learn(400, UpstreamComplaint(message=words), request)

    assert form.effort_with_tools is None


# A gateway, OpenAI, Cerebras, Anthropic, Gemini, vLLM.
NOT_STRICT = [
    ('Validation Error: "strict" - Extra inputs are not permitted', "tools[0].function.strict"),
    ("Invalid value: 'false'. The value isn't supported yet", "tools[0].function.strict"),
    ("'tools.0.function' : property 'strict' is unsupported", None),
    ("tools.0.custom.strict: Extra inputs are not permitted", None),
    ("Invalid JSON payload received. Unknown name \"strict\" at 'tools[0].function': Cannot find field.", None),
    ("[{'type': 'extra_forbidden', 'loc': ('body', 'tools', 0, 'function', 'strict'), 'msg': 'not permitted'}]", None),
]
STRICT_ELSE = [
    ("Invalid schema for function 'f': in strict mode, 'additionalProperties' is required to be false", None),
    ("'strict' mode is not supported with parallel tool calls", None),
    ("response_format.json_schema.strict: Extra inputs are not permitted", None),
    ("Invalid value: 'yes'. It must be a boolean.", "response_format.json_schema.strict"),
    ("The strict limit of 5 requests must not be exceeded", None),
]


@pytest.mark.parametrize(("words", "param"), NOT_STRICT)
@pytest.mark.parametrize("strict", [True, False, None])
def test_tools_are_declared_without_strict_where_it_is_refused(strict, words, param) -> None:
    """Law: `strict` of a tool is left out where it is refused, at once the next time, and the tool stays."""
    tool = {**WEATHER_TOOL, "function": {**WEATHER_TOOL["function"], "strict": strict}}  # type: ignore[dict-item]

    def play(seen: Seen) -> Play:
        refused = any("strict" in one["function"] for one in seen.body["tools"])
        return status(400, words, param=param) if refused else good("Fine.")

    events, log = exchange(play, *[ask(tools=(tool,))] * 2, ask(tools=TOOLS))

    assert [text_of(one) for one in events] == ["Fine."] * 3
    assert [seen.body["tools"] == [WEATHER_TOOL] for seen in log] == [False, True, True, True]
    assert ["strict" in notes_of(one) for one in events] == [True, True, False]


@pytest.mark.parametrize(("words", "param"), STRICT_ELSE)
def test_strict_of_something_else_is_none_of_a_tool(words: str, param: str | None) -> None:
    """Law: strict mode, and the `strict` of an answer's format, are no field of a tool."""
    tool = {**WEATHER_TOOL, "function": {**WEATHER_TOOL["function"], "strict": True}}  # type: ignore[dict-item]

    assert UpstreamForm().learn(400, UpstreamComplaint(message=words, param=param), ask(tools=(tool,))).strict


REFUSALS = {
    Missing.THOUGHT: [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 2. For more information, see ...",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 13",
    ],
    Missing.SIGNATURE: [
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work",
        "Function call `f` in the `1.` content block is missing a `thought_signature`.",
        "Function call is missing a thoughtSignature",
    ],
}
WORDS = [(missing, said) for missing, all_ in REFUSALS.items() for said in all_]


def lacks(message: dict[str, Any], missing: Missing) -> bool:
    if missing is Missing.THOUGHT:
        return message["role"] == "assistant" and not message.get("reasoning_content")
    calls = message.get("tool_calls") or []
    return bool(calls) and "extra_content" not in calls[0]


@pytest.mark.parametrize("first", [None, "roles must alternate"])
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@pytest.mark.parametrize(("missing", "said"), WORDS)
def test_a_past_answer_without_it_ends_no_session(dialect: str, missing: Missing, said: str, first: str | None) -> None:
    """Law: what is missing is filled in once the upstream asks for it, also where it has asked for another form
    before; the next request has it at once."""
    refused = []

    def answer(seen: Seen) -> Play:
        if first is not None and not refused:
            refused.append(first)
            return status(400, first)
        if any(lacks(message, missing) for message in seen.body["messages"]):
            return status(400, said)
        return good("Fine.")

    told, log = exchange(answer, *[read(dialect)] * 2)

    assert [text_of(events) for events in told] == ["Fine."] * 2
    assert len(log) == (3 if first is None else 4)


@pytest.mark.parametrize(("missing", "said"), WORDS)
def test_an_upstream_that_is_never_content_is_asked_no_third_time(missing: Missing, said: str) -> None:
    """Law: the request is sent once more, and then another tier is asked."""
    (events,), log = exchange(status(400, said), read("chat"))
    asked = len(log)

    assert asked == 2
    assert events[-1].fault is Fault.REFUSED
    assert _find_missing(said) is missing


def test_an_upstream_that_contradicts_itself_is_asked_a_bounded_number_of_times() -> None:
    """Law: no form is tried twice in a request."""
    said = {False: WORDS[0][1], True: "property 'reasoning_content' is unsupported"}
    _, log = exchange(lambda seen: status(400, said["reasoning_content" in str(seen.body["messages"])]), read("chat"))

    assert len(log) <= 4


@pytest.mark.parametrize("said", ["property 'reasoning_content' is unsupported", "roles must alternate", ""])
def test_other_refusals_ask_for_nothing(said: str) -> None:
    """Law: only the words that say it are taken for it."""
    assert _find_missing(said) is None


@pytest.mark.parametrize("missing", [set(some) for n in range(3) for some in combinations(Missing, n)])
def test_what_is_there_stays(missing: set[Missing]) -> None:
    """Law: nothing that was sent changes; filling in once is enough, and changes nothing in place."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    signed = {**call, "extra_content": {"google": {"thought_signature": "own"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": None, "reasoning_content": "t", "tool_calls": [call, call]},
        {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [signed]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    before = json.dumps(messages)
    filled = fill_missing(messages, missing)

    assert fill_missing(filled, missing) == filled
    assert json.dumps(messages) == before
    for message, was in zip(filled, messages, strict=True):
        assert {**message, **was, "tool_calls": None} == {**message, "tool_calls": None}
        assert not any(lacks(dict(message), one) for one in missing)
        assert message.get("tool_calls", [])[1:] == was.get("tool_calls", [])[1:]
    assert filled[3]["tool_calls"] == [signed]
    if Missing.THOUGHT in missing:
        assert [message.get("reasoning_content") for message in filled[1:4]] == [" ", "t", "r"]


NO_TOOLS = [
    "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    "Requests which include `tool_use` or `tool_result` blocks must define `tools`.",
    "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified.",
]


@pytest.mark.parametrize("words", NO_TOOLS)
def test_past_calls_are_words_where_no_tool_is_declared(words: str) -> None:
    """Law: Bedrock refuses calls without their tools, in the summaries that agents order. They are said, with their
    arguments and results, also in the next such request at once; a request with tools keeps its calls."""
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'}}
    past = (
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "It rains."},
        {"role": "user", "content": "Sum up."},
    )

    def play(seen: Seen) -> Play:
        called = any(message.get("tool_calls") for message in seen.body["messages"])
        return status(400, words) if called and "tools" not in seen.body else good("Fine.")

    bare, declared = ask(messages=past), ask(messages=past, tools=(WEATHER_TOOL,))
    told, log = exchange(play, bare, bare, declared)

    assert [text_of(events) for events in told] == ["Fine."] * 3
    assert len(log) == 4
    assert log[1].body["messages"] == log[2].body["messages"]
    _, said, rest = log[1].body["messages"]
    assert "get_weather" in said["content"]
    assert "Bern" in said["content"]
    assert "It rains." in rest["content"]
    assert "Sum up." in rest["content"]
    assert log[3].body["messages"][1]["tool_calls"] == [call]
