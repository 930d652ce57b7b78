"""Every field that the official SDKs can send, in each dialect."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from anthropic.types import beta
from anthropic.types.beta import message_create_params
from openai.types import chat
from openai.types.chat import completion_create_params
from openai.types.responses import ResponseOutputItem, response_create_params, response_input_item_param

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.openai_chat import ChatCall, parse_chat
from deployments.api.openai_responses.response_body import parse_response
from deployments.api.openai_responses.stored_record import NeedsRecall
from deployments.errors import ApiError
from tests.support.sdk_params import Variant, build_least, list_arms, list_fields, name_kind, walk

DOCS = (Path(__file__).parents[4] / "docs/http.md").read_text(encoding="utf-8")
HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object"}
FILE = "data:text/plain;base64,aGk="
FUNCTION = {"type": "function", "function": {"name": "x"}}
# Values that can't be any of their type, by the field; and what an object needs beside its required fields, by kind.
GIVEN: Mapping[str, Any] = {
    "input_schema": SCHEMA, "parameters": SCHEMA, "schema": SCHEMA, "file_data": FILE, "top_logprobs": 2,
    "input_image": {"image_url": "u"}, "input_file": {"file_data": FILE}, "function_call_output": {"call_id": "x"},
    "tool_search_output": {"call_id": "x"},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One API. `types`: of a request, and of each part of its conversation, by the field that takes it. `needs`: what
    a field needs beside it. `refused`: the field and the kind of what can't be taken, and where docs/http.md says so.
    `quiet`: fields outside of the conversation that change nothing here and leave no note."""

    parse: Callable[..., ChatCall]
    types: tuple[tuple[Any, str], ...]
    base: Mapping[str, Any]
    needs: Mapping[str, Mapping[str, Any]]
    refused: Mapping[str, str]
    quiet: tuple[str, ...]


DIALECTS = {
    "chat": Dialect(
        parse=parse_chat,
        types=(
            (completion_create_params.CompletionCreateParamsBase, ""),
            *((arm, "messages") for arm in list_arms(chat.ChatCompletionMessageParam)),
        ),
        base={"messages": [HI]},
        needs={
            "tool_choice": {"tools": [FUNCTION]},
            "function_call": {"functions": [{"name": "x"}]},
            "top_logprobs": {"logprobs": True},
            "parallel_tool_calls": {"tools": [FUNCTION]},
        },
        refused={
            r"response_format\.json_schema\.schema": "a `json_schema` without a `schema`",
            r"tool_choice\.function\.name": "a choice of a tool that isn't declared",
            r"(tools|tool_choice|messages\.tool_calls)\.type( .*)?": "`custom`, which Responses takes",
        },
        quiet=("n", "stream_options.*", "tool_choice.type", "tools.function.type"),
    ),
    "responses": Dialect(
        parse=parse_response,
        types=(
            (response_create_params.ResponseCreateParamsBase, ""),
            *((arm, "input") for arm in list_arms(response_input_item_param.ResponseInputItemParam)),
        ),
        base={"input": [HI]},
        needs={"tool_choice": {"tools": [{"type": "function", "name": "x"}, {"type": "custom", "name": "x2"}]}},
        refused={
            r"background|prompt|conversation": "`background`, `prompt`, `conversation`",
            r"previous_response_id|input\.id": "a response or an item that isn't stored",
            r"(tools|tool_choice|tool_choice\.tools)\.type( .*)?": "`file_search`, `computer…`, `mcp`, "
            "`code_interpreter`, `programmatic_tool_calling`, `local_shell`, `shell` and `apply_patch`",
            r"input\.content\.file_(id|url)": "`file_id` and `file_url`",
        },
        quiet=("reasoning", "store", "stream_options.*", "text"),
    ),
    "messages": Dialect(
        parse=parse_messages,
        types=(
            (message_create_params.MessageCreateParamsBase, ""),
            *((arm, "messages") for arm in list_arms(beta.BetaMessageParam)),
        ),
        base={"messages": [HI], "max_tokens": 9},
        needs={"tool_choice": {"tools": [{"name": "x", "input_schema": SCHEMA}]}},
        refused={
            r"container|mcp_servers": "`mcp_servers`, `container`",
            r"thread": "`thread`",
            r"tools\.type( .*)?": "other tools with one of Anthropic's types (`bash_…`)",
            r"messages\.content\.type \w+": "a block in a message of another role",
            r"messages\.role": "a last message of the assistant (prefill)",
            r"messages\.content(\.\w+)*\.source\.type": "a source of the type `file`",
            r"messages\.content": "a message without content",
        },
        quiet=("cache_control", "container", "metadata", "output_config", "service_tier"),
    ),
}
CONVERSATIONS = ("messages", "input")


def list_bodies(dialect: Dialect, behind: tuple[Any, ...] = ()) -> Iterator[tuple[Variant, dict[str, Any], Any]]:
    """List each field with a body that has it, and one that hasn't. `behind`: what follows in the conversation."""
    for hint, within in dialect.types:
        for variant in walk(hint, GIVEN):
            if within:
                yield (
                    replace(variant, path=f"{within}.{variant.path}"),
                    {**dialect.base, within: [HI, variant.value, *behind]},
                    {**dialect.base, within: [HI, variant.without, *behind]},
                )
                continue
            top = variant.path.partition(".")[0]
            if top not in CONVERSATIONS:
                base = {**dialect.base, **dialect.needs.get(top, {})}
                without = {top: variant.without[top]} if top in variant.without else {}
                yield variant, {**base, top: variant.value[top]}, {**base, **without}


def ask(dialect: Dialect, body: Mapping[str, Any]) -> ChatCall | ApiError:
    """Parse a body; return what it becomes, without what names the one request, or why it is refused."""
    raw = json.dumps(body).encode()
    try:
        call = dialect.parse(raw, {}, request_id="r", tokens_max=1000, timeout_s=9.0)
    except ApiError as refusal:
        return refusal
    except NeedsRecall:
        return ApiError("not_found", "a stored response", param="stored")
    wanted = replace(call.wanted, tag="", items=None, users=b"") if hasattr(call.wanted, "tag") else call.wanted
    return replace(call, wanted=wanted, request=replace(call.request, body_bytes=0), trail=None)


def describe(refusal: ApiError) -> str:
    """The field of a refusal, without places, and the kind that it quotes."""
    kind = re.search(r"'([a-z_]+?)(_20\d+)?'", refusal.message)
    path = re.sub(r"\.\d+", "", refusal.param or "")
    return f"{path} {kind[1]}" if kind and path.endswith("type") else path


@pytest.mark.parametrize("name", DIALECTS)
def test_every_field_of_the_sdks_is_served_noted_or_refused(name):
    """Law: a field of the SDK's types, at any depth, is taken, or refused as docs/http.md says. Outside of the
    conversation it changes the request or leaves a note that names it, but for those that are listed as quiet. Null is
    as good as no field."""
    dialect, refused, ignored = DIALECTS[name], dict[str, str](), dict[str, bool]()
    for variant, body, without in list_bodies(dialect):
        call, plain = ask(dialect, body), ask(dialect, without)
        if isinstance(call, ApiError):
            if not (variant.null and isinstance(plain, ApiError) and describe(plain) == describe(call)):
                refused.setdefault(describe(call), f"{variant.path}: {call}")
        elif not variant.null and not variant.path.startswith(CONVERSATIONS):
            noted = any(variant.path.startswith(note.partition(" ")[0].strip(":")) for note in call.notes)
            ignored[variant.path] = ignored.get(variant.path, True) and not noted and call == plain
    reasons = {row for row in dialect.refused for field in refused if re.fullmatch(row, field)}
    quiet = {row for row in dialect.quiet for path in ignored if ignored[path] and re.fullmatch(row, path)}

    assert {field: why for field, why in refused.items() if not any(re.fullmatch(row, field) for row in reasons)} == {}
    assert [path for path in ignored if ignored[path] and not any(re.fullmatch(row, path) for row in quiet)] == []
    assert (reasons, quiet) == (set(dialect.refused), set(dialect.quiet))
    assert [words for words in dialect.refused.values() if words not in " ".join(DOCS.split())] == []


@pytest.mark.parametrize("name", DIALECTS)
def test_no_field_of_the_sdks_ends_a_session(name):
    """Law: a client sends its history with every turn. Whatever stands there, of any kind, null or not, no later
    request is refused for it; only system messages are read as strictly as the newest turn."""
    conversations = [(path, body) for path, body, _ in list_bodies(DIALECTS[name], (HI,)) if has_past(body)]
    ended = {
        variant.path: str(call)
        for variant, body in conversations
        if isinstance(call := ask(DIALECTS[name], body), ApiError)
    }

    assert ended == {}
    assert len(conversations) > 40


def has_past(body: Mapping[str, Any]) -> bool:
    said = body.get("messages") or body.get("input")
    return isinstance(said, list) and len(said) == 3 and said[1].get("role") != "system"


# What a model reads of an answer.
CUSTOM = {"custom_tool_call", "custom_tool_call_output"}
READ = {
    "messages": {"text", "thinking", "tool_use"},
    "responses": {"message", "additional_tools", "reasoning", "function_call", "function_call_output"} | CUSTOM,
}


def list_answered(name: str) -> list[dict[str, Any]]:
    """List the least value of each kind of block or item that the SDK's own answers may hold."""
    union = beta.BetaContentBlock if name == "messages" else ResponseOutputItem
    kinds = {get_args(arm.model_fields["type"].annotation)[0] for arm in get_args(get_args(union)[0])}
    sent = beta.BetaContentBlockParam if name == "messages" else response_input_item_param.ResponseInputItemParam
    return [build_least(arm, GIVEN) for arm in list_arms(sent) if name_kind(arm) in kinds]


def send_back(name: str, *parts: Any) -> ChatCall | ApiError:
    """Ask with an answer that holds these and a text."""
    if name == "messages":
        answer = [{"role": "assistant", "content": [*parts, {"type": "text", "text": "so"}]}]
        return ask(DIALECTS[name], {"messages": [HI, *answer, HI], "max_tokens": 9})
    return ask(DIALECTS[name], {"input": [HI, *parts, {"role": "assistant", "content": "so"}, HI]})


@pytest.mark.parametrize("name", READ)
def test_an_answer_of_the_sdk_comes_back(name):
    """Law: each kind of block or item that the SDK's own answers hold is read when its client sends it back, or left
    out (of Responses with a note). One that isn't known is left out with a note: a newer server may have made it."""
    plain, kept, noted = send_back(name), set[str](), dict[str, str]()
    assert isinstance(plain, ChatCall)
    for part in list_answered(name):
        call, kind = send_back(name, part), part.get("type", "message")
        assert isinstance(call, ChatCall), call
        if (call.request.messages, call.request.tools) != (plain.request.messages, plain.request.tools):
            kept.add(kind)
        else:
            noted[kind] = " ".join(call.notes)

    assert kept == READ[name]
    assert name == "messages" or all(noted.values()), noted
    made_up = send_back(name, {"type": "made_up"})
    assert isinstance(made_up, ChatCall)
    assert made_up.request.messages == plain.request.messages
    assert "made_up" in " ".join(made_up.notes)


def test_tiers_get_no_field_that_only_responses_has():
    """Law: what a request of Responses hands on to a tier, beside the client's unknown fields, is a field of chat
    completions: a hosted tier may refuse any other."""
    known = list_fields(completion_create_params.CompletionCreateParamsBase).keys()
    calls = [ask(DIALECTS["responses"], body) for _, body, _ in list_bodies(DIALECTS["responses"])]
    passed = {name for call in calls if isinstance(call, ChatCall) for name in call.request.extra}

    assert passed - known == set()
    assert isinstance(call := ask(DIALECTS["responses"], {"input": "hi", "made_up": 1}), ChatCall)
    assert call.request.extra == {"made_up": 1}
