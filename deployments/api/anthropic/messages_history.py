"""A conversation in Anthropic's blocks, as the messages of a chat completion.

The same history is the same messages each time, so that a prompt cache still fits: markers of `cache_control` change no
text, and the line that Claude Code's system prompt changes with each request is dropped. Texts of one message are set
apart by a blank line, since chat templates join parts without one.
Invariant: a block that can't be read is refused by type and path, but for redacted thoughts, which only their maker can
read, and calls that Anthropic's servers have run, with their results: what came of them stands in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from deployments.errors import ApiError, refuse
from deployments.work.json_text import write_json

Block = Mapping[str, Any]
Message = dict[str, Any]

# The line, and the line ends behind it.
BILLING_LINE = re.compile(r"\s*x-anthropic-billing-header:[^\n]*(?:\n+|$)", re.IGNORECASE)
BREAK = "\n\n"
ROLES = ("user", "assistant", "system")
KIND_CHARS_MAX = 60


def translate_history(system: str | Sequence[Any] | None, messages: Sequence[Any]) -> list[Message]:
    """Translate a system prompt and the messages behind it. Raises `ApiError`: `invalid_request` or `unsupported`, with
    the block's path."""
    out = list(_translate_system(system or (), "system", head=True))
    for at, message in enumerate(messages):
        path = f"messages.{at}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise refuse(f"{path}.role", "user, assistant or system is needed")
        content = _read_content(message.get("content"), f"{path}.content")
        out += READERS[role](content, f"{path}.content")
    if messages[-1]["role"] == "assistant":
        words = "this server doesn't continue an assistant's message (prefill): the conversation must end with a user's"
        raise refuse(f"messages.{len(messages) - 1}.role", words, "unsupported")
    return out


def _drop_billing_line(text: str) -> str:
    """Drop the line at the head that changes with each request."""
    found = BILLING_LINE.match(text)
    return text if found is None else text[found.end() :]


def _read_content(content: Any, path: str) -> Sequence[Block]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if not isinstance(content, list):
        raise refuse(path, "a string or a list of blocks is needed")
    for at, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise refuse(f"{path}.{at}.type", "each block needs a type")
    return content


def _translate_system(content: Any, path: str, *, head: bool = False) -> Iterator[Message]:
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(_read_content(content if isinstance(content, str) else list(content), path)):
        if block["type"] != "text":
            raise _refuse_type(block, f"{path}.{at}")
        part = _make_text(block, f"{path}.{at}")
        if head and not parts:
            part["text"] = _drop_billing_line(part["text"])
        parts += [part] if part["text"] else []
    if parts:
        yield {"role": "system", "content": _join_parts(parts)}


def _translate_user(blocks: Sequence[Block], path: str) -> Iterator[Message]:
    """Translate one user message: the results of calls first, as they answer what stands before."""
    beside: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        if block["type"] == "tool_result":
            result, images = translate_result(block, f"{path}.{at}")
            beside += images
            yield result
        else:
            beside += make_parts(block, f"{path}.{at}")
    if beside or not any(block["type"] == "tool_result" for block in blocks):
        yield {"role": "user", "content": _join_parts(beside)}


def translate_result(block: Block, path: str) -> tuple[Message, list[dict[str, Any]]]:
    """Translate the result of a call: its text, and the images and files, for which a tool message has no place. Raises
    as `translate_history`."""
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str) or not call_id:
        raise refuse(f"{path}.tool_use_id", "the id of the call that this answers is needed")
    content = block.get("content")
    inner = _read_content([] if content is None else content, f"{path}.content")
    parts = [part for at, one in enumerate(inner) for part in make_parts(one, f"{path}.content.{at}")]
    texts = [part for part in parts if part["type"] == "text"]
    if block.get("is_error") is True and not any("error" in part["text"].lower() for part in texts):
        texts = [{"type": "text", "text": "Error:"}, *texts]
    if texts and isinstance(block.get("cache_control"), dict):
        texts[-1] = {**texts[-1], "cache_control": block["cache_control"]}
    result = {"role": "tool", "tool_call_id": call_id, "content": _join_parts(texts)}
    return result, [part for part in parts if part["type"] != "text"]


def _translate_assistant(blocks: Sequence[Block], path: str) -> Iterator[Message]:
    texts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        match block["type"]:
            case "text":
                texts.append(_make_text(block, f"{path}.{at}"))
            case "thinking":
                thoughts.append(_read_string(block, "thinking", f"{path}.{at}"))
            case "compaction" if block.get("content") is None:
                continue
            case "redacted_thinking" | "server_tool_use" | "mcp_tool_use":
                continue
            case kind if kind.endswith("_tool_result"):
                continue
            case "tool_use":
                calls.append(make_call(block, f"{path}.{at}"))
            case _:
                raise _refuse_type(block, f"{path}.{at}")
    message: Message = {"role": "assistant", "content": _join_parts(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning_content"] = BREAK.join(thoughts)
    if calls:
        message["tool_calls"] = calls
    yield message


READERS: Mapping[str, Callable[[Sequence[Block], str], Iterator[Message]]] = {
    "user": _translate_user,
    "assistant": _translate_assistant,
    "system": _translate_system,
}


def make_call(block: Block, path: str) -> dict[str, Any]:
    """Make the call of a `tool_use`. Raises as `translate_history`."""
    call_id, name = _read_string(block, "id", path), _read_string(block, "name", path)
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise refuse(f"{path}.input", "an object is needed")
    written = write_json(arguments).decode()
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}


def make_parts(block: Block, path: str) -> list[dict[str, Any]]:
    """Make the parts of a block that a user may send, but for results. Raises as `translate_history`."""
    match block["type"]:
        case "text":
            return [_make_text(block, path)]
        case "image":
            return [{"type": "image_url", "image_url": {"url": _read_source(block.get("source"), f"{path}.source")}}]
        case "document":
            return _make_document(block, path)
        case "search_result":
            title, source = (str(block.get(name) or "") for name in ("title", "source"))
            texts = [_make_text(one, path)["text"] for one in _read_content(block.get("content"), f"{path}.content")]
            return [{"type": "text", "text": "\n".join([f"{title} ({source})", *texts])}]
        case "tool_reference":
            return [{"type": "text", "text": f"Tool: {_read_string(block, 'tool_name', path)}"}]
    raise _refuse_type(block, path)


def _make_text(block: Block, path: str) -> dict[str, Any]:
    part = {"type": "text", "text": _read_string(block, "text", path)}
    if isinstance(block.get("cache_control"), dict):
        part["cache_control"] = block["cache_control"]
    return part


def _read_source(source: Any, path: str) -> str:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "url":
        return _read_string(source, "url", path)
    if kind == "base64":
        return f"data:{_read_string(source, 'media_type', path)};base64,{_read_string(source, 'data', path)}"
    raise refuse(f"{path}.type", "the data by base64 or url is needed", "unsupported")


def _make_document(block: Block, path: str) -> list[dict[str, Any]]:
    """Make the parts of a document: its title and context, then its text and images. One that is neither is a file, for
    models that read them."""
    given, path = block.get("source"), f"{path}.source"
    source = given if isinstance(given, dict) else {}
    title, context = (said if isinstance(said := block.get(name), str) else "" for name in ("title", "context"))
    parts: list[dict[str, Any]] = []
    if source.get("type") == "text":
        parts = [{"type": "text", "text": _read_string(source, "data", path)}]
    elif source.get("type") == "content":
        for at, one in enumerate(_read_content(source.get("content"), f"{path}.content")):
            if one["type"] not in ("text", "image"):
                raise _refuse_type(one, f"{path}.content.{at}")
            parts += make_parts(one, f"{path}.content.{at}")
    else:
        file = {"filename": title or "document.pdf", "file_data": _read_source(source, path)}
        parts, title = [{"type": "file", "file": file}], ""
    head = [{"type": "text", "text": said} for said in (title, context) if said]
    made: list[dict[str, Any]] = []
    for text, group in groupby([*head, *parts], lambda part: part["type"] == "text"):
        run = list(group)
        made += [{"type": "text", "text": "\n".join(part["text"] for part in run)}] if text else run
    return made


def _join_parts(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Join the parts of a content: a lone text is a string, unless a marker stands on it."""
    if not parts:
        return ""
    if len(parts) == 1 and set(parts[0]) == {"type", "text"}:
        return str(parts[0]["text"])
    joined: list[dict[str, Any]] = []
    for part in parts[:-1]:
        ends = part["type"] != "text" or not part["text"] or part["text"].endswith("\n")
        joined.append(part if ends else {**part, "text": part["text"] + BREAK})
    return [*joined, parts[-1]]


def _read_string(fields: Any, name: str, path: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise refuse(f"{path}.{name}", "a string is needed")
    return value


def _refuse_type(block: Block, path: str) -> ApiError:
    """Make the error for a block that nobody here can read."""
    kind = str(block["type"])[:KIND_CHARS_MAX]
    return refuse(f"{path}.type", f"a block of type {kind!r} can't be read by this server", "unsupported")
