"""Which field, or which value of one, an upstream refuses, in whatever words."""

import re
from itertools import product
from typing import Any

import pytest

from deployments.tiers.hosted.field_refusals import find_refused
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_complaint
from reliability.types import Fault
from tests.support.plays import Play, Seen, good, status
from tests.support.thinkers import think, thought_of
from tests.support.tier_asking import WEATHER_TOOL, ask, exchange, failed, text_of

OURS = ("max_tokens", "stream_options")
SENT: dict[str, Any] = {
    "user": "somebody", "metadata": {"a": "b"}, "store": False, "service_tier": "flex", "prompt_cache_key": "k",
    "parallel_tool_calls": True, "verbosity": "low", "reasoning_effort": "minimal", "temperature": 0.2, "top_p": 0.95,
    "presence_penalty": 0.5,
}  # fmt: skip


def spell(name: str) -> dict[str, str]:
    """The ways in which APIs write a field's name."""
    camel = re.sub("_(.)", lambda found: found[1].upper(), name)
    quoted = {
        "quoted": f"'{name}'",
        "ticked": f"`{name}`",
        "quoted camel": f'"{camel}"',
        "in the body": f"'body.{name}'",
    }
    return {"plain": name, "camel": camel, **quoted}


# xAI, xAI again, Bedrock, Anthropic, OpenAI, Azure, Groq, Cerebras, Gemini, Mistral, Fireworks, Bedrock, pydantic,
# Cerebras, OpenAI of temperature.
OF_FIELDS = [
    "Model grok-4 does not support parameter {}.",
    "Argument not supported on this model: parameter {}",
    "The parameter {} is deprecated for this model.",
    "{}: this parameter is not supported for this model",
    "Unsupported parameter: {} is not supported with this model.",
    "Unrecognized request argument supplied: {}",
    "The {} parameter is not supported with this model",
    "property {} is unsupported, did you mean 'stop'?",
    "Invalid JSON payload received. Unknown name {}: Cannot find field.",
    "Extra inputs are not permitted, field: {}, value: 'x'",
    "Error code: 400 - the field {} is not allowed here (deployment 2024)",
    "Malformed input request: #: extraneous key [{}] is not permitted, please reformat your input and try again.",
    "2 validation errors for Request\n{}\n  Extra inputs are not permitted [type=extra_forbidden, input_type=str]\n"
    "    For further information visit https://errors.pydantic.dev/2.11/v/extra_forbidden\nseed\n  Field required",
    "{}: property {} is unsupported",
    "The field {} does not support 0 with this model. Only the default (1) value is supported.",
]
# Kimi, DeepSeek (serde), TGI, OpenAI, OpenAI again, Anthropic, FastAPI, Ollama, OpenAI of metadata, Qwen, DashScope,
# Vertex, pydantic as text (SGLang).
OF_VALUES = [
    "invalid field {}: only 1 is allowed for this model",
    "Failed to deserialize the JSON body: field {}: unknown variant `x`, expected one of `low`, `user` at line 1",
    "Input validation error: field {} must be strictly positive",
    "Invalid parameter {}: string too long. Expected a string with maximum length 64, but got length 100 instead.",
    "Unsupported value: the field {} does not support this. Supported values are: 'user', 'store' and 'high'.",
    "field {} may only be set to 1 when `thinking` is enabled or in adaptive mode.",
    "field {}: Input should be 'high' or 'none'",
    'invalid {} value: (must be "high", "medium" or "user")',
    "The {} parameter is only allowed when 'store' is enabled.",
    "Invalid {} value, the valid range of it is [0, 1.0]",
    "The value of the {} parameter is restricted to True.",
    "Unable to submit request because it has a {} value of 50 but the supported range is from 1 (inclusive) to 41.",
    "1 validation error for Request\n{}\n  Input should be 'a' or 'user' [type=literal_error, input_value='x']\n"
    "    For further information visit https://errors.pydantic.dev/2.11/v/literal_error",
]


@pytest.mark.parametrize("how", spell("x"))
@pytest.mark.parametrize(("words", "name"), list(product([*OF_FIELDS, *OF_VALUES], SENT)))
def test_a_refused_field_is_found_in_all_words(words: str, name: str, how: str) -> None:
    """Law: whoever says it and however the name is spelled, that field is refused, whatever it says, and no other;
    where the words speak of a value, with that value alone; a field of a condition, or a name among the allowed values,
    isn't."""
    refused = find_refused(UpstreamComplaint(message=words.replace("{}", spell(name)[how])), OURS, SENT)

    assert refused == (({name}, {}) if words in OF_FIELDS else (set(), {name: SENT[name]}))


BOTOCORE = "An error occurred (ValidationException) when calling the ConverseStream operation{}: {}"
OTHERS_OWN = ("1 validation", "2 validation", "Unable to submit request")  # pydantic's and Vertex's: never in Bedrock's
BEFORE = [
    BOTOCORE.format("", ""),
    BOTOCORE.format(" (reached max retries: 4)", ""),
    BOTOCORE.format("", "The model returned the following errors: "),
    "litellm.BadRequestError: BedrockException - " + BOTOCORE.format("", ""),
]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", ["store", "top_p", "reasoning_effort"])
@pytest.mark.parametrize("words", [one for one in OF_FIELDS + OF_VALUES if not one.startswith(OTHERS_OWN)])
def test_a_gateway_s_own_words_hide_no_field(words: str, name: str, before: str) -> None:
    """Law: what botocore says before its upstream's words changes nothing of what they refuse."""
    said = words.replace("{}", f"`{name}`")
    alone, behind = (find_refused(UpstreamComplaint(message=one), OURS, SENT) for one in (said, before + said))

    assert behind == alone
    assert name in alone[0] | alone[1].keys()


@pytest.mark.parametrize("words", ["no", "Unsupported value: 'x'", "string too long", "is not a valid value"])
@pytest.mark.parametrize("param", ["{}", "body.{}", "{}.inner"])
@pytest.mark.parametrize("name", SENT)
def test_the_named_param_is_the_field(name: str, param: str, words: str) -> None:
    """Law: an error's `param` says which field is meant, whatever else the words name."""
    complaint = UpstreamComplaint(message=f"{words}: 'temperature', 'user'", param=param.format(name))

    assert find_refused(complaint, OURS, SENT) == (set(), {name: SENT[name]})


@pytest.mark.parametrize("name", [name for name, value in SENT.items() if isinstance(value, str | float)])
@pytest.mark.parametrize("words", ["{name} {value} is not supported with this model", "{name}={value!r}: unsupported"])
def test_a_value_that_is_named_is_what_is_refused(name: str, words: str) -> None:
    """Law: words that name the value that was sent refuse that value."""
    said = words.format(name=f"`{name}`", value=SENT[name])

    assert find_refused(UpstreamComplaint(message=said), OURS, SENT) == (set(), {name: SENT[name]})


def test_of_two_fields_that_exclude_each_other_one_stays() -> None:
    """Law: the first that is named is sent still."""
    for words in (
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        "Only one of temperature and top_p may be set",
        "temperature and topP are mutually exclusive",
        BEFORE[2] + "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
    ):
        assert find_refused(UpstreamComplaint(message=words), OURS, SENT) == (set(), {"top_p": 0.95})


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ('"llama3.2" does not support thinking', {"reasoning_effort"}),
        ("Thinking level is not supported for this model.", {"reasoning_effort"}),
        ('invalid reasoning value: \'minimal\' (must be "high", "medium", "low", or "none")', {"reasoning_effort"}),
        ("Penalty is not enabled for models/gemini-2.5-pro", {"presence_penalty"}),
        ('think value "minimal" is not supported for this model', {"reasoning_effort"}),
        ("Unable to submit request because thinking is not supported by this model. See x", {"reasoning_effort"}),
        ("Unable to submit request because thinking_level is not supported by this model..", {"reasoning_effort"}),
        ("Unable to submit request because The model does not support setting thinkingBudget", {"reasoning_effort"}),
        ("This model does not support the effort parameter.", {"reasoning_effort"}),
        ("output_config.effort: This model does not support effort level 'minimal'.", {"reasoning_effort"}),
        ("metadata.user_id: Extra inputs are not permitted", {"metadata"}),
        ("litellm.BadRequestError: AnthropicException - metadata.user_id: Extra inputs", {"metadata"}),
        ("Reasoning is mandatory for this endpoint and cannot be disabled.", set()),
        ("Budget 0 is invalid. This model only works in thinking mode.", set()),
    ],
)
def test_what_plain_words_mean_is_refused_as_it_was_sent(words: str, names: set[str]) -> None:
    """Law: thinking and penalties have names in plain words; a model that always thinks refuses no wish to think."""
    fields, values = find_refused(UpstreamComplaint(message=words), OURS, SENT)

    assert (fields, set(values)) == (set(), names)


OTHERS = [
    "",
    "no",
    "the user is not supported",
    "The user's store is not reachable, only its metadata",
    "Missing required parameter: 'metadata'",
    "['body', 'user']: Field required",
    "['body', 'messages', 0, 'user', 'content']: Input should be a valid string",
    "Invalid value: 'robot'. Supported values are: 'system', 'assistant', 'user', and 'temperature'.",
    "messages[1].user is not supported",
    "Invalid 'metadata.user': string too long",
    "`seed` is not supported when `temperature` is set",
    "`logit_bias` is not supported with `reasoning_effort`",
    "If `temperature` is set, `seed` must be too",
    "When `thinking` is enabled, a final assistant message must start with a thinking block",
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`",
    "Reasoning models don't take images",
    "Unsupported parameter: 'max_completion_tokens' is not supported with this model. Use 'max_tokens' instead.",
    "Set `reasoning_effort` to low for shorter answers",
    "user_id, top_priority and my_store are not supported",
    "I think that isn't supported",
    "The best effort tier is not available, nor is best-effort mode",
    "user\nis not known",
    "`seed` is not supported because thinking is enabled",
    "`seed` is not allowed because `temperature` is set",
    "Unable to submit request because `seed` is not supported when `temperature` is set",
    "`top_k` is only supported in thinking mode",
    "Invalid API key: user not found",
    "messages.0.metadata.user_id: Extra inputs are not permitted",
    "tools.0.input_schema.properties.store.kind: Extra inputs are not permitted",
    "1 validation error for Request\nseed\n  Input should be an integer [input_value='temperature', input_type=str]",
    "1 validation error for Request\nmessages.0.user\n  Extra inputs are not permitted [type=extra_forbidden]",
]


UNSENT = [words.replace("{}", "`top_k`") for words in (*OF_FIELDS, *OF_VALUES)]


@pytest.mark.parametrize("words", [*OTHERS, *(BEFORE[0] + one for one in OTHERS), *UNSENT])
def test_what_refuses_something_else_refuses_no_field(words: str) -> None:
    """Law: a name in a path, a condition, a list of values or advice refuses nothing, nor does a missing field, nor one
    that was not sent."""
    assert find_refused(read_complaint({"error": {"message": words}}), OURS, SENT) == (set(), {})


MANDATORY = "Reasoning is mandatory for this endpoint and cannot be disabled."
ALWAYS = [
    MANDATORY,
    "Budget 0 is invalid. This model only works in thinking mode.",
    "Unable to submit request because The model does not support setting thinking_budget to 0",
]


def thinks_always(seen: Seen, words: str) -> Play:
    off = {"enabled": False}, {"effort": "none"}
    refused = seen.body.get("reasoning") in off or seen.body.get("reasoning_effort") == "none"
    return status(400, words) if refused else good("Fine.")


@pytest.mark.parametrize("words", ALWAYS)
@pytest.mark.parametrize("extra", [{}, {"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}])
def test_a_model_that_always_thinks_answers_thinking(extra: dict[str, Any], words: str) -> None:
    """Law: OpenRouter's refusal of thinking that is off costs one request; the next is sent without at once, the report
    says so, and wishes to think stay."""
    off, on = ask(thinking=False, extra=extra), ask(thinking=True)
    told, log = exchange(lambda seen: thinks_always(seen, words), off, off, on, openrouter=True)
    sent = [seen.body.get("reasoning") or seen.body.get("reasoning_effort") for seen in log]

    assert [text_of(events) for events in told] == ["Fine."] * 3
    assert sent[1:] == [None, None, {"enabled": True}]
    assert all("takes no reasoning" in " ".join(events[-1].notes) for events in told[:2])
    assert not told[2][-1].notes


IN_THOUGHT = [
    "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required or "
    "object in thinking mode",
    "tool_choice 'required' is incompatible with thinking enabled",
    "Thinking may not be enabled when tool_choice forces tool use.",
]


@pytest.mark.parametrize("words", IN_THOUGHT)
@pytest.mark.parametrize("switch", ["thinking", "enable_thinking", "chat_template_kwargs", "reasoning"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_is_wanted_is_asked_for_without_thinking(words: str, switch: str, choice: Any) -> None:
    """Law: where a model that thinks can't be made to call, it is asked without thinking, in the field that it knows,
    at once the next time; a request that leaves it the choice is sent as it was."""
    forced, free = ask(tools=(WEATHER_TOOL,), tool_choice=choice), ask(tools=(WEATHER_TOOL,), tool_choice="auto")
    fields = {"thinking", "enable_thinking", "chat_template_kwargs", "reasoning"}

    def play(seen: Seen) -> Play:
        unknown = next((name for name in sorted(fields - {switch}) if name in seen.body), None)
        if unknown:
            return status(400, f"Unrecognized request argument supplied: {unknown}")
        thinks = switch not in seen.body and seen.body["tool_choice"] != "auto"
        return status(400, words) if thinks else good("Fine.")

    told, log = exchange(play, forced, forced, free, openrouter=switch == "reasoning")
    sent = [seen.body.keys() & fields for seen in log]

    assert [text_of(events) for events in told] == ["Fine."] * 3
    assert sent[-2:] == [{switch}, set()]
    assert "takes no" in " ".join(told[0][-1].notes)
    assert all(seen.body["tool_choice"] in (choice, "auto") for seen in log)


def test_a_call_that_can_never_be_wanted_is_refused() -> None:
    """Law: an upstream that refuses it without thinking too is asked twice, and another tier then."""
    (events,), log = exchange(status(400, IN_THOUGHT[0]), ask(tools=(WEATHER_TOOL,), tool_choice="required"))

    assert (failed(events).fault, len(log)) == (Fault.REFUSED, 2)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("openrouter", [False, True])
def test_who_can_not_stop_thinking_is_not_made_to_think_again(openrouter: bool, known: bool) -> None:
    """Law: where a thought was ended, an upstream that refuses to answer without thinking isn't asked for another
    thought, which nobody reads; where that is known of it, it isn't asked at all."""
    wish = {"reasoning_effort": "high"}
    ended = ask(max_tokens=10_000, thinking_tokens_max=20, extra=wish)
    off = ask(thinking=False, extra={"reasoning_effort": "none"})

    def play(seen: Seen) -> Play:
        kwargs = seen.body.get("chat_template_kwargs", {})
        if seen.body.get("reasoning_effort") == "none" or seen.body.get("reasoning") or kwargs:
            return status(400, MANDATORY)
        return think(thought_of(400), tags=False) if seen.body.get("reasoning_effort") else good("Fine.")

    (*_, events), log = exchange(play, *([off] if known else []), ended, openrouter=openrouter)
    thoughts = [seen.body.get("reasoning_effort") for seen in log].count("high")

    assert failed(events).fault is Fault.REFUSED
    assert thoughts == 1
