"""The parts of a message, inwards: texts, images, files that are text, refusals.

A part that no chat completion could carry is refused by its path. A file is taken where its text stands in the request
itself; this server keeps no files and fetches none.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from deployments.api.openai_responses.field_paths import refuse

TEXTS = ("input_text", "output_text", "text")
TEXT_MEDIA = ("text/", "application/json", "application/xml", "application/x-yaml", "application/yaml")
DETAILS = ("auto", "low", "high", "original")
FILE_NAME_CHARS_MAX = 256


def read_content(content: Any, path: str) -> str | list[dict[str, Any]]:
    """Read what a user, a developer or the system says. Raises `ApiError`: with the path of what is wrong."""
    if isinstance(content, str):
        return content
    parts = [_read_part(part, f"{path}.{place}") for place, part in enumerate(_read_list(content, path))]
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def read_answer(content: Any, path: str) -> str | list[dict[str, Any]]:
    """Read what the assistant has said: one text, or its parts where one is a refusal. Raises as `read_content`."""
    if isinstance(content, str):
        return content
    parts = [_read_part(part, f"{path}.{place}", answer=True) for place, part in enumerate(_read_list(content, path))]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def read_output(output: Any, path: str) -> tuple[str, list[dict[str, Any]]]:
    """Read the output of a tool: its text, and what else it shows. Raises as `read_content`."""
    if isinstance(output, str):
        return output, []
    parts = [_read_part(part, f"{path}.{place}") for place, part in enumerate(_read_list(output, path))]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return "\n".join(texts), [part for part in parts if part["type"] != "text"]


def _read_list(content: Any, path: str) -> list[Any]:
    if not isinstance(content, list):
        raise refuse(path, "a text or a list of parts is needed")
    return content


def _read_part(part: Any, path: str, *, answer: bool = False) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        raise refuse(path, "an object with a type is needed")
    kind = part.get("type")
    if kind in TEXTS:
        return {"type": "text", "text": _read_text(part, "text", path)}
    if answer and kind == "refusal":
        return {"type": "refusal", "refusal": _read_text(part, "refusal", path)}
    if not answer and kind == "input_image":
        return _read_image(part, path)
    if not answer and kind == "input_file":
        return _read_file(part, path)
    known = "output_text or refusal" if answer else "input_text, input_image or input_file"
    shown = f" (got {kind[:64]!r})" if isinstance(kind, str) else ""
    raise refuse(f"{path}.type", f"{known} is needed{shown}")


def _read_text(part: Mapping[str, Any], name: str, path: str) -> str:
    text = part.get(name)
    if not isinstance(text, str):
        raise refuse(f"{path}.{name}", "a text is needed")
    return text


def _read_image(part: Mapping[str, Any], path: str) -> dict[str, Any]:
    url, detail = part.get("image_url"), part.get("detail")
    if url is None and part.get("file_id") is not None:
        raise refuse(f"{path}.file_id", "this server keeps no files: send the image as image_url", "unsupported")
    if not isinstance(url, str) or not url:
        raise refuse(f"{path}.image_url", "a URL is needed, or a data URL with the image itself")
    if detail not in (None, *DETAILS):
        raise refuse(f"{path}.detail", f"one of {', '.join(DETAILS)} is needed")
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
    if not isinstance(name, str) or len(name) > FILE_NAME_CHARS_MAX:
        raise refuse(f"{path}.filename", f"a text of at most {FILE_NAME_CHARS_MAX} characters is needed")
    if not isinstance(data, str):
        raise refuse(f"{path}.file_data", "the file as a data URL is needed")
    return {"type": "text", "text": f"{name}:\n{_decode_text(data, f'{path}.file_data')}"}


def _decode_text(data: str, path: str) -> str:
    head, comma, body = data.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise refuse(path, "a data URL in base64 is needed: data:text/plain;base64,...")
    media = head.removeprefix("data:").partition(";")[0]
    if not media.startswith(TEXT_MEDIA):
        raise refuse(path, f"only files of text can be read here, and this one is {media[:64]!r}", "unsupported")
    try:
        return base64.b64decode(body.encode("ascii"), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise refuse(path, "the base64 of UTF-8 text is needed") from None
