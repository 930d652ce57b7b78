"""The converter from GGUF: what was in the file is in the folder, and nothing is left out in silence."""

from __future__ import annotations

import json
from pathlib import Path

import gguf as gguf_lib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from deployments.models.gguf import UnknownModel, convert, model_config, quantization_name, unpermute
from tests.support import tiny_model as tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("gguf") / "tiny")


class TestWeights:
    @given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
    def test_unpermute_undoes_the_interleaving(self, heads: int, half: int, columns: int) -> None:
        """Law: unpermute(permute(w)) = w for every shape."""
        weight = np.arange(heads * 2 * half * columns).reshape(heads * 2 * half, columns)
        assert (unpermute(tiny.permuted(weight, heads), heads) == weight).all()

    def test_every_tensor_arrives_with_its_values(self, folder: Path) -> None:
        """Law: each tensor of the file stands under mlx-lm's name, in its rows' order, within quantization
        error."""
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

    def test_an_unknown_tensor_is_an_error(self, tmp_path: Path) -> None:
        """Law: a tensor that can't be carried over stops the conversion."""
        tiny.write_gguf(tmp_path / "m.gguf", extra={"blk.0.rope_freqs.weight": np.ones(8, np.float32)})
        with pytest.raises(UnknownModel, match="rope_freqs"):
            convert(tmp_path / "m.gguf", tmp_path, progress=False)

    def test_an_unknown_architecture_is_an_error(self, tmp_path: Path) -> None:
        """Law: only architectures whose mathematics are known here are taken."""
        tiny.write_gguf(tmp_path / "m.gguf", arch="mamba")
        with pytest.raises(UnknownModel, match="mamba"):
            convert(tmp_path / "m.gguf", tmp_path, progress=False)

    def test_a_rotary_scaling_is_an_error(self) -> None:
        """Law: a scaling that would be lost is refused."""
        meta = {"general.architecture": "llama", "llama.rope.scaling.type": "yarn"}
        with pytest.raises(UnknownModel, match="yarn"):
            model_config(meta, tied=True, dtype="float32")

    def test_the_quantization_is_that_of_most_matrices(self, tmp_path: Path) -> None:
        """Law: the name in reports is the commonest storage of the file's matrices."""
        tiny.write_gguf(tmp_path / "m.gguf")
        assert quantization_name(tmp_path / "m.gguf") == gguf_lib.GGMLQuantizationType.F32.name
