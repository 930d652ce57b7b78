"""The tokenizer of a GGUF file, rebuilt with the `tokenizers` library.

A GGUF's metadata holds the vocabulary, the merges, the kind of every token and the *name* of the pre-tokenizer, whose
rules are written out below. Only byte-level BPE with a known pre-tokenizer is taken: a wrong split gives a model that
works a little worse and never says so. The class is written as `PreTrainedTokenizerFast`: under other names
transformers rebuilds the tokenizer by rules of its own and ignores part of `tokenizer.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Qwen2's own split: a word with the one sign before it, each digit alone, signs with the line ends after them, spaces.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# The kinds of token in `tokenizer.ggml.token_type` that are matched as a whole, never split.
_CONTROL, _USER_DEFINED = 3, 4


class UnknownModel(Exception):
    """The GGUF holds something that this converter can't carry over faithfully."""


def build_tokenizer(meta: Mapping[str, Any]) -> Any:
    """Build a `tokenizers.Tokenizer` that splits text as the GGUF's metadata says."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    if meta["tokenizer.ggml.model"] != "gpt2":
        raise UnknownModel(f"the GGUF tokenizer {meta['tokenizer.ggml.model']!r} is not byte-level BPE")
    tokens = meta["tokenizer.ggml.tokens"]
    # Merges are "left right"; a byte-level token never holds a raw space, so the first space is the border.
    merges = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = _build_pre_tokenizer(meta["tokenizer.ggml.pre"])
    if meta["tokenizer.ggml.pre"] == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False)])
    return tokenizer


def write_tokenizer(meta: Mapping[str, Any], folder: Path, *, chat_template: str | None, context_tokens: int) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`."""
    build_tokenizer(meta).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_tokens,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(meta.get("tokenizer.ggml.add_bos_token", False)),
    }
    tokens = meta["tokenizer.ggml.tokens"]
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = meta.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            config[f"{role}_token"] = tokens[token_id]
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    template = chat_template if chat_template is not None else meta.get("tokenizer.chat_template")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _build_pre_tokenizer(name: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if name == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "smollm":  # every digit alone, then GPT-2's own split
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if name == "qwen2":
        words = pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated", invert=False)
        return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise UnknownModel(f"the GGUF pre-tokenizer {name!r} is not known here; use an hf: or path: source")
