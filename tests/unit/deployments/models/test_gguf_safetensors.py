"""A safetensors file that is written piece by piece: the format's own library reads back what was given."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from deployments.models.gguf import write_tensors

SHAPES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), min_size=1, max_size=5)


@given(SHAPES, st.integers(1, 4), st.sampled_from(["float32", "float16"]))
def test_what_is_written_is_read(shapes, rows, dtype):
    """Any tensors, in pieces of any number of rows, come back with their shapes and values."""
    tensors = {f"t{i}": np.random.default_rng(i).normal(size=shape).astype(dtype) for i, shape in enumerate(shapes)}
    pieces = ([value[at : at + rows] for at in range(0, len(value), rows)] for value in tensors.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        write_tensors(path, {name: value.shape for name, value in tensors.items()}, pieces, dtype=dtype)
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
        write_tensors(tmp_path / "m", shapes, [[np.zeros(wrong, np.float32)]], dtype="float32")
