"""The converter from GGUF: what was in the file is in the folder, and nothing is left out in silence."""

import contextlib
import json
import struct
import tempfile
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf as gguf_lib
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from deployments.models.gguf import (
    _ENTRIES_MAX,
    UnknownModel,
    _build_tokenizer,
    _model_config,
    _open_gguf,
    _unpermute,
    _write_tensors,
    convert,
    quantization_name,
)
from tests.support import tiny_model as tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("gguf") / "tiny")


class TestWeights:
    @given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
    def test_unpermute_undoes_the_interleaving(self, heads: int, half: int, columns: int) -> None:
        """Law: _unpermute(permute(w)) = w for every shape."""
        weight = np.arange(heads * 2 * half * columns).reshape(heads * 2 * half, columns)
        assert (_unpermute(tiny.permuted(weight, heads), heads) == weight).all()

    def test_every_tensor_arrives_with_its_values(self, folder: Path) -> None:
        """Law: each tensor of the file stands under mlx-lm's name, in its rows' order, within quantization error."""
        got, sent = load_file(folder / "model.safetensors"), tiny.weights()
        assert len(got) == len(sent)
        np.testing.assert_array_equal(got["model.layers.1.self_attn.q_proj.weight"], sent["blk.1.attn_q.weight"])
        np.testing.assert_array_equal(got["model.layers.0.self_attn.k_proj.weight"], sent["blk.0.attn_k.weight"])
        np.testing.assert_array_equal(got["model.embed_tokens.weight"], sent["token_embd.weight"])
        value = got["model.layers.0.self_attn.v_proj.weight"]
        np.testing.assert_allclose(value, sent["blk.0.attn_v.weight"], atol=0.01)

    def test_the_config_says_what_the_metadata_says(self, folder: Path) -> None:
        """Law: sizes, heads and context come from the file; no output matrix means tied embeddings."""
        config = json.loads((folder / "config.json").read_text())
        wanted = {
            "hidden_size": tiny.HIDDEN,
            "num_attention_heads": tiny.HEADS,
            "num_key_value_heads": tiny.KV_HEADS,
            "head_dim": tiny.HEAD_DIM,
            "max_position_embeddings": tiny.CONTEXT,
            "tie_word_embeddings": True,
            "eos_token_id": [2, 0],
        }
        assert {key: config[key] for key in wanted} == wanted

    def test_many_rows_arrive_as_few_do(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: a tensor that is converted in several pieces is the same tensor."""
        monkeypatch.setattr("deployments.models.gguf._ROWS", 3)
        in_pieces = tiny.write_folder(tmp_path / "tiny")
        assert (in_pieces / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"extra": {"blk.0.rope_freqs.weight": np.ones(8, np.float32)}}, "rope_freqs"),
            ({"extra": tiny.biases()}, r"attn_q\.bias"),
            ({"arch": "mamba"}, "mamba"),
        ],
    )
    def test_what_is_not_known_is_an_error(self, tmp_path: Path, given: dict[str, Any], words: str) -> None:
        """Law: only architectures whose mathematics are known here are taken; a tensor that can't be carried over, such
        as a bias that mlx-lm's model has no place for, stops the conversion."""
        tiny.write_gguf(tmp_path / "m.gguf", **given)
        with pytest.raises(UnknownModel, match=words):
            convert(tmp_path / "m.gguf", tmp_path)

    def test_a_rotary_scaling_is_an_error(self) -> None:
        """Law: a scaling that would be lost is refused."""
        meta = {"general.architecture": "llama", "llama.rope.scaling.type": "yarn"}
        with pytest.raises(UnknownModel, match="yarn"):
            _model_config(meta, tied=True, dtype="float32")

    def test_the_quantization_is_that_of_most_matrices(self, tmp_path: Path) -> None:
        """Law: the name in reports is the commonest storage of the file's matrices."""
        tiny.write_gguf(tmp_path / "m.gguf")
        assert quantization_name(tmp_path / "m.gguf") == gguf_lib.GGMLQuantizationType.F32.name


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as `qwen2`: with biases, and with an output matrix of its own."""
    folder = tmp_path_factory.mktemp("qwen2")
    extra = tiny.biases() | {"output.weight": tiny.weights(seed=7)["token_embd.weight"]}
    tiny.write_gguf(folder / "tiny.gguf", arch="qwen2", pre="qwen2", extra=extra)
    convert(folder / "tiny.gguf", folder)
    return folder


class TestQwen2:
    def test_rows_stay_in_their_order(self, qwen2: Path) -> None:
        """Law: nothing is permuted, and the biases of query, key and value are there."""
        got, sent = load_file(qwen2 / "model.safetensors"), tiny.weights() | tiny.biases()
        np.testing.assert_array_equal(got["model.layers.1.self_attn.q_proj.weight"], sent["blk.1.attn_q.weight"])
        np.testing.assert_array_equal(got["model.layers.0.self_attn.k_proj.weight"], sent["blk.0.attn_k.weight"])
        for ours, theirs in (("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v")):
            np.testing.assert_array_equal(got[f"model.layers.1.self_attn.{ours}.bias"], sent[f"blk.1.{theirs}.bias"])
        assert len(got) == len(sent) + 1

    def test_an_output_matrix_is_not_tied(self, qwen2: Path, tmp_path: Path) -> None:
        """Law: where the file has an output matrix it is taken, else the embedding is."""
        assert json.loads((qwen2 / "config.json").read_text())["tie_word_embeddings"] is False
        sent = tiny.weights(seed=7)["token_embd.weight"]
        np.testing.assert_array_equal(load_file(qwen2 / "model.safetensors")["lm_head.weight"], sent)
        tiny.write_gguf(tmp_path / "m.gguf", arch="qwen2", pre="qwen2", extra=tiny.biases())
        convert(tmp_path / "m.gguf", tmp_path)
        assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is True

    def test_both_end_tokens_end_an_answer(self, qwen2: Path) -> None:
        """Law: the end of a turn and the end of a text are both ends, whichever of them the file names."""
        config = json.loads((qwen2 / "config.json").read_text())
        assert (config["model_type"], config["eos_token_id"]) == ("qwen2", [2, 0])

    @pytest.mark.model
    def test_it_computes_what_the_architecture_says(self, qwen2: Path) -> None:
        """Law: mlx-lm loads the folder as `qwen2`, and each bias changes what it computes."""
        # In a thread of its own, as in the engine: what MLX has compiled belongs to its thread, and the main thread
        # lets go of that only when there is no interpreter any more, which ends the process by a signal.
        with ThreadPoolExecutor(1) as thread:
            module, difference = thread.submit(_compute_without_a_bias, qwen2).result()
        assert module.endswith(".qwen2")
        assert difference > 0


def _compute_without_a_bias(folder: Path) -> tuple[str, float]:
    """Return the module of the folder's model, and how far its answer moves when one bias is taken away."""
    from mlx_lm import load

    model, _ = load(str(folder))
    tokens = mx.array([[3, 4, 5]])
    before = model(tokens)
    model.model.layers[0].self_attn.v_proj.bias = mx.zeros_like(model.model.layers[0].self_attn.v_proj.bias)
    return type(model).__module__, float(mx.abs(before - model(tokens)).max())


META = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": tiny.TOKENS,
    "tokenizer.ggml.merges": tiny.MERGES,
    "tokenizer.ggml.token_type": tiny.KINDS,
}
TOKENIZER = _build_tokenizer(META)
QWEN2 = _build_tokenizer({**META, "tokenizer.ggml.pre": "qwen2"})


class TestTokenizer:
    @pytest.mark.parametrize("tokenizer", [TOKENIZER, QWEN2])
    @given(text=st.text())
    def test_any_text_comes_back(self, tokenizer: Any, text: str) -> None:
        """Law: decode(encode(text)) = text for all of Unicode, in its composed form where Qwen2's tokenizer has it."""
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        whole = unicodedata.normalize("NFC", text) if tokenizer is QWEN2 else text
        assert tokenizer.decode(ids, skip_special_tokens=False) == whole

    def test_merges_digits_and_special_tokens(self) -> None:
        """Law: merges apply within words, digits stand alone, and a control token is never split."""
        assert TOKENIZER.encode("hell a 12").tokens == ["he", "ll", "Ġa", "Ġ", "1", "2"]
        assert TOKENIZER.encode("a<|im_end|>b").tokens == ["a", "<|im_end|>", "b"]

    @pytest.mark.parametrize(("key", "value"), [("pre", "martian"), ("model", "llama")])
    def test_unknown_rules_are_an_error(self, key: str, value: str) -> None:
        """Law: a tokenizer whose rules aren't known is refused, not approximated."""
        meta: dict[str, Any] = {**META, f"tokenizer.ggml.{key}": value}
        with pytest.raises(UnknownModel, match=value):
            _build_tokenizer(meta)

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


SHAPES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), min_size=1, max_size=5)


@given(SHAPES, st.integers(1, 4), st.sampled_from(["float32", "float16"]))
def test_what_is_written_is_read(shapes, rows, dtype):
    """Any tensors, in pieces of any number of rows, come back with their shapes and values."""
    tensors = {f"t{i}": np.random.default_rng(i).normal(size=shape).astype(dtype) for i, shape in enumerate(shapes)}
    pieces = ([value[at : at + rows] for at in range(0, len(value), rows)] for value in tensors.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        _write_tensors(path, {name: value.shape for name, value in tensors.items()}, pieces, dtype=dtype)
        got = load_file(path)

    assert got.keys() == tensors.keys()
    for name, value in tensors.items():
        np.testing.assert_array_equal(got[name], value)
        assert got[name].dtype == value.dtype


@pytest.mark.parametrize("wrong", [(3, 2), (2, 3), (4, 2)])
def test_another_shape_is_an_error(tmp_path, wrong):
    """A tensor that isn't what the header says is never written as if it were."""
    shapes = {"t": (2, 2)}
    with pytest.raises(ValueError, match="'t' has"):
        _write_tensors(tmp_path / "m", shapes, [[np.zeros(wrong, np.float32)]], dtype="float32")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "tiny.gguf"
    tiny.write_gguf(path)
    return path.read_bytes()


def put(folder: Path, raw: bytes) -> Path:
    path = folder / "bad.gguf"
    path.write_bytes(raw)
    return path


def find_list_length(raw: bytes, key: str) -> int:
    """Return where the length of a list in the metadata stands: behind the key, its type and that of its entries."""
    return raw.index(key.encode()) + len(key) + 8


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_cut_or_changed_is_one_error(good, tmp_path_factory, data):
    """Law: a file that is cut off is refused; one with other bytes in its header is refused in the same words, or it is
    a model."""
    folder = tmp_path_factory.mktemp("bad")
    if data.draw(st.booleans()):
        path = put(folder, good[: data.draw(st.integers(0, len(good) - 1))])
        with pytest.raises(UnknownModel, match="no sound GGUF file"):
            convert(path, folder)
        return
    at = data.draw(st.integers(0, find_list_length(good, "tokenizer.ggml.tokens")))
    count = data.draw(st.one_of(st.sampled_from([0, 2**31, 2**40, 2**63]), st.integers(0, 2**64 - 1)))
    path = put(folder, good[:at] + struct.pack("<Q", count) + good[at + 8 :])
    with contextlib.suppress(UnknownModel):
        convert(path, folder)


@pytest.mark.parametrize("count", [_ENTRIES_MAX + 1, 2**40, 2**63])
def test_a_list_without_end_is_not_read(good: bytes, tmp_path: Path, count: int) -> None:
    """Law: a list longer than any is refused before its first entry, not read until the memory ends."""
    at = find_list_length(good, "tokenizer.ggml.token_type")
    with pytest.raises(ValueError, match="a list has more than"):
        _open_gguf(put(tmp_path, good[:at] + struct.pack("<Q", count) + good[at + 8 :]))


def test_a_list_ends_with_its_file(good: bytes, tmp_path: Path) -> None:
    """Law: entries that aren't there are an error, not empty."""
    at = find_list_length(good, "tokenizer.ggml.token_type")
    short = good[:at] + struct.pack("<Q", _ENTRIES_MAX) + good[at + 8 : at + 80]
    with pytest.raises(ValueError, match="it ends early"):
        _open_gguf(put(tmp_path, short))


def test_a_tensor_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what the metadata promise is in the file, in that shape; else no folder comes of it, which mlx-lm would
    refuse each time."""
    made = tiny.weights()
    monkeypatch.setattr(tiny, "weights", lambda seed=0: {k: v for k, v in made.items() if k != "blk.1.ffn_up.weight"})
    tiny.write_gguf(tmp_path / "lacks.gguf")
    with pytest.raises(UnknownModel, match=r"layers\.1\.mlp\.up_proj\.weight is missing"):
        convert(tmp_path / "lacks.gguf", tmp_path)
    monkeypatch.setattr(tiny, "weights", lambda seed=0: made | {"output_norm.weight": made["output_norm.weight"][:7]})
    tiny.write_gguf(tmp_path / "short.gguf")
    with pytest.raises(UnknownModel, match=r"model\.norm\.weight .* its shape isn't \(64,\)"):
        convert(tmp_path / "short.gguf", tmp_path)
    extra = {"blk.2.attn_norm.weight": made["output_norm.weight"]}
    monkeypatch.setattr(tiny, "weights", lambda seed=0: made | extra)
    tiny.write_gguf(tmp_path / "more.gguf")
    with pytest.raises(UnknownModel, match="has 21 tensors, and the model that it describes 20"):
        convert(tmp_path / "more.gguf", tmp_path)


def test_an_unknown_storage_is_an_error(good: bytes, tmp_path: Path) -> None:
    """Law: a tensor of a type that the library doesn't know, or at a place behind the file's end, is refused."""
    name = b"output_norm.weight"
    at = good.index(name) + len(name) + 4 + 8  # behind its one dimension
    for raw in (struct.pack("<IQ", 250, 0), struct.pack("<IQ", gguf_lib.GGMLQuantizationType.F32, 1 << 40)):
        path = put(tmp_path, good[:at] + raw + good[at + 12 :])
        with pytest.raises(UnknownModel, match="no sound GGUF file"):
            convert(path, tmp_path)
