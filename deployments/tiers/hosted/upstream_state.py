"""What an upstream says of itself in a refusal, where the request is as good as any. Pure. Invariant: the same words,
quoted from the request, say nothing of the tier: no client may open its breaker for the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

import orjson

from reliability.faults import TRAITS
from reliability.types import Fault, Verdict

_THROTTLED = re.compile(r"(?i)\(throttlingexception\)|\btoo many \w+( per day)?, please wait before trying")  # Bedrock
_CREDENTIALS = re.compile(  # Gemini, OpenAI, Anthropic
    r"(?i)\bapi key (is )?(not (valid|found)|invalid|expired)|\b(incorrect|invalid) api key"
    r"|\bcredit balance is too low"
)
# LM Studio.
_GONE = re.compile(
    r"(?i)\bmodel is unloaded\.|\bmodel has crashed without additional information|\bfailed to load model \""
)
_EMPTY = re.compile(r"\bno models loaded\. please load", re.IGNORECASE)
_REFUSED: Collection[int] = (400, 422)
_OWN = (
    (_THROTTLED, range(400, 600), Fault.OVERLOADED),
    (_CREDENTIALS, _REFUSED, Fault.AUTH),
    (_GONE, _REFUSED, Fault.SERVER_ERROR),
    (_EMPTY, _REFUSED, Fault.UNAVAILABLE),
)


def find_own_fault(status: int, words: str, write_asked: Callable[[], bytes]) -> Fault | None:
    """Return the fault of the upstream that its words name; None where they name none, `Fault.UNSUPPORTED` where they
    quote the request. `write_asked` writes that."""
    for pattern, statuses, fault in _OWN:
        if status not in statuses or (found := pattern.search(words)) is None:
            continue
        if TRAITS[fault].verdict is Verdict.FAILURE and _quotes(found[0], write_asked()):
            return Fault.UNSUPPORTED
        return fault
    return None


def _quotes(words: str, asked: bytes) -> bool:
    return words.lower() in "".join(_list_texts(orjson.loads(asked or b"null"))).lower()


def _list_texts(value: Any, *, whole: bool = True) -> Iterator[str]:
    """List the texts of a request, with those that stand in a call's arguments, and the parts of a text joined."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        yield "".join([part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)])
        for inner in value:
            yield from _list_texts(inner, whole=whole)
    elif isinstance(value, str):
        yield value
        if whole and value[:1] in ("{", "["):
            with suppress(orjson.JSONDecodeError):
                yield from _list_texts(orjson.loads(value), whole=False)
