"""The tokenizer out of a GGUF file: any text comes back, and unknown rules are refused."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.gguf_tokenizer import UnknownModel, build_tokenizer
from tests.support import tiny_model as tiny

META = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": tiny.TOKENS,
    "tokenizer.ggml.merges": tiny.MERGES,
    "tokenizer.ggml.token_type": tiny.KINDS,
}
TOKENIZER = build_tokenizer(META)


class TestTokenizer:
    @given(st.text())
    def test_any_text_comes_back(self, text: str) -> None:
        """Law: decode(encode(text)) = text, for all of Unicode."""
        ids = TOKENIZER.encode(text, add_special_tokens=False).ids
        assert TOKENIZER.decode(ids, skip_special_tokens=False) == text

    def test_merges_and_digits(self) -> None:
        """Law: merges apply within words, and digits stand alone."""
        assert TOKENIZER.encode("hell a 12").tokens == ["he", "ll", "Ġa", "Ġ", "1", "2"]

    def test_special_tokens_are_never_split(self) -> None:
        """Law: a control token is one token wherever it stands."""
        assert TOKENIZER.encode("a<|im_end|>b").tokens == ["a", "<|im_end|>", "b"]

    @pytest.mark.parametrize(("key", "value"), [("pre", "martian"), ("model", "llama")])
    def test_unknown_rules_are_an_error(self, key: str, value: str) -> None:
        """Law: a tokenizer whose rules aren't known is refused, not approximated."""
        meta: dict[str, Any] = {**META, f"tokenizer.ggml.{key}": value}
        with pytest.raises(UnknownModel, match=value):
            build_tokenizer(meta)


QWEN2 = build_tokenizer({**META, "tokenizer.ggml.pre": "qwen2"})


class TestQwen2:
    @given(st.text())
    def test_any_text_comes_back_composed(self, text: str) -> None:
        """Law: decode(encode(text)) is the text in Unicode's composed form, as Qwen2's own tokenizer has it."""
        ids = QWEN2.encode(text, add_special_tokens=False).ids
        assert QWEN2.decode(ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("it's 2024", ["it", "'s", "Ġ", "2", "0", "2", "4"]),
            ("def f(x):\n\n    y", ["def", "Ġf", "(x", "):ĊĊ", "ĠĠĠ", "Ġy"]),
            ("a  b \n c", ["a", "Ġ", "Ġb", "ĠĊ", "Ġc"]),
            ("DON'T!", ["DON", "'T", "!"]),
        ],
    )
    def test_words_are_split_as_qwen2_splits_them(self, text: str, words: list[str]) -> None:
        """Law: contractions, digits, signs with line ends and runs of spaces are cut as its regular expression says."""
        assert [word for word, _ in QWEN2.pre_tokenizer.pre_tokenize_str(text)] == words
