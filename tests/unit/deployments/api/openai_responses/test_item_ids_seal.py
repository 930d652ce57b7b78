"""The opaque form of reasoning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses.item_ids import open_seal, seal


@given(st.text())
def test_what_is_sealed_is_read_again(text):
    """Nothing is lost on the way."""
    assert open_seal(seal(text)) == text


@given(st.text())
def test_a_foreign_seal_is_none(text):
    """What isn't ours is no error and says nothing, whatever it is."""
    assert open_seal("gAAAA" + text) is None


@pytest.mark.parametrize("sealed", ["mlxs1.*", "mlxs1.a", "mlxs1.é", "mlxs1._w=="])
def test_a_broken_seal_is_none(sealed):
    """Ours, but damaged."""
    assert open_seal(sealed) is None
