"""A hosted tier before an upstream whose chat template is strict, over real HTTP, by three dialects."""

import json
from dataclasses import replace
from typing import Any

import pytest

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.openai_chat import parse_chat
from deployments.api.openai_responses.response_body import parse_response
from reliability.types import ChatRequest, Fault
from tests.support.plays import good, status
from tests.support.strict_templates import TEMPLATES, refuse_as_llama_cpp, refuse_as_vllm, strict
from tests.support.tier_asking import exchange, text_of
from tests.unit.deployments.tiers.hosted.test_answer_limits import SUMS

NAMED: dict[str, Any] = {"request_id": "r", "tokens_max": 64, "timeout_s": 60.0}
TOOL = {"name": "get_time", "description": "The time."}
# As Claude Code sends it: two system blocks, a reminder as a system message later, a call that was cut off.
CLAUDE_CODE = {
    "model": "m",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Be brief."}],
    "tools": [{**TOOL, "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "get_time", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "noon"}]},
        {"role": "system", "content": "The user has opened a file."},
        {"role": "user", "content": "And now?"},
    ],
}
# As Codex sends it: instructions, a developer item, a call without its result, broken arguments.
CODEX = {
    "model": "m",
    "instructions": "You are Codex.",
    "store": False,
    "tools": [{"type": "function", **TOOL, "parameters": None}],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox is on."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
        {"type": "function_call", "call_id": "call_1", "name": "get_time", "arguments": "{"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
}
CALL = {"id": "c", "type": "function", "function": {"name": "get_time", "arguments": "{"}}
CHAT: dict[str, Any] = {
    "model": "m",
    "tools": [{"type": "function", "function": TOOL}],
    "messages": [
        {"role": "system", "content": "a"},
        {"role": "system", "content": "b"},
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "developer", "content": "c"},
        {"role": "tool", "tool_call_id": "gone", "content": "noon"},
        {"role": "user", "content": "And now?"},
        {"role": "user", "content": "Well?"},
    ],
}
DIALECTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "messages": (parse_messages, CLAUDE_CODE),
    "responses": (parse_response, CODEX),
    "chat": (parse_chat, CHAT),
}


def read(dialect: str, *, streamed: bool = True) -> ChatRequest:
    parse, body = DIALECTS[dialect]
    request: ChatRequest = parse(json.dumps(body).encode(), {}, **NAMED).request
    return replace(request, streamed=streamed)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("refuse", [refuse_as_vllm, refuse_as_llama_cpp])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_past_ends_a_session(dialect, template, refuse, streamed):
    """Law: what agents send is answered behind each strict template, by at most two requests; the next one is sent at
    once in the form that is taken."""
    (first, second), log = exchange(strict(TEMPLATES[template], refuse), *[read(dialect, streamed=streamed)] * 2)

    assert (text_of(first), text_of(second)) == ("Fine.", "Fine.")
    assert len(log) <= 3


def refuse_long_ids(seen: Any) -> Any:
    """Play a server that quotes the id it refuses, as Mistral's does."""
    calls = [call for message in seen.body["messages"] for call in message.get("tool_calls") or ()]
    wrong = next((call["id"] for call in calls if len(call["id"]) > 9), None)
    return good() if wrong is None else status(400, f"Tool call id was {wrong} but must be a-z, with a length of 9.")


def test_no_key_chooses_the_form_of_another_key_s_conversations():
    """Law: an upstream may quote a client's words, so the form that a refusal asks for is kept for its key alone."""
    system, user = {"role": "system", "content": "Be good."}, {"role": "user", "content": "hi"}
    call = {"id": "system role is not supported", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    past = ({"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": "x"})
    attack, plain = (replace(read("chat"), messages=(system, user, *more)) for more in ((*past, user), ()))
    requests = replace(attack, key="a"), replace(plain, key="a"), replace(plain, key="b")
    _, log = exchange(refuse_long_ids, *requests)
    sent = [[message["role"] for message in seen.body["messages"]] for seen in log]

    assert (sent[-2:], len(sent)) == ([["user"], ["system", "user"]], 4)


def test_what_every_template_takes_is_sent_as_it_was_written():
    """Law: the first request of a tier is the client's own, but for arguments and parameters that no backend takes."""
    _, (seen,) = exchange(good(), read("chat"))
    body = seen.body

    sent, written = ([(m["role"], m["content"]) for m in one["messages"]] for one in (body, CHAT))
    assert sent == written
    assert json.loads(body["messages"][3]["tool_calls"][0]["function"]["arguments"]) == {"unreadable_arguments": "{"}
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_template_that_takes_nothing_is_the_tier_s_fault():
    """Law: another tier is asked, after one more request and no third; the words that say something are kept."""
    refusal = refuse_as_llama_cpp(ValueError("System message must be at the beginning."))
    (events,), log = exchange(refusal, read("chat"))

    assert len(log) == 2
    assert events[-1].fault is Fault.UNSUPPORTED
    assert events[-1].message.endswith("Jinja Exception: System message must be at the beginning.")


def test_another_mistake_is_not_sent_twice():
    """Law: only what names roles or templates is asked once more."""
    (events,), log = exchange(status(400, "Invalid 'temperature': decimal above maximum value."), read("chat"))

    assert len(log) == 1
    assert events[-1].fault is Fault.REFUSED


CONTEXT = 32_768
WORDS = [
    *SUMS,
    # A newer vLLM, OpenRouter.
    "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is {limit} "
    "tokens and your request has {prompt} input tokens ({asked} > {limit} - {prompt}).",
    "This endpoint's maximum context length is {limit} tokens. However, you requested about {sum} tokens ({half} of "
    "text input, {rest} of tool input, {asked} in the output). Reduce either one.",
]


def refuse_too_long(words: str, prompt: int) -> Any:
    """Play a server whose context must hold the prompt and the whole answer."""

    def play(seen: Any) -> Any:
        counts = {"limit": CONTEXT, "prompt": prompt, "asked": seen.body["max_tokens"], "rest": 99}
        counts |= {"sum": prompt + counts["asked"], "half": prompt - 99}
        return good() if counts["sum"] <= CONTEXT else status(400, words.format(**counts))

    return play


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize(
    ("prompt", "answer_tokens", "sent"),
    [
        (17_230, 16_384, [16_384, 15_538]),
        (17_230, 40_000, [40_000, 15_538]),
        (16_384, 16_384, [16_384]),
        (32_700, 16_384, [16_384]),
    ],
)
def test_an_answer_may_have_what_the_prompt_leaves(words, prompt, answer_tokens, sent):
    """Law: a prompt isn't too long because the answer's limit doesn't fit behind it: it is sent once more, with what
    fits. Codex names no limit, and its sessions ended at half the context of such a server. Where too little is left
    the client must condense."""
    request = replace(read("responses"), max_tokens=answer_tokens)
    (events,), log = exchange(refuse_too_long(words, prompt), request)
    asked = [seen.body["max_tokens"] for seen in log]

    assert asked == sent
    assert getattr(events[-1], "fault", None) is (Fault.CONTEXT_LENGTH if prompt > 32_000 else None)


def test_an_upstream_that_refuses_each_length_is_asked_twice():
    """Law: a server that names another context each time gets two requests."""
    (events,), log = exchange(
        lambda seen: refuse_too_long(SUMS[0], CONTEXT - seen.body["max_tokens"] + 1)(seen),
        replace(read("chat"), max_tokens=9_000),
    )

    assert (len(log), getattr(events[-1], "fault", None)) == (2, Fault.CONTEXT_LENGTH)
