"""`context_management` of Anthropic's Messages: the edits that a request asks for, and what is told of those done.

Tokens are estimated at four bytes each, so that the same history is always edited alike. A `compaction` block that
comes back stands for all that is before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deployments.api.forms.message_blocks import KIND_CHARS_MAX
from deployments.api.openai_chat import TOOLS_MAX
from deployments.errors import refuse
from reliability.answer.estimate import BYTES_PER_TOKEN_USUAL
from reliability.context_edits import Cleared, ClearResults, ClearThoughts, Edit
from reliability.summaries import SUMMARY_HEAD, SUMMARY_ORDER, Compaction

BLOCK = "compaction"
_EDITS_MAX = 16
_COMPACT_TOKENS = 150_000


_Names = Annotated[list[str], Field(max_length=TOOLS_MAX)]


class _Part(BaseModel):
    """A part of an edit; null is as good as absent."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        return {name: one for name, one in given.items() if one is not None} if isinstance(given, dict) else given


class _Tokens(_Part):
    type: Literal["input_tokens"]
    value: int = Field(ge=0, le=10**9)


class _Uses(_Part):
    type: Literal["tool_uses"]
    value: int = Field(ge=0, le=10**9)


class _Turns(_Part):
    type: Literal["thinking_turns"]
    value: int = Field(ge=1, le=10**9)


class _All(_Part):
    type: Literal["all"]


class _ClearToolUses(_Part):
    trigger: Annotated[_Tokens | _Uses, Field(discriminator="type")] = _Tokens(type="input_tokens", value=100_000)
    keep: _Uses = _Uses(type="tool_uses", value=3)
    clear_at_least: _Tokens | None = None
    exclude_tools: _Names | None = None
    clear_tool_inputs: bool | _Names | None = None

    def rule(self) -> ClearResults:
        inputs = self.clear_tool_inputs
        tokens = isinstance(self.trigger, _Tokens)
        return ClearResults(
            bytes_over=self.trigger.value * BYTES_PER_TOKEN_USUAL if tokens else None,
            uses_over=None if tokens else self.trigger.value,
            bytes_least=self.clear_at_least.value * BYTES_PER_TOKEN_USUAL if self.clear_at_least else 0,
            keep=self.keep.value,
            spared=frozenset(self.exclude_tools or ()),
            inputs=None if inputs is True else frozenset(inputs or ()),
        )


class _ClearThinking(_Part):
    keep: Annotated[_Turns | _All, Field(discriminator="type")] | Literal["all"] = _Turns(
        type="thinking_turns", value=1
    )

    def rule(self) -> ClearThoughts | None:
        return ClearThoughts(keep=self.keep.value) if isinstance(self.keep, _Turns) else None


class _Compact(_Part):
    trigger: _Tokens | None = None
    pause_after_compaction: bool | None = None
    instructions: str | None = None

    def rule(self) -> Compaction:
        tokens = self.trigger.value if self.trigger else _COMPACT_TOKENS
        order = self.instructions if self.instructions and self.instructions.strip() else SUMMARY_ORDER
        pauses = self.pause_after_compaction is True
        return Compaction(bytes_over=tokens * BYTES_PER_TOKEN_USUAL, order=order, pauses=pauses)


_KNOWN: Mapping[str, type[_ClearToolUses | _ClearThinking | _Compact]] = {
    "clear_tool_uses_20250919": _ClearToolUses,
    "clear_thinking_20251015": _ClearThinking,
    "compact_20260112": _Compact,
}


def read_edits(management: Mapping[str, Any] | None) -> tuple[tuple[Edit, ...] | None, Compaction | None]:
    """Read the edits, None where none are asked for, and the compaction. Raises `ApiError`: `invalid_request`;
    `unsupported`: an edit that this server doesn't know."""
    if management is None:
        return None, None
    edits = management.get("edits") or []
    if not isinstance(edits, list) or len(edits) > _EDITS_MAX:
        raise refuse("context_management.edits", f"a list of at most {_EDITS_MAX} edits is needed")
    found = [_read_edit(edit, f"context_management.edits.{at}") for at, edit in enumerate(edits)]
    compaction = next((rule for rule in found if isinstance(rule, Compaction)), None)
    return tuple(rule for rule in found if isinstance(rule, Edit)), compaction


def read_compaction(wanted: Mapping[str, Any]) -> Compaction:
    """Read `compaction`, which asks for the summary alone. Raises `ApiError`: `invalid_request`."""
    if wanted.get("type") != "summarize":
        raise refuse("compaction.type", "summarize is needed")
    rule: Compaction = _read_rule(_Compact, {"instructions": wanted.get("instructions")}, "compaction")
    return replace(rule, bytes_over=0, pauses=True)


def drop_compacted(messages: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the messages with the last `compaction` block's summary for all before it, and what was dropped. A block
    without a summary stands for nothing."""
    for at in range(len(messages) - 1, -1, -1):
        blocks = messages[at].get("content") if isinstance(messages[at], dict) else None
        if not isinstance(blocks, list) or messages[at].get("role") != "assistant":
            continue
        for place in range(len(blocks) - 1, -1, -1):
            block = blocks[place]
            summary = block.get("content") if isinstance(block, dict) and block.get("type") == BLOCK else None
            if isinstance(summary, str) and summary.strip():
                told = {**block, "type": "text", "text": SUMMARY_HEAD + summary}
                behind = blocks[place + 1 :]
                rest = [{**messages[at], "content": behind}] if behind else []
                return [{"role": "user", "content": [told]}, *rest, *messages[at + 1 :]], messages[:at]
    return messages, ()


def _read_edit(edit: Any, path: str) -> Edit | Compaction | None:
    kind = str(edit.get("type")) if isinstance(edit, Mapping) else ""
    known = _KNOWN.get(kind)
    if known is None:
        raise refuse(f"{path}.type", f"this server can't honour {kind[:KIND_CHARS_MAX]!r}", "unsupported")
    rule: Edit | Compaction | None = _read_rule(known, edit, path)
    return rule


def _read_rule(known: type[_ClearToolUses | _ClearThinking | _Compact], edit: Any, path: str) -> Any:
    try:
        return known.model_validate(edit).rule()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise refuse(f"{path}.{first['loc'][0] if first['loc'] else 'type'}", first["msg"]) from None


def describe_edits(edits: Sequence[Edit], done: Sequence[Cleared]) -> dict[str, Any]:
    """Describe what was cleared, as an answer tells it: only those edits that have cleared something."""
    applied: list[dict[str, Any]] = []
    for edit, cleared in zip(edits, done, strict=True):
        kind, counted = "clear_tool_uses_20250919", "cleared_tool_uses"
        if isinstance(edit, ClearThoughts):
            kind, counted = "clear_thinking_20251015", "cleared_thinking_turns"
        if cleared.count:
            applied.append({"type": kind, counted: cleared.count, "cleared_input_tokens": cleared.tokens})
    return {"applied_edits": applied}
