"""Calls and outcomes: what a worker is told, and what its parent takes from it."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from starlette.datastructures import Headers

from deployments.api.openai_chat import ChatCall
from deployments.api.openai_responses.response_body import Wanted
from deployments.api.openai_responses.stored_record import NeedsRecall, Recalled
from deployments.app.router_parts import DIALECTS
from deployments.errors import ApiError
from deployments.work.worker_pool import _OUTCOME, _Raised, _read_outcome, _write_job, do_job
from reliability.answer.judgement import expect, judge
from reliability.loops import LoopConfig
from reliability.steps import Steps
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import CallDelta, Finish, FinishReason, Reasoning, Text
from tests.support import jobs

TOOL = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 2**70}}}
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "user", "content": "n"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": TOOL}}],
        "stream_options": {"include_usage": True},
        "stream": True,
        "metadata": {"n": 2**80},
    },
    "/v1/messages": {"max_tokens": 9, "messages": MESSAGES[:1], "tools": [{"name": "f", "input_schema": TOOL}]},
    "/v1/responses": {"input": "hi", "tools": [{"type": "function", "name": "f", "parameters": TOOL}]},
    "/v1/responses/compact": {"input": "hi"},
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
}


def done_elsewhere(function: Any, *args: Any, **named: Any) -> Any:
    """What a worker would have returned, or raised."""
    called, message = _write_job(function, args, named)
    return _read_outcome(called, do_job(message))


def unnamed(call: ChatCall) -> ChatCall:
    """The call without the name that a response, and its items, get when it is parsed."""
    if not isinstance(call.wanted, Wanted):
        return call
    items, users = (
        (text or b"").replace(call.wanted.tag.encode(), b"") for text in (call.wanted.items, call.wanted.users)
    )
    return replace(call, wanted=replace(call.wanted, tag="", items=items, users=users))


@pytest.mark.parametrize("path", DIALECTS)
def test_every_dialect_is_parsed_elsewhere_as_it_is_here(path):
    """The same call, whole: large numbers, repeated headers and what its way out must know included."""
    raw = json.dumps(BODIES[path]).encode()
    headers = Headers(raw=[(b"x-a", b"1"), (b"cache-control", b"max-age=0"), (b"cache-control", b"no-store")])
    named = {"request_id": "r", "tokens_max": 99, "timeout_s": 9.0}
    here = DIALECTS[path].parse(raw, headers, **named)
    there = done_elsewhere(DIALECTS[path].parse, raw, headers, **named, steps=Steps(10**6, final=True))

    assert unnamed(there) == unnamed(here)
    assert type(there.wanted) is type(here.wanted)


def test_what_is_missing_is_asked_for_from_elsewhere_too():
    """A body that refers to stored responses says which; with them it is read."""
    name = "resp_" + "0" * 32
    body = {"input": "hi", "previous_response_id": name}
    named: dict[str, Any] = {"request_id": "r", "tokens_max": 99, "timeout_s": 9.0}
    parse = DIALECTS["/v1/responses"].parse
    try:
        parse(json.dumps(body).encode(), {}, **named)
    except (NeedsRecall, ApiError) as error:
        here = error
    with pytest.raises(type(here)) as there:
        done_elsewhere(parse, json.dumps(body).encode(), {}, **named)
    assert vars(there.value) == vars(here)

    recalled = partial(parse, recalled=Recalled(session="s"))
    there_whole = done_elsewhere(recalled, b'{"input": "hi"}', {}, **named)
    assert unnamed(there_whole) == unnamed(recalled(b'{"input": "hi"}', {}, **named))


def test_an_answer_is_judged_elsewhere_as_it_is_here():
    """Calls, violations and loops: the same judgement."""
    toolbox = build_toolbox([{"type": "function", "function": {"name": "f", "parameters": TOOL}}])
    expected = expect(MESSAGES, toolbox, id_seed="s", checks=CheckConfig(), loops=LoopConfig())
    held = (Reasoning("hm"), Text("so \ud800"), CallDelta(index=0, id="1", name="f", arguments='{"a": "x"}'))
    asked = partial(judge, expected, held, Finish(reason=FinishReason.TOOL_CALLS), sent="", text_committed=False)
    here = asked(attempt=1)

    assert done_elsewhere(asked, attempt=1, steps=Steps(10**6, final=True)) == here
    assert here.violations


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "deployments.work.wire:Codec",
        "deployments.errors:no",
        "builtins:SystemExit",
        "",
    ],
)
def test_a_worker_names_nothing_but_this_programs_errors(name):
    """What a worker that was taken over could send: no class of another module is called, and none is imported."""
    with pytest.raises(RuntimeError, match=r"^words$"):
        _read_outcome(jobs.join, _OUTCOME.encode(_Raised(name, ["true"], "words")))


@pytest.mark.parametrize("message", [b"", b"m", b"j", b"mx", b"j{", _OUTCOME.encode(b"m\xc0")])
def test_what_is_no_outcome_is_refused(message):
    """One error, whatever the bytes; a result of another type is none."""
    with pytest.raises(ValueError, match="this is no"):
        _read_outcome(jobs.join, message)
