"""Parts of Responses' messages, as those of chat completions; a file's text must stand in the request.

Each function raises `ApiError`: `invalid_request` or `unsupported`, with the path of what is wrong.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from deployments.api.forms.message_blocks import read_string
from deployments.errors import refuse

_UNREADABLE = "[a text that another server has sealed]"
_SEALED_ELSEWHERE = "gAAAA"
_TEXTS = ("input_text", "output_text", "text")
_TEXT_MEDIA = ("text/", "application/json", "application/xml", "application/x-yaml", "application/yaml")
_DETAILS = ("auto", "low", "high", "original")
_FILE_NAME_CHARS_MAX = 256


def read_part(part: Any, path: str, *, answer: bool = False) -> dict[str, Any]:
    """Read a part, of what the assistant has said (`answer`) or of what others have."""
    if not isinstance(part, Mapping):
        raise refuse(path, "an object with a type is needed")
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": read_string(part, "text", path)}
    if not answer and kind == "encrypted_content":  # what Codex seals is plain where this server's model wrote it
        text = read_string(part, kind, path)
        return {"type": "text", "text": _UNREADABLE if text.startswith(_SEALED_ELSEWHERE) else text}
    if answer and kind == "refusal":
        return {"type": "refusal", "refusal": read_string(part, "refusal", path)}
    if not answer and kind == "input_image":
        return _read_image(part, path)
    if not answer and kind == "input_file":
        return _read_file(part, path)
    known = "output_text or refusal" if answer else "input_text, input_image or input_file"
    shown = f" (got {kind[:64]!r})" if isinstance(kind, str) else ""
    raise refuse(f"{path}.type", f"{known} is needed{shown}")


def _read_image(part: Mapping[str, Any], path: str) -> dict[str, Any]:
    url, detail = part.get("image_url"), part.get("detail")
    if url is None and part.get("file_id") is not None:
        raise refuse(f"{path}.file_id", "this server keeps no files: send the image as image_url", "unsupported")
    if not isinstance(url, str) or not url:
        raise refuse(f"{path}.image_url", "a URL is needed, or a data URL with the image itself")
    if detail not in (None, *_DETAILS):
        raise refuse(f"{path}.detail", f"one of {', '.join(_DETAILS)} is needed")
    return {
        "type": "image_url",
        "image_url": {"url": url} | ({"detail": detail} if detail not in (None, "auto") else {}),
    }


def _read_file(part: Mapping[str, Any], path: str) -> dict[str, Any]:
    for name in ("file_id", "file_url"):
        if part.get(name) is not None:
            words = "this server keeps no files and fetches none: send the text of the file as file_data"
            raise refuse(f"{path}.{name}", words, "unsupported")
    data, name = part.get("file_data"), part.get("filename") or "file"
    if not isinstance(name, str) or len(name) > _FILE_NAME_CHARS_MAX:
        raise refuse(f"{path}.filename", f"a text of at most {_FILE_NAME_CHARS_MAX} characters is needed")
    if not isinstance(data, str):
        raise refuse(f"{path}.file_data", "the file as a data URL is needed")
    head, comma, body = data.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise refuse(f"{path}.file_data", "a data URL in base64 is needed: data:text/plain;base64,...")
    if not head.removeprefix("data:").startswith(_TEXT_MEDIA):
        return {"type": "file", "file": {"filename": name, "file_data": data}}  # for models that read files
    try:
        text = base64.b64decode(body.encode("ascii"), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise refuse(f"{path}.file_data", "the base64 of UTF-8 text is needed") from None
    return {"type": "text", "text": f"{name}:\n{text}"}
