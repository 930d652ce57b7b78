"""Upstreams that refuse a field only next to tools, or one of a tool's own, over real HTTP."""

import pytest

from deployments.tiers.hosted.upstream_errors import UpstreamComplaint
from deployments.tiers.hosted.upstream_form import UpstreamForm
from tests.support.plays import Play, Seen, good, status
from tests.support.tier_asking import WEATHER_TOOL, ask, exchange, text_of
from tests.unit.deployments.tiers.hosted.test_upstream_form import notes_of

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
def test_an_effort_goes_where_it_stands_next_to_tools(
    default: str, effort: str | None, words: str, param: str | None
) -> None:
    """Law: a model that takes no effort next to tools, its own default or the client's, is asked for none there, at
    once the next time; the report says what wasn't sent; a request without tools keeps its effort."""
    extra = {} if effort is None else {"reasoning_effort": effort}

    def play(seen: Seen) -> Play:
        thinks = seen.body.get("reasoning_effort", default) != "none"
        return status(400, words, param=param) if "tools" in seen.body and thinks else good("Fine.")

    events, log = exchange(play, ask(tools=TOOLS, extra=extra), ask(tools=TOOLS, extra=extra), ask(extra=extra))

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
def test_tools_are_declared_without_strict_where_it_is_refused(
    strict: bool | None, words: str, param: str | None
) -> None:
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
