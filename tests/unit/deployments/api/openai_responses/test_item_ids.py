"""The names of responses and of their items."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses.item_ids import (
    has_just_begun,
    is_response_id,
    make_tag,
    name_response,
    open_seal,
    seal,
    tag_of,
)


def test_an_item_names_its_response():
    """Who has an item's name has its response's."""
    tag = make_tag()

    assert tag_of(f"msg_{tag}_0") == tag_of(f"rs_{tag}_12") == tag


def test_names_differ():
    """No two responses have one name."""
    assert len({make_tag() for _ in range(100)}) == 100


def test_a_foreign_name_is_none_of_ours():
    """Names of other servers, or of no form at all, name no response."""
    for name in ("msg_1", "resp_", "", "msg_" + "g" * 32 + "_0", None, 3):
        assert tag_of(name) is None
    assert not is_response_id("resp_abc")
    assert is_response_id(name_response(make_tag()))


def test_a_response_says_how_old_it_is():
    """One that has begun long ago, or that isn't ours, can't still be on its way."""
    assert has_just_begun(name_response(make_tag()), 60.0)
    assert not has_just_begun(name_response("0" * 32), 60.0)
    assert not has_just_begun("resp_abc", 60.0)


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
