"""Writing given bytes, whatever the model would rather write: only tokens that go on with them can be drawn.

For the last word of a text that is gone on with (`deployments/tiers/mlx/resuming.py`): it may end within a token, and
a model that reads half a token goes on otherwise than one that wrote the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deployments.tiers.mlx.grammar.vocabulary import Vocabulary

__all__ = ["Speller", "Spelling"]


class Speller:
    """Which tokens go on with given bytes: a table of all tokens by their first byte, made once for a tokenizer."""

    def __init__(self, words: Vocabulary) -> None:
        self._table: dict[int, list[tuple[bytes, int]]] = {}
        self.bytes_of: Callable[[int], bytes] = words.bytes_of
        for token in range(words.size):
            spelled = b"" if words.trie.is_special_token(token) else words.bytes_of(token)
            if spelled:
                self._table.setdefault(spelled[0], []).append((spelled, token))

    def find(self, rest: bytes) -> list[int]:
        """Find the tokens that write a beginning of `rest`, or all of it and more."""
        known = self._table.get(rest[0], [])
        return [token for spelled, token in known if rest.startswith(spelled) or spelled.startswith(rest)]


class Spelling:
    """A processor of logits: until `rest` is written behind the first `before` tokens, nothing else can be."""

    def __init__(self, speller: Speller, rest: bytes, before: int) -> None:
        self._speller, self._rest, self._before = speller, rest, before
        self._done_at = 0  # how many tokens there were when it was written; a record only grows

    def __call__(self, tokens: Any, logits: Any) -> Any:
        if self._done_at and tokens.size >= self._done_at:
            return logits
        written = b"".join(map(self._speller.bytes_of, tokens[self._before :].tolist()))
        rest = self._rest[len(written) :]
        if not rest:
            self._done_at = int(tokens.size)
            return logits
        import mlx.core as mx

        allowed = self._speller.find(rest)
        if not allowed:
            return logits  # a character that it has no tokens for
        masked = mx.full(logits.shape, -mx.inf, logits.dtype)
        masked[:, mx.array(allowed)] = logits[:, mx.array(allowed)]
        return masked
