"""An answer that another attempt has begun: read as if this model had written it, and gone on with from its last word.

The text that stands before the client becomes tokens of the answer, not of the prompt (`Job.written`): grammar,
penalties, stop strings and the seed's stream are where they would be, as for any sequence that goes on from its record.

    begun    def area(w, h):\\n    retu
    written  def area(w, h):\\n            encoded as it stands; the prompt cache may hold it
    rest            retu                  written once more, letter by letter as it was, and not sent

What stands may end within a token (`retu` of `return`), and tokens that a text would not be cut into lead a model
astray. So its last word isn't encoded but spelled (`grammar/spelling.py`): the same model with the same settings at
temperature 0 draws what it drew before.

What must never happen: a character that differs from what stands, or one that is missing (`SequenceState` compares).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.grammar.spelling import Speller
from deployments.tiers.thinking import Thinking

__all__ = ["Resumed", "resume"]

# A tokenizer cuts a text into words first, each with the white space before it. What is longer than this isn't one.
_WORD_CHARS_MAX = 64
_LAST_WORD = re.compile(r"\s+\S*\Z|\S+\Z")


@dataclass(frozen=True, slots=True)
class Resumed:
    """An answer that has begun: its tokens, and the bytes that are to be written behind them before anything is new;
    `again`: in how many tokens."""

    tokens: tuple[int, ...] = ()
    rest: bytes = b""
    again: int = 0


def resume(
    tokenizer: Any, speller: Speller | None, begun: str, reasoning: str, think: Thinking | None, *, opened: bool
) -> Resumed:
    """Return the answer that begins with `reasoning` and then `begun`; both empty: one that begins at its beginning.

    Without a `speller` (a tokenizer whose bytes aren't known) its last word is encoded like the rest. `opened`: the
    prompt ends within the reasoning.
    """
    if not begun:
        return Resumed()
    thought = _encode_reasoning(tokenizer, reasoning, think, opened=opened)
    tokens = list(tokenizer.encode(begun, add_special_tokens=False))
    count = len(tokens)
    word = _LAST_WORD.search(begun[-_WORD_CHARS_MAX:])
    least, rest = len(word[0].encode()) if word and speller else 0, b""
    while speller and tokens and len(rest) < least:
        rest = speller.bytes_of(tokens.pop()) + rest
    return Resumed((*thought, *tokens), rest, count - len(tokens))


def _encode_reasoning(tokenizer: Any, reasoning: str, think: Thinking | None, *, opened: bool) -> Sequence[int]:
    if think is None or not (reasoning or opened):
        return ()
    text = f"{'' if opened else think.start}{reasoning}{think.closing}"
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return tokens
