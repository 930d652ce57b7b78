"""What the code of a repository is asked, and how its answer is judged: as a plain value, where none of that code runs.

    Check ── imports, asks ──▶ the sandbox (`confined_tests.py`) computes ── JSON ──▶ decode ──▶ fits(found, answer)

JSON carries None, bool, int, float and str as they are, and everything else as an object of one member: `list` and
`tuple` with their items, `dict` with its pairs, `other` with the name of a type that isn't plain, `raised` with an
exception.

Invariants:
- The right answers never enter the sandbox. Code that forges its answers must know them, and that is the task.
- Nothing that the sandbox sends is run, unpickled or compared by a method of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Check", "Other", "decode_answers", "is_at_least", "is_same"]

SCALARS = (type(None), bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Other:
    """An answer that isn't a plain value: an exception, or an object of another type."""

    words: str

    def __repr__(self) -> str:
        return self.words


def is_same(found: object, answer: object) -> bool:
    """Tell whether two plain values are equal and of the same types throughout: True isn't 1, and 1 isn't 1.0."""
    if type(found) is not type(answer):
        return False
    if isinstance(answer, list | tuple) and isinstance(found, list | tuple):
        return len(found) == len(answer) and all(map(is_same, found, answer))
    if isinstance(answer, dict) and isinstance(found, dict):
        pairs = found.items()
        return len(found) == len(answer) and all(
            any(is_same(key, wanted) and is_same(value, right) for key, value in pairs)
            for wanted, right in answer.items()
        )
    return found == answer or (found != found and answer != answer)


def is_at_least(found: object, answer: object) -> bool:
    """Tell whether the answer is a whole number, and no smaller one."""
    return type(found) is int and type(answer) is int and found >= answer


@dataclass(frozen=True, slots=True)
class Check:
    """One question: statements that import, an expression, and the right answer."""

    imports: str
    asks: str
    answer: Any
    fits: Callable[[object, Any], bool] = is_same


def decode_answers(text: bytes) -> list[Any]:
    """Decode what the sandbox has sent.

    Raises:
        ValueError: it isn't what `confined_tests.py` sends.
    """
    try:
        sent = json.loads(text)
        if type(sent) is not list:
            raise ValueError("no list of answers")
        return [_decode(one) for one in sent]
    except (RecursionError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"answers that can't be read: {type(error).__name__}") from None


def _decode(sent: Any) -> Any:
    if type(sent) in SCALARS:
        return sent
    if type(sent) is not dict or len(sent) != 1:
        raise ValueError("no plain value")
    kind, held = sent.popitem()
    if kind in ("other", "raised") and type(held) is str:
        return Other(held)
    if kind == "dict":
        return {_decode(key): _decode(value) for key, value in held}
    if kind not in ("list", "tuple") or type(held) is not list:
        raise ValueError("no plain value")
    items = [_decode(one) for one in held]
    return items if kind == "list" else tuple(items)
