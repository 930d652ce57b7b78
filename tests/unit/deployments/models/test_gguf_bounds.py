"""A GGUF file that isn't sound: one clear error, soon, and nothing left of it."""

import contextlib
import struct
from pathlib import Path

import gguf as gguf_lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.models import hub
from deployments.models.artifact import find_on_disk, resolve
from deployments.models.gguf import ENTRIES_MAX, UnknownModel, _open_gguf, convert
from deployments.models.sources import ModelUnavailable, parse_source
from tests.support import tiny_model as tiny


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
def test_what_is_cut_or_changed_is_one_error(
    good: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
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


@pytest.mark.parametrize("count", [ENTRIES_MAX + 1, 2**40, 2**63])
def test_a_list_without_end_is_not_read(good: bytes, tmp_path: Path, count: int) -> None:
    """Law: a list longer than any is refused before its first entry, not read until the memory ends."""
    at = find_list_length(good, "tokenizer.ggml.token_type")
    with pytest.raises(ValueError, match="a list has more than"):
        _open_gguf(put(tmp_path, good[:at] + struct.pack("<Q", count) + good[at + 8 :]))


def test_a_list_ends_with_its_file(good: bytes, tmp_path: Path) -> None:
    """Law: entries that aren't there are an error, not empty."""
    at = find_list_length(good, "tokenizer.ggml.token_type")
    short = good[:at] + struct.pack("<Q", ENTRIES_MAX) + good[at + 8 : at + 80]
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


def test_of_a_bad_file_nothing_is_left(good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: who asks for such a model hears why, and that it makes no sense to try again; no folder stands for it."""
    file = put(tmp_path, good[:-1])
    monkeypatch.setattr(hub, "fetch_file", lambda source, *, say: file)
    source = parse_source("hf:org/name@main#bad.gguf")
    with pytest.raises(ModelUnavailable, match=r"^hf:org/name@main#bad\.gguf: it is no sound GGUF file") as caught:
        resolve(source, cache_dir=tmp_path / "c")
    assert not caught.value.again
    assert find_on_disk(source, cache_dir=tmp_path / "c") is None
    assert [path for path in (tmp_path / "c" / "models").iterdir() if path.is_dir()] == []
