"""A tokenizer's tokens by their bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.vocabulary import NoVocabulary, Vocabulary
from tests.support import tiny_model as tiny
from tests.support.minds import Thinker


class TestVocabulary:
    def test_every_token_gives_its_bytes(self, tokenizer: Any) -> None:
        """Law: each of the 256 bytes and each merge is the token that the model means by it."""
        words = Vocabulary(tokenizer)
        alphabet = {char: byte for byte, char in enumerate(tiny.byte_alphabet())}
        for i, token in enumerate(tiny.TOKENS[len(tiny.SPECIAL) :], start=len(tiny.SPECIAL)):
            if alphabet[token[0]] == 0xFF:
                continue  # llguidance marks special tokens by it; no text has this byte
            assert words.bytes_of(i) == bytes(alphabet[char] for char in token)

    @settings(deadline=None)
    @given(st.text(max_size=40))
    def test_any_text_comes_back(self, tokenizer: Any, text: str) -> None:
        """Law: what the tier's tokenizer encodes, the trie reads to the byte."""
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assume(not any(token < len(tiny.SPECIAL) for token in tokens))
        assert Vocabulary(tokenizer).trie.decode_bytes(tokens) == text.encode()

    def test_a_literal_names_special_tokens_by_number(self, tokenizer: Any) -> None:
        """Law: text stays text, a special token is its number."""
        words = Vocabulary(tokenizer)
        assert words.literal('<tool_call>"é') == '"<tool_call>\\"é"'
        assert words.literal("a<|im_end|>b") == '"a" <[2]> "b"'

    def test_a_tokenizer_that_rewrites_its_text_is_refused(self, tokenizer: Any) -> None:
        """Law: a vocabulary that isn't true to the byte is none."""

        class Shouting(Thinker):
            def encode(self, text: str, **options: Any) -> Any:
                return tokenizer.encode(text.upper(), **options)

        with pytest.raises(NoVocabulary, match="byte"):
            Vocabulary(Shouting(tokenizer, "", ""))
