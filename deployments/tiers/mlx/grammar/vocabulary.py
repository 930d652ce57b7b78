"""The bytes of every token of the tokenizer that a tier really uses, as llguidance wants them: a trie.

A grammar speaks of bytes and a model of tokens. The trie between them is built from the very tokenizer that encodes
the prompts and reads the answers, and it is checked before use: what the tokenizer makes of a text with every kind
of character must come back to the byte. A tokenizer that isn't of the `tokenizers` library, or that rewrites its
text, has no vocabulary here (`NoVocabulary`), and its tier can't decode under a grammar.

A *special* token has no text: a grammar names it by its number. Everything else, added tokens included, is text.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from deployments.tiers.mlx.grammar.closing import DELIMITERS

__all__ = ["NoVocabulary", "Vocabulary"]

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
        plain: list[int] = []
        for token in [*tokens, None]:
            if token is not None and not self.trie.is_special_token(token):
                plain.append(token)
                continue
            if plain:
                parts.append(json.dumps(self.trie.decode_str(plain), ensure_ascii=False))
                plain = []
            if token is not None:
                parts.append(f"<[{token}]>")
        return " ".join(parts)
