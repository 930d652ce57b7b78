"""Map tokens to bytes for llguidance, and force given bytes to be written.

The trie is built from the tokenizer that encodes the prompts, and checked: a text with every kind of character must
come back to the byte. Tokenizers that fail this have no vocabulary (`NoVocabulary`), and no grammar. A special token
has no text: a grammar names it by its number.

`ForcedBytes` writes the last word of a resumed text (`answer_start.py`), which may end within a token.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

from deployments.tiers.lazy_mlx import mx
from deployments.tiers.mlx.grammar.masker import DELIMITERS

# Two-, three- and four-byte characters, white space, and what JSON is made of.
_PROBE = 'A é ß\t日本語 😀\n{"k": [1, "\\u00e9"]}</x>'


class NoVocabulary(Exception):
    """This tokenizer's tokens have no known bytes. The message is fit for clients."""


class Vocabulary:
    """The trie of one tokenizer of mlx-lm's. Read-only once it is built; may be shared by threads."""

    def __init__(self, tokenizer: Any) -> None:
        try:
            from llguidance import LLTokenizer
        except ImportError as error:
            raise NoVocabulary("the package llguidance can't be imported (`pip install llguidance`)") from error
        backend = copy.copy(getattr(tokenizer, "backend_tokenizer", None))
        if backend is None:
            raise NoVocabulary("its tokenizer is none of the `tokenizers` library")
        backend.no_padding()
        backend.no_truncation()
        try:
            self.trie = LLTokenizer(backend.to_str(), eos_token=sorted(tokenizer.eos_token_ids))
        except ValueError as error:
            raise NoVocabulary(f"its tokenizer is of a kind that llguidance doesn't read ({error})") from error
        self._ends = tuple(sorted(tokenizer.eos_token_ids))
        tokens = tokenizer.encode(_PROBE, add_special_tokens=False)
        # Tokenizers in the manner of SentencePiece may put one space before a text.
        if self.trie.decode_bytes(list(tokens)).removeprefix(b" ") != _PROBE.encode():
            raise NoVocabulary("its tokens don't give a text back to the byte")

    @property
    def size(self) -> int:
        """How many tokens there are; the model may have more outputs, which are never allowed."""
        return int(self.trie.vocab_size)

    def bytes_of(self, token: int) -> bytes:
        """Return what a token adds to the text."""
        return bytes(self.trie.decode_bytes([token]))

    def closers(self) -> tuple[tuple[int, ...], ...]:
        """Return the end tokens, and those that are one delimiter of JSON, by what they close."""
        delimiters = (self.trie.tokenize_str(delimiter) for delimiter in DELIMITERS)
        return (self._ends, *(tuple(tokens) for tokens in delimiters if len(tokens) == 1))

    def literal(self, text: str) -> str:
        """Write a text as a grammar in Lark form has it, special tokens by their number."""
        tokens = self.trie.tokenize_str(text, parse_special=True)
        if not any(map(self.trie.is_special_token, tokens)):
            return json.dumps(text, ensure_ascii=False)
        parts: list[str] = []
        for special, run in itertools.groupby(tokens, self.trie.is_special_token):
            if special:
                parts += [f"<[{token}]>" for token in run]
            else:
                parts.append(json.dumps(self.trie.decode_str(list(run)), ensure_ascii=False))
        return " ".join(parts)


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


class ForcedBytes:
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

        allowed = self._speller.find(rest)
        if not allowed:
            return logits  # a character that it has no tokens for
        masked = mx.full(logits.shape, -mx.inf, logits.dtype)
        masked[:, mx.array(allowed)] = logits[:, mx.array(allowed)]
        return masked
