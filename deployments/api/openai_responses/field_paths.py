"""Errors in the client's own words: the path of a chat completion's field becomes the one that the client has sent.

This is for what is found further in than the translation itself. A place in `tools` that can't be known is left out; an
error may come here twice, and what is translated stays as it is.
Invariant: a `param`, and the path that a text begins with, is one of the client's body.
"""

from __future__ import annotations

from collections.abc import Sequence

from deployments.errors import ApiError

RENAMED = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "logprobs": "include",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}


def refuse(path: str, words: str, code: str = "invalid_request") -> ApiError:
    """Make the error of one field; its text begins with the path."""
    return ApiError(code, f"{path}: {words}", param=path)


def translate_error(error: ApiError, places: Sequence[int] | None = None) -> ApiError:
    """Translate an error. `places`: where each tool that was passed on stands in the client's `tools`."""
    if error.param is None:
        return error
    param = translate_path(error.param, places)
    message = error.message
    if message.startswith(f"{error.param}:"):
        message = param + message[len(error.param) :]
    elif message.startswith(f"{(root := error.param.partition('.')[0])}:"):
        message = translate_path(root) + message[len(root) :]
    return ApiError(error.code, message, param=param, retry_after_s=error.retry_after_s)


def translate_path(path: str, places: Sequence[int] | None = None) -> str:
    """Translate the path of one field."""
    parts = path.split(".")
    root = parts[0]
    if root == "messages" or root.startswith("messages["):
        return "input"
    if root == "tools":
        return _translate_tool(parts, places)
    if root == "tool_choice":
        return ".".join(part for part in parts if part not in ("function", "allowed_tools"))
    if root == "response_format":
        return ".".join(["text", "format", *(part for part in parts[1:] if part != "json_schema")])
    return ".".join([RENAMED.get(root, root), *parts[1:]])


def _translate_tool(parts: Sequence[str], places: Sequence[int] | None) -> str:
    if places is None and len(parts) > 2 and parts[1].isdigit() and parts[2] != "function":
        return ".".join(parts)  # the client's own form: it was translated before, where the places were known
    if len(parts) == 1 or places is None or not parts[1].isdigit() or int(parts[1]) >= len(places):
        return "tools"
    inner = parts[3:] if parts[2:3] == ["function"] else parts[2:]
    return ".".join(["tools", str(places[int(parts[1])]), *inner])
