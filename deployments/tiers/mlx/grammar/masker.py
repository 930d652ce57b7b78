"""Mask the logits of one sequence: llguidance says what may come next, all other logits become -inf.

The mask is computed on the CPU while the forward pass runs. A matcher that falls into an error stays there, and ends
this one sequence (`sampling.Guarded`). A weak model may repeat words up to the limit, which would cut the call: once no
more tokens are left than closing takes, and the last ones repeat, only the token is allowed that closes most, and the
answer's notes say so (`docs/decisions/050-mlx-engine.md`).
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deployments.tiers.lazy_mlx import mx

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
        self.size = int(self.trie.vocab_size)  # the model may have more outputs, which are never allowed
        self._ends = tuple(sorted(tokenizer.eos_token_ids))
        tokens = tokenizer.encode(_PROBE, add_special_tokens=False)
        # Tokenizers in the manner of SentencePiece may put one space before a text.
        if self.trie.decode_bytes(list(tokens)).removeprefix(b" ") != _PROBE.encode():
            raise NoVocabulary("its tokens don't give a text back to the byte")

    def bytes_of(self, token: int) -> bytes:
        """Return what a token adds to the text."""
        return bytes(self.trie.decode_bytes([token]))

    def closers(self) -> tuple[tuple[int, ...], ...]:
        """Return the end tokens, and those that are one delimiter of JSON, by what they close."""
        delimiters = (self.trie.tokenize_str(delimiter) for delimiter in _DELIMITERS)
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


_LOG = logging.getLogger(__name__)

CLOSED_NOTE = "the answer repeated itself up to its limit, and was closed there by the grammar"
REPEATED_NOTE = "the model wrote a call again that was there already: the answer ends before it"
# By what they close; the last ones lead to what is owed, before a model fills the way there with white space.
_DELIMITERS = ('"', "}", "]", ",", ":", "[", "{", "1")
_PERIOD_MAX, _REPETITIONS, _SPAN = 40, 3, 36


@dataclass(frozen=True, slots=True)
class Closers:
    """`ranks`: tokens, those first that close most. `owed_tokens`: what it takes to close this grammar's answers."""

    ranks: tuple[tuple[int, ...], ...]
    owed_tokens: int


class BrokenGrammar(Exception):
    """The grammar fell into an error while decoding: its schema is too large at one place."""


class Masker:
    """The logits processor of one sequence. Lives on the engine thread."""

    def __init__(
        self,
        matcher: Any,
        size: int,
        done: Sequence[int] = (),
        *,
        closers: Closers | None = None,
        tokens_max: int = sys.maxsize,
        closing: bool = False,
    ) -> None:
        self._matcher, self._size = matcher, size
        self._words = np.zeros((size + 31) // 32, dtype=np.int32)
        self._started = False
        self._tokens: list[int] = []
        self._closers, self._tokens_max, self.closing = closers, tokens_max, closing
        for token in done:
            self._move(token)

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Return the logits with everything at -inf that the grammar doesn't allow. `tokens`: all so far."""
        mx.async_eval(logits)  # the model works while the mask is made
        if self._started:  # the last token of the prompt is none of the answer's
            self._move(tokens[-1].item())
        self._started = True
        if self._matcher.is_error():
            raise BrokenGrammar(self._matcher.get_error().partition(";")[0][:300])
        return mx.where(mx.array(self._compute_allowed(logits.shape[-1])), logits, -mx.inf)

    def _move(self, token: int) -> None:
        self._tokens.append(token)
        if not self._matcher.is_error() and not self._matcher.consume_token(token):
            _LOG.error("the grammar doesn't go on: %s", self._matcher.get_error())

    def _compute_allowed(self, width: int) -> Any:
        """Return one truth value per output of the model."""
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        bits = np.unpackbits(self._words.view(np.uint8), count=min(width, self._size), bitorder="little")
        if (closers := self._closers) is not None:
            if not self.closing and self._tokens_max - len(self._tokens) <= closers.owed_tokens:
                self.closing = _is_repeating(self._tokens)
            if self.closing:
                bits = _keep_closers(bits, closers)
        return np.pad(bits, (0, width - len(bits))).view(np.bool_)


def _keep_closers(bits: Any, closers: Closers) -> Any:
    """Keep only the allowed token that closes most; all that are allowed where none closes."""
    for rank in closers.ranks:
        if found := [token for token in rank if token < len(bits) and bits[token]]:
            bits = bits * 0
            bits[found] = 1
            return bits
    return bits


def _is_repeating(tokens: Sequence[int]) -> bool:
    """Return whether the last tokens are at least three times the same few, and at least `_SPAN`."""
    for period in range(1, _PERIOD_MAX + 1):
        span = max(_SPAN, _REPETITIONS * period)
        if len(tokens) < span:
            return False
        if tokens[period - span :] == tokens[-span:-period]:
            return True
    return False
