"""A conversation in Anthropic's blocks, as the messages of a chat completion.

The same history is the same messages each time, so that a prompt cache still fits: the line that Claude Code's system
prompt changes with each request is dropped. A system message behind a user's words goes before them, so that a weak
model reads the request last (decision 056), unless it leaves with the next user's message.

Invariant: a block that can't be read is refused by type and path where the newest turn asks by it, and in a system
message (Claude Code declares its tools in another way then); anywhere else it is left out with a note, but for those
that `is_left_out` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from deployments.api.forms.message_blocks import (
    BREAK,
    Block,
    Message,
    is_left_out,
    join_parts,
    make_call,
    make_parts,
    make_text,
    read_content,
    read_string,
    refuse_type,
    translate_result,
)
from deployments.api.forms.past import Past, find_user
from deployments.errors import ApiError, refuse

# The line, and the line ends behind it.
_BILLING_LINE = re.compile(r"\s*x-anthropic-billing-header:[^\n]*(?:\n+|$)", re.IGNORECASE)
_ROLES = ("user", "assistant", "system")


def translate_history(
    system: str | Sequence[Any] | None, messages: Sequence[Any], notes: dict[str, None] | None = None
) -> list[Message]:
    """Translate a system prompt and the messages behind it. `notes` takes what is left out. Raises `ApiError`:
    `invalid_request` or `unsupported`."""
    out = list(_translate_system(system or (), "system", head=True))
    further: dict[int, list[Message]] = {}  # answers of one turn, by the place of its first
    user_last, notes, role = find_user(messages), {} if notes is None else notes, None
    for at, message in enumerate(messages):
        last_role, role = role, message.get("role") if isinstance(message, dict) else None
        past = Past(notes, asks=at in (user_last, len(messages) - 1) or role == "system")
        transient = role == "system" and message.get("clear_at") == "next_user_message"
        if transient and at < user_last:
            continue
        try:
            read = list(_translate_message(message, role, f"messages.{at}", past))
        except ApiError as error:
            past.leave_out(error)
            continue
        if role == last_role == "assistant" and out and out[-1].get("tool_calls"):
            further.setdefault(len(out) - 1, []).extend(read)
            continue
        before = role == "system" and not transient and out[-1:] and out[-1]["role"] == "user"
        place = len(out) - 1 if before else len(out)
        out[place:place] = read
    for place, answers in further.items():
        out[place] = _join_answers([out[place], *answers])
    if messages[-1]["role"] == "assistant":
        words = "this server doesn't continue an assistant's message (prefill): the conversation must end with a user's"
        raise refuse(f"messages.{len(messages) - 1}.role", words, "unsupported")
    return out


def _translate_message(message: Any, role: Any, path: str, past: Past) -> Iterator[Message]:
    if role not in _ROLES:
        raise refuse(f"{path}.role", "user, assistant or system is needed")
    content = message.get("content")
    if content is None and role == "system" and message.get("output_config"):
        content = []  # settings alone
    return _READERS[role](read_content(content, f"{path}.content", past), f"{path}.content", past)


def _drop_billing_line(text: str) -> str:
    found = _BILLING_LINE.match(text)
    return text if found is None else text[found.end() :]


def _translate_system(content: Any, path: str, _: Past | None = None, *, head: bool = False) -> Iterator[Message]:
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(read_content(content if isinstance(content, str) else list(content), path)):
        if block["type"] != "text":
            raise refuse_type(block, f"{path}.{at}")
        part = make_text(block, f"{path}.{at}")
        if head and not parts:
            part["text"] = _drop_billing_line(part["text"])
        parts += [part] if part["text"] else []
    if parts:
        yield {"role": "system", "content": join_parts(parts)}


def _translate_user(blocks: Sequence[Block], path: str, past: Past) -> Iterator[Message]:
    """Translate one user message: the results of calls first, as they answer what stands before."""
    beside: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        if block["type"] != "tool_result":
            beside += make_parts(block, f"{path}.{at}", past)
            continue
        try:
            result, images = translate_result(block, f"{path}.{at}", past)
        except ApiError as error:
            past.leave_out(error)
        else:
            beside += images
            yield result
    if beside or not any(block["type"] == "tool_result" for block in blocks):
        yield {"role": "user", "content": join_parts(beside)}


def _translate_assistant(blocks: Sequence[Block], path: str, past: Past) -> Iterator[Message]:
    texts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        try:
            match block["type"]:
                case "text":
                    texts.append(make_text(block, f"{path}.{at}"))
                case "thinking":
                    thoughts.append(read_string(block, "thinking", f"{path}.{at}"))
                case "tool_use":
                    calls.append(make_call(block, f"{path}.{at}"))
                case _ if not is_left_out(block):
                    raise refuse_type(block, f"{path}.{at}")
        except ApiError as error:
            texts += past.stand_in(error, block, answer=True)
    message: Message = {"role": "assistant", "content": join_parts(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning_content"] = BREAK.join(thoughts)
    if calls:
        message["tool_calls"] = calls
    yield message


def _join_answers(answers: Sequence[Message]) -> Message:
    """Join messages, which Anthropic reads as one turn: the results of the first one's calls stand behind all."""
    said = (each["content"] for each in answers if each["content"])
    parts = [[{"type": "text", "text": one}] if isinstance(one, str) else one for one in said]
    thoughts = [each["reasoning_content"] for each in answers if "reasoning_content" in each]
    joined = answers[0] | {"content": join_parts([*chain.from_iterable(parts)]) or None}
    joined |= {"reasoning_content": BREAK.join(thoughts)} if thoughts else {}
    return joined | {"tool_calls": [call for each in answers for call in each.get("tool_calls", ())]}


_READERS: Mapping[str, Callable[[Sequence[Block], str, Past], Iterator[Message]]] = {
    "user": _translate_user,
    "assistant": _translate_assistant,
    "system": _translate_system,
}
