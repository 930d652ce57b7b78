"""From a GGUF file to a folder that mlx-lm loads: weights, config, tokenizer, chat template.

Tensors are dequantized some rows at a time, renamed and written, so a conversion takes a few hundred megabytes whatever
the model's size. The query and key projections of `llama` have the halves of each rotary pair interleaved and are put
back in order; a model without an output matrix ties it to the embedding. The format's library reads on past the end of
a file, so each read is held against the file's end, and each list against a bound (`_open_gguf`).

Invariant: nothing in the file that changes the model's mathematics is left out in silence: an unknown architecture,
tensor, rotary scaling or pre-tokenizer is an error.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from deployments.models.cache_folder import Say, quiet

# Qwen2's own split: a word with the one sign before it, each digit alone, signs with the line ends after them, spaces.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# The kinds of token in `tokenizer.ggml.token_type` that are matched as a whole, never split.
_CONTROL, _USER_DEFINED = 3, 4


class UnknownModel(Exception):
    """The GGUF holds something that this converter can't carry over faithfully."""


def _build_tokenizer(meta: Mapping[str, Any]) -> Any:
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


def _write_tokenizer(meta: Mapping[str, Any], folder: Path, *, chat_template: str | None, context_tokens: int) -> None:
    _build_tokenizer(meta).save(str(folder / "tokenizer.json"))
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


# Part of the name of every converted folder: raise it when the output of this module changes.
CONVERTER = 2
_ENTRIES_MAX = 4_000_000  # of a list in the metadata; a large vocabulary has 300,000

_ENDS = ("<|im_end|>", "<|endoftext|>")

_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_TOP["output.weight"] = "lm_head.weight"
_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROWS = 4096  # at once: an embedding of 150,000 rows would take its own size several times over
_REASON_CHARS_MAX = 200
_BIASED = ("attn_q", "attn_k", "attn_v")
_BLOCK = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class _Architecture:
    """What differs between the architectures. `permuted`: rotary pairs are interleaved. `biased`: with a bias."""

    model_class: str
    permuted: bool
    biased: tuple[str, ...]


_ARCHITECTURES = {
    "llama": _Architecture("LlamaForCausalLM", permuted=True, biased=()),
    "qwen2": _Architecture("Qwen2ForCausalLM", permuted=False, biased=_BIASED),
}


def _open_gguf(path: Path) -> Any:
    """Open the file. Raises ValueError where it ends before its header says so, and what the library raises."""
    import gguf

    class Bounded(gguf.GGUFReader):  # type: ignore[misc]  # it has no types
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            found = super()._get(offset, dtype, count, override_order)
            if len(found) != count:
                raise ValueError("it ends early")
            return found

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type == gguf.GGUFValueType.ARRAY and self._get(orig_offs + 4, "uint64")[0] > _ENTRIES_MAX:
                raise ValueError(f"a list has more than {_ENTRIES_MAX} entries")
            return super()._get_field_parts(orig_offs, raw_type)

    return Bounded(str(path))


def convert(
    gguf_file: Path,
    folder: Path,
    *,
    dtype: str = "float32",
    chat_template: str | None = None,
    say: Say = quiet,
) -> None:
    """Write the model in `gguf_file` into `folder`. `chat_template` replaces the file's own where given."""
    say(f"reading {gguf_file.name}")
    with _refuse_malformed():
        reader = _open_gguf(gguf_file)
        meta = {key: field.contents() for key, field in reader.fields.items()}
        config = _model_config(meta, tied=all(t.name != "output.weight" for t in reader.tensors), dtype=dtype)
    say(f"converting {gguf_file.name}")
    with _refuse_malformed():
        _write_weights(reader.tensors, config, folder, dtype)
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")
        _write_tokenizer(meta, folder, chat_template=chat_template, context_tokens=config["max_position_embeddings"])


def _model_config(meta: Mapping[str, Any], *, tied: bool, dtype: str) -> dict[str, Any]:
    arch = meta["general.architecture"]
    if arch not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise UnknownModel(
            f"the GGUF architecture {arch!r} is not supported here ({known} are); use an hf: or path: source"
        )
    scaling = meta.get(f"{arch}.rope.scaling.type", "none")
    if scaling != "none":
        raise UnknownModel(f"the GGUF's rotary scaling {scaling!r} is not supported here; use an hf: or path: source")
    heads = meta[f"{arch}.attention.head_count"]
    head_dim = meta.get(f"{arch}.attention.key_length", meta[f"{arch}.embedding_length"] // heads)
    return {
        "architectures": [_ARCHITECTURES[arch].model_class],
        "model_type": arch,
        "hidden_size": meta[f"{arch}.embedding_length"],
        "intermediate_size": meta[f"{arch}.feed_forward_length"],
        "num_hidden_layers": meta[f"{arch}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": meta[f"{arch}.context_length"],
        "rms_norm_eps": meta[f"{arch}.attention.layer_norm_rms_epsilon"],
        "rope_theta": meta.get(f"{arch}.rope.freq_base", 10000.0),
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _list_end_tokens(meta),
        "torch_dtype": dtype,
    }


def _list_end_tokens(meta: Mapping[str, Any]) -> list[int]:
    """List every token that ends an answer: the one that the file names, the end of a turn and of a text."""
    ends = [meta["tokenizer.ggml.eos_token_id"]]
    tokens = meta["tokenizer.ggml.tokens"]
    return ends + [tokens.index(t) for t in _ENDS if t in tokens and tokens.index(t) not in ends]


def quantization_name(gguf_file: Path) -> str:
    """Return what most of the file's matrices are stored as: "Q4_1"."""
    kinds: list[str] = [t.tensor_type.name for t in _open_gguf(gguf_file).tensors if len(t.shape) > 1]
    return max(set(kinds), key=kinds.count)


@contextlib.contextmanager
def _refuse_malformed() -> Iterator[None]:
    """Make one error of all that the libraries raise for a file that isn't sound."""
    try:
        yield
    except (UnknownModel, OSError):
        raise
    except Exception as error:  # they check little: a number or a text that is wrong raises where it is used
        why = " ".join(f"{type(error).__name__}: {error}".split())[:_REASON_CHARS_MAX]
        raise UnknownModel(f"it is no sound GGUF file ({why})") from error


def _unpermute(weight: Any, heads: int) -> Any:
    """Undo the interleaving of rotary pairs within each head: rows (i, half) become rows (half, i)."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write_weights(tensors: Any, config: Mapping[str, Any], folder: Path, dtype: str) -> None:
    named = [(_rename_tensor(tensor.name, config), tensor) for tensor in tensors]
    shapes = {name: tuple(int(n) for n in reversed(tensor.shape)) for (name, _), tensor in named}
    wanted = dict(_list_shapes(config))
    for name, shape in wanted.items():
        if shapes.get(name) != shape:
            raise UnknownModel(f"the GGUF's tensor for {name} is missing, or its shape isn't {shape}")
    if len(shapes) != len(wanted):
        raise UnknownModel(f"the GGUF has {len(shapes)} tensors, and the model that it describes {len(wanted)}")

    def produce() -> Iterator[Iterator[Any]]:
        for (_, heads), tensor in tqdm(named, desc="converting", unit="tensor", disable=None):
            yield _dequantize(tensor, heads)

    _write_tensors(folder / "model.safetensors", shapes, produce(), dtype=dtype)


def _list_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, wide, words = config["hidden_size"], config["intermediate_size"], (config["vocab_size"],)
    queries, keys = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
    rows = {"attn_q": queries, "attn_k": keys, "attn_v": keys, "ffn_gate": wide, "ffn_up": wide}
    columns = {"attn_output": queries, "ffn_down": wide}
    for name in _TOP.values():
        if name != _TOP["output.weight"] or not config["tie_word_embeddings"]:
            yield name, (hidden,) if name == _TOP["output_norm.weight"] else (*words, hidden)
    for block in range(config["num_hidden_layers"]):
        for kind, name in _IN_BLOCK.items():
            shape = (hidden,) if kind.endswith("_norm") else (rows.get(kind, hidden), columns.get(kind, hidden))
            yield f"model.layers.{block}.{name}.weight", shape
            if kind in _ARCHITECTURES[config["model_type"]].biased:
                yield f"model.layers.{block}.{name}.bias", (rows[kind],)


def _dequantize(tensor: Any, heads: int) -> Iterator[Any]:
    """Give the tensor's values, rows after rows; in one piece where rows must be put back in order."""
    import gguf

    rows = len(tensor.data)
    step = rows if heads else _ROWS
    for start in range(0, rows, step):
        value = gguf.quants.dequantize(tensor.data[start : start + step], tensor.tensor_type)
        yield _unpermute(value, heads) if heads else value


def _rename_tensor(name: str, config: Mapping[str, Any]) -> tuple[str, int]:
    """Return mlx-lm's name, and the number of heads whose rows must be put back in order (0: none)."""
    if name in _TOP:
        return _TOP[name], 0
    architecture = _ARCHITECTURES[config["model_type"]]
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in _IN_BLOCK or (match[3] == "bias" and match[2] not in architecture.biased):
        raise UnknownModel(f"the GGUF tensor {name!r} is not known here; use an hf: or path: source")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(match[2], 0)
    renamed = f"model.layers.{match[1]}.{_IN_BLOCK[match[2]]}.{match[3]}"
    return renamed, heads if architecture.permuted else 0


_DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2)}
_ALIGNMENT_BYTES = 8


def _write_tensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[Iterable[Any]], *, dtype: str
) -> None:
    """Write `tensors` as `dtype`: each comes as pieces of whole rows, in the order of `shapes`. Raises ValueError where
    one has another shape or their numbers differ."""
    import numpy as np

    with path.open("wb") as file:
        file.write(_build_header(shapes, dtype))
        for (name, shape), pieces in zip(shapes.items(), tensors, strict=True):
            rows = 0
            for piece in pieces:
                rows += len(piece)
                if piece.shape[1:] != shape[1:]:
                    raise ValueError(f"the tensor {name!r} has rows of shape {piece.shape[1:]}, not {shape[1:]}")
                np.ascontiguousarray(piece, dtype=np.dtype(dtype)).tofile(file)
            if rows != shape[0]:
                raise ValueError(f"the tensor {name!r} has {rows} rows, not {shape[0]}")


def _build_header(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> bytes:
    code, width = _DTYPES[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape) * width
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return struct.pack("<Q", len(text)) + text
