"""Handle the beginnings of answers: a turn opened once more, no words at all, or text that another attempt has written.

`resume` turns text that stands before the client into tokens of the answer, so that grammar, penalties, stop strings
and the seed's stream are where they would be. It may end within a token, and a model that reads half a token continues
otherwise, so its last word is forced byte by byte (`ForcedBytes`) and not sent.

Invariant: no character differs from what stands, and none is missing (`SequenceState` compares).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.lazy_mlx import mx
from deployments.tiers.mlx.grammar.masker import Speller
from deployments.tiers.mlx.sampling import Processor
from deployments.tiers.thinking import ReasoningMarks

_ASKED = [{"role": "user", "content": "x"}]
_MARK_BEGUN = re.compile(r"[Ġ▁ ]?<\|.{0,40}")  # not `<` alone: many models' calls begin with it
_BLANK_TOKENS_MAX = 8  # of white space, behind which an end is an end


def read_turn_start(tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens with which the template opens the model's turn; none where it has no token of its own for it. A
    template that refuses the trial (it wants a system prompt, say) tells nothing, and nothing is taken away."""
    try:
        open_turn, closed = (
            tokenizer.apply_chat_template(_ASKED, add_generation_prompt=to_answer, tokenize=False)
            for to_answer in (True, False)
        )
    except Exception:  # templates are programs, and raise what they like
        return ()
    if not open_turn.startswith(closed):
        return ()
    tokens = tuple(tokenizer.encode(open_turn[len(closed) :], add_special_tokens=False))
    return tokens if tokens and tokens[0] in tokenizer.all_special_ids else ()


def forbid_silence(tokenizer: Any, openers: Sequence[int], prompt_tokens: int) -> Processor:
    """Build a processor under which an answer doesn't end, and doesn't open a turn or whatever else these tokens open,
    before there is a word of it."""
    # Forbidden the token, a model spells it: `<|`, `im`, `_start`, `|>`.
    words, special = tokenizer.get_vocab().items(), set(tokenizer.all_special_ids)
    spelled = [token for text, token in words if token not in special and _MARK_BEGUN.fullmatch(text)]
    banned = mx.array(sorted({*tokenizer.eos_token_ids, *openers, *spelled}))

    def process(tokens: Any, logits: Any) -> Any:
        written = tokens.size - prompt_tokens
        if written >= _BLANK_TOKENS_MAX or (written and tokenizer.decode(tokens[prompt_tokens:].tolist()).strip()):
            return logits
        logits[:, banned] = -mx.inf
        return logits

    return process


# A tokenizer cuts a text into words first, each with the white space before it. What is longer than this isn't one.
_WORD_CHARS_MAX = 64
_LAST_WORD = re.compile(r"\s+\S*\Z|\S+\Z")


@dataclass(frozen=True, slots=True)
class Resumed:
    """The tokens of a begun answer, and the bytes to force behind them (`again`: how many tokens they were)."""

    tokens: tuple[int, ...] = ()
    rest: bytes = b""
    again: int = 0


def resume(
    tokenizer: Any, speller: Speller | None, begun: str, reasoning: str, think: ReasoningMarks | None, *, opened: bool
) -> Resumed:
    """Return the answer that begins with `reasoning` and then `begun`; both empty: one that begins at its beginning.
    Without a `speller` (a tokenizer whose bytes aren't known) its last word is encoded like the rest. `opened`: the
    prompt ends within the reasoning."""
    if not begun:
        return Resumed()
    thought: list[int] = []
    if think is not None and (reasoning or opened):
        text = f"{'' if opened else think.start}{reasoning}{think.closing}"
        thought = tokenizer.encode(text, add_special_tokens=False)
    tokens = list(tokenizer.encode(begun, add_special_tokens=False))
    count = len(tokens)
    word = _LAST_WORD.search(begun[-_WORD_CHARS_MAX:])
    least, rest = len(word[0].encode()) if word and speller else 0, b""
    while speller and tokens and len(rest) < least:
        rest = speller.bytes_of(tokens.pop()) + rest
    return Resumed((*thought, *tokens), rest, count - len(tokens))
