"""A cell's key: whatever a model is called, the same cell is read from it."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.figures.cell import Cell


@given(st.text(min_size=1), st.sampled_from(["3", "1024-0", "buggy_calc#2"]))
def test_a_key_is_read_back(model, name):
    """Most servers name their models with slashes."""
    cell = Cell(variant="served", kind="call", model=model, name=name)

    assert Cell.read_key(cell.key) == cell
