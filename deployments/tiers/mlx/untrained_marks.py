"""Spell the marks of a chat template whose tokens the model has never learned.

A mark such as `<tool_call>` is one token, with a row of weights of its own. Where no training has moved that row it
still equals those of tokens that no text has (in Qwen2.5-Coder, to four digits): the model can neither tell the mark
from them in its prompt nor write it, and answers with whatever comes next best. Spelled in letters it reads the mark
and writes it (docs/decisions/093-untrained-marks.md). Engine thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from deployments.tiers.lazy_mlx import mx

# Rows that were trained are at most .98 alike (the marks of turns of Qwen2.5-Coder), others at least .9999.
_ALIKE = 0.999
_ROWS_MAX = 512  # that a mark is held against


def spell_untrained_marks(model: Any, tokenizer: Any) -> tuple[str, ...]:
    """Have the tokenizer encode in letters the marks that its chat template writes and the model hasn't learned; return
    them. A tokenizer of another library than `tokenizers`, or without a table of its tokens, stays as it is."""
    backend, rows = getattr(tokenizer, "backend_tokenizer", None), _find_embedding(model)
    if backend is None or rows is None:
        return ()
    added, template = tokenizer.added_tokens_decoder, str(tokenizer.chat_template)
    marks = [token for token, one in added.items() if not one.special and one.content in template]
    untrained = {added[token].content for token in _find_untrained(rows, marks, list(added))}
    if not untrained:
        return ()
    spec = orjson.loads(backend.to_str())
    if not isinstance(spec["model"].get("vocab"), dict):
        return ()
    # All of them, else those that stay would be numbered anew; so a token that is drawn is told by its text, too.
    spec["model"]["vocab"].update((one["content"], one["id"]) for one in spec["added_tokens"])
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["content"] not in untrained]
    tokenizer._tokenizer._tokenizer = type(backend).from_str(orjson.dumps(spec).decode())
    return tuple(sorted(untrained))


def _find_embedding(model: Any) -> Any:
    """Find the layer that gives each token its row, packed or not: the one with the most rows."""
    found = [one for _, one in model.named_modules() if type(one).__name__.endswith("Embedding") and "weight" in one]
    return max(found, key=lambda one: len(one["weight"]), default=None)


def _find_untrained(embedding: Any, marks: Sequence[int], added: Sequence[int]) -> list[int]:
    """Find the tokens among `marks` whose row nothing has moved, by the rows of the other `added` tokens and of those
    behind the last, which no text has."""
    count = len(embedding["weight"])
    others = [*(token for token in added if token < count), *range(max(added, default=0) + 1, count)][-_ROWS_MAX:]
    marks = [token for token in marks if token < count]
    if not marks:
        return []
    rows = [np.array(embedding(mx.array(tokens)).astype(mx.float32)) for tokens in (marks, others)]
    units = [one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-9) for one in rows]
    alike = units[0] @ units[1].T >= _ALIKE
    return [mark for mark, same in zip(marks, alike, strict=True) if any(same & (np.array(others) != mark))]
