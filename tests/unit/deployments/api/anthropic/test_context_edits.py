"""`context_management`: what Anthropic's edits mean, and what is told of them."""

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaContextManagementResponse, BetaRawMessageDeltaEvent

from deployments.api.anthropic.context_edits import drop_compacted, read_compaction, read_edits
from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.anthropic.messages_history import translate_history
from deployments.api.anthropic.messages_render import MESSAGES
from deployments.api.openai_chat import ChatCall
from deployments.errors import ApiError
from deployments.work.wire import codec_of
from reliability.context_edits import STUB, ClearResults, ClearThoughts, apply_edits
from reliability.summaries import SUMMARY_HEAD, Compaction
from reliability.types import Finish, FinishReason, Text
from tests.support.refusing import refusal_of
from tests.support.run_values import run_of

USES: dict[str, Any] = {"type": "clear_tool_uses_20250919"}
THINKING: dict[str, Any] = {"type": "clear_thinking_20251015"}
COMPACT: dict[str, Any] = {"type": "compact_20260112"}
FEW: dict[str, Any] = USES | {
    "trigger": {"type": "tool_uses", "value": 2},
    "keep": {"type": "tool_uses", "value": 1},
}


def parse(edits: list[Any]) -> ChatCall:
    """A session of four calls that asks for these edits."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for at in range(4):
        thought = {"type": "thinking", "thinking": "Let me look at it closely.", "signature": "s"}
        use = {"type": "tool_use", "id": f"t{at}", "name": "read", "input": {"path": f"/a/long/path/{at}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{at}", "content": "y" * 200}
        messages += [{"role": "assistant", "content": [thought, use]}, {"role": "user", "content": [result]}]
        messages += [{"role": "assistant", "content": "Read."}, {"role": "user", "content": "And the next?"}]
    body = {"model": "fast", "max_tokens": 9, "messages": messages, "context_management": {"edits": edits}}
    return parse_messages(json.dumps(body).encode(), {}, request_id="r", tokens_max=99, timeout_s=9.0)


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (USES, ClearResults(bytes_over=400_000, keep=3)),
        (FEW, ClearResults(uses_over=2, keep=1)),
        (USES | {"trigger": {"type": "input_tokens", "value": 30_000}}, ClearResults(bytes_over=120_000)),
        (
            USES | {"clear_at_least": {"type": "input_tokens", "value": 5000}},
            ClearResults(bytes_over=400_000, bytes_least=20_000),
        ),
        (USES | {"exclude_tools": ["web"]}, ClearResults(bytes_over=400_000, spared=frozenset({"web"}))),
        (USES | {"exclude_tools": ["web"] * 512}, ClearResults(bytes_over=400_000, spared=frozenset({"web"}))),
        (USES | {"clear_tool_inputs": True}, ClearResults(bytes_over=400_000, inputs=None)),
        (USES | {"clear_tool_inputs": ["edit"]}, ClearResults(bytes_over=400_000, inputs=frozenset({"edit"}))),
        (THINKING, ClearThoughts(keep=1)),
        (THINKING | {"keep": {"type": "thinking_turns", "value": 2}}, ClearThoughts(keep=2)),
    ],
)
def test_an_edit_means_what_anthropic_says(edit, rule):
    """Each field, and the defaults of those that are left out."""
    assert read_edits({"edits": [edit]}) == ((rule,), None)


@pytest.mark.parametrize("keep", ["all", {"type": "all"}])
def test_all_thoughts_can_be_kept(keep):
    """As Claude Code asks with each request: then there is nothing to do."""
    assert read_edits({"edits": [THINKING | {"keep": keep}]}) == ((), None)


@pytest.mark.parametrize(
    ("edit", "code", "param"),
    [
        ({"type": "compact_20300101"}, "unsupported", "type"),
        (COMPACT | {"trigger": {"type": "tool_uses", "value": 3}}, "invalid_request", "trigger"),
        (COMPACT | {"pause_after_compaction": "yes"}, "invalid_request", "pause_after_compaction"),
        ({}, "unsupported", "type"),
        (5, "unsupported", "type"),
        (USES | {"trigger": {"type": "minutes", "value": 3}}, "invalid_request", "trigger"),
        (USES | {"keep": {"type": "tool_uses", "value": "3"}}, "invalid_request", "keep"),
        (USES | {"exclude_tools": "web"}, "invalid_request", "exclude_tools"),
        (USES | {"exclude_tools": ["web"] * 513}, "invalid_request", "exclude_tools"),
        (USES | {"clear_tool_inputs": ["web"] * 513}, "invalid_request", "clear_tool_inputs"),
        (THINKING | {"keep": {"type": "thinking_turns", "value": 0}}, "invalid_request", "keep"),
    ],
)
def test_another_edit_is_refused_by_its_place(edit, code, param):
    """What isn't known is unsupported; what is wrong in it is named by its field."""
    caught = refusal_of(read_edits, {"edits": [USES, edit]})
    assert (caught.code, caught.param) == (code, f"context_management.edits.1.{param}")


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (COMPACT, Compaction(bytes_over=600_000)),
        (COMPACT | {"trigger": {"type": "input_tokens", "value": 500}}, Compaction(bytes_over=2000)),
        (
            COMPACT | {"instructions": "Names alone.", "trigger": None},
            Compaction(bytes_over=600_000, order="Names alone."),
        ),
        (COMPACT | {"instructions": " ", "pause_after_compaction": True}, Compaction(bytes_over=600_000, pauses=True)),
    ],
)
def test_a_compaction_means_what_anthropic_says(edit, rule):
    """Its fields, their defaults, and that the other edits stand beside it."""
    assert read_edits({"edits": [THINKING, edit]}) == ((ClearThoughts(keep=1),), rule)


def test_a_compaction_alone_is_asked_for_by_its_own_field():
    """Whatever the size: the answer is the summary. It can't be combined with edits."""
    read = read_compaction({"type": "summarize", "instructions": "Short."})
    assert read == Compaction(bytes_over=0, order="Short.", pauses=True)
    for body in ({"type": "other"}, {"type": "summarize", "instructions": 5}):
        with pytest.raises(ApiError):
            read_compaction(body)


BLOCK = {"type": "compaction", "content": "They go."}
SUMMARY = {"role": "user", "content": [{"type": "text", "content": "They go.", "text": SUMMARY_HEAD + "They go."}]}


@pytest.mark.parametrize("alone", [True, False])
def test_a_summary_stands_for_all_that_is_before_it(alone):
    """Law: what stands before the last block that has a summary is dropped, in its own message as well; what is behind
    it stays. A block that has none stands for nothing."""
    words = {"type": "text", "text": "Done."}
    before = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [BLOCK, words]}]
    behind = [{"role": "user", "content": "And now?"}]
    blocks = [words, BLOCK] if alone else [words, BLOCK, words]

    kept, dropped = drop_compacted([*before, {"role": "assistant", "content": blocks}, *behind])

    assert list(kept) == [SUMMARY, *([] if alone else [{"role": "assistant", "content": [words]}]), *behind]
    assert list(dropped) == before
    for nothing in (None, "", " "):
        failed = [*before[:1], {"role": "assistant", "content": [BLOCK | {"content": nothing}, words]}, *behind]
        assert drop_compacted(failed) == (failed, ())
        assert [message["role"] for message in translate_history(None, failed)] == ["user", "assistant", "user"]


def test_the_history_of_loops_stays_whole():
    """The request as it is parsed has every result: only the prompt does without. The edits travel between processes
    as they are."""
    call = parse([THINKING, FEW])
    copy = codec_of(ChatCall).decode(codec_of(ChatCall).encode(call))

    assert STUB not in [message["content"] for message in call.request.messages]
    assert copy.edits == call.edits
    assert call.notes == ()


def test_the_answer_tells_of_the_edits_that_were_applied():
    """In the message, and in a stream's `message_delta`, as the SDK declares it; an edit without an effect isn't named,
    and who asks for none reads nothing."""
    call = parse([THINKING, FEW])
    request, edited = apply_edits(call.request, call.edits or ())
    run = run_of(request, edited=edited)
    finish = Finish(reason=FinishReason.STOP)
    collector = MESSAGES.collector(call, run)
    collector.take([Text("done")])
    whole = json.loads(collector.body("fast", finish))["context_management"]
    told = BetaContextManagementResponse.model_validate(whole).applied_edits

    assert [(edit.type, edit.cleared_input_tokens > 0) for edit in told] == [
        (THINKING["type"], True),
        (USES["type"], True),
    ]
    assert [message["content"] for message in request.messages].count(STUB) == told[1].cleared_tool_uses == 2
    sent = MESSAGES.writer(call, run).last("fast", finish, {}).decode()
    (frame,) = [frame for frame in sent.split("\n\n") if "message_delta" in frame]
    delta = BetaRawMessageDeltaEvent.model_validate_json(frame.partition("data: ")[2])
    assert delta.context_management.applied_edits == told

    plain = MESSAGES.collector(parse([]), run_of(request))
    assert json.loads(plain.body("fast", finish))["context_management"] == {"applied_edits": []}
