"""Anthropic's blocks, as the parts, calls and results of chat completions.

Texts of one message are set apart by a blank line, since chat templates join parts without one. Each function raises
`ApiError`, with the block's path: `invalid_request`, or `unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from deployments.api.forms.past import ASKED, Past
from deployments.errors import ApiError, refuse
from deployments.work.json_text import write_json
from reliability.loops.comparison.findings import has_failed
from reliability.loops.content import text_of

Block = Mapping[str, Any]
Message = dict[str, Any]

BREAK = "\n\n"
KIND_CHARS_MAX = 60
_LEFT_OUT = (
    *("redacted_thinking", "server_tool_use", "mcp_tool_use", "mcp_tool_listing"),
    *("fallback", "container_upload"),
)


def read_content(content: Any, path: str, past: Past = ASKED) -> Sequence[Block]:
    """Read a content as blocks, of which a string is one."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if not isinstance(content, list):
        raise refuse(path, "a string or a list of blocks is needed")
    blocks: list[Block] = []
    for at, block in enumerate(content):
        if isinstance(block, dict) and isinstance(block.get("type"), str):
            blocks.append(block)
        else:
            blocks += past.stand_in(refuse(f"{path}.{at}.type", "each block needs a type"), block, answer=True)
    return blocks


def translate_result(block: Block, path: str, past: Past) -> tuple[Message, list[dict[str, Any]]]:
    """Translate the result of a call: its text, and the images and files, for which a tool message has no place. It
    asks nothing, even in the newest turn."""
    call_id = read_string({"tool_use_id": block.get("tool_use_id") or ""}, "tool_use_id", path)
    content = block.get("content")
    past = Past(past.notes)
    inner = read_content([] if content is None else content, f"{path}.content", past)
    parts = [part for at, one in enumerate(inner) for part in make_parts(one, f"{path}.content.{at}", past)]
    texts = [part for part in parts if part["type"] == "text"]
    if block.get("is_error") is True and not has_failed(text_of(texts)):
        texts = [{"type": "text", "text": "Error:"}, *texts]
    if texts and isinstance(block.get("cache_control"), dict):
        texts[-1] = {**texts[-1], "cache_control": block["cache_control"]}
    result = {"role": "tool", "tool_call_id": call_id, "content": join_parts(texts)}
    return result, [part for part in parts if part["type"] != "text"]


def is_left_out(block: Block) -> bool:
    """Tell whether a block of an answer is left out: only its maker can read it, or its outcome stands in the text."""
    kind = block["type"]
    return kind in _LEFT_OUT or kind.endswith("_tool_result") or (kind == "compaction" and block.get("content") is None)


def make_call(block: Block, path: str) -> dict[str, Any]:
    """Make the call of a `tool_use`; one without an id is told by its place (`past_calls`)."""
    call_id, name = read_string({"id": block.get("id") or ""}, "id", path), read_string(block, "name", path)
    arguments = block.get("input")
    written = arguments if isinstance(arguments, str) else write_json(arguments or {}).decode()
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}


def make_parts(block: Block, path: str, past: Past = ASKED) -> list[dict[str, Any]]:
    """Make the parts of a block that a user may send, but for results."""
    try:
        return _make_parts(block, path)
    except ApiError as error:
        return past.stand_in(error, block)


def _make_parts(block: Block, path: str) -> list[dict[str, Any]]:
    match block["type"]:
        case "text":
            return [make_text(block, path)]
        case "image":
            return [{"type": "image_url", "image_url": {"url": _read_source(block.get("source"), f"{path}.source")}}]
        case "document":
            return _make_document(block, path)
        case "search_result":
            title, source = (str(block.get(name) or "") for name in ("title", "source"))
            texts = [make_text(one, path)["text"] for one in read_content(block.get("content"), f"{path}.content")]
            return [{"type": "text", "text": "\n".join([f"{title} ({source})", *texts])}]
        case "tool_reference":
            return [{"type": "text", "text": f"Tool: {read_string(block, 'tool_name', path)}"}]
    raise refuse_type(block, path)


def make_text(block: Block, path: str) -> dict[str, Any]:
    """Make the part of a text, with its marker for the cache."""
    part = {"type": "text", "text": read_string(block, "text", path)}
    if isinstance(block.get("cache_control"), dict):
        part["cache_control"] = block["cache_control"]
    return part


def _read_source(source: Any, path: str) -> str:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "url":
        return read_string(source, "url", path)
    if kind == "base64":
        return f"data:{read_string(source, 'media_type', path)};base64,{read_string(source, 'data', path)}"
    raise refuse(f"{path}.type", "the data by base64 or url is needed", "unsupported")


def _make_document(block: Block, path: str) -> list[dict[str, Any]]:
    """Make the parts of a document: its title and context, then its text and images. One that is neither is a file."""
    given, path = block.get("source"), f"{path}.source"
    source = given if isinstance(given, dict) else {}
    title, context = (said if isinstance(said := block.get(name), str) else "" for name in ("title", "context"))
    parts: list[dict[str, Any]] = []
    if source.get("type") == "text":
        parts = [{"type": "text", "text": read_string(source, "data", path)}]
    elif source.get("type") == "content":
        for at, one in enumerate(read_content(source.get("content"), f"{path}.content")):
            if one["type"] not in ("text", "image"):
                raise refuse_type(one, f"{path}.content.{at}")
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


def join_parts(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
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


def read_string(fields: Any, name: str, path: str) -> str:
    """Read a field that is a string."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise refuse(f"{path}.{name}", "a string is needed")
    return value


def refuse_type(block: Block, path: str) -> ApiError:
    """Make the error for a block that nobody here can read."""
    kind = str(block["type"])[:KIND_CHARS_MAX]
    return refuse(f"{path}.type", f"a block of type {kind!r} can't be read by this server", "unsupported")
