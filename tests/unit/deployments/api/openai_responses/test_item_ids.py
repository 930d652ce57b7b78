"""The names of responses and of their items."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses import item_ids
from deployments.api.openai_responses.item_ids import is_response_id, make_tag, name_response, open_seal, seal, tag_of


def test_an_item_names_its_response():
    """Who has an item's name has its response's; names of other servers, or of no form at all, name no response."""
    tag = make_tag()

    assert tag_of(f"msg_{tag}_0") == tag_of(f"rs_{tag}_12") == tag
    assert is_response_id(name_response(tag))
    assert not is_response_id("resp_abc")
    for name in ("msg_1", "resp_", "", "msg_" + "g" * 32 + "_0", None, 3):
        assert tag_of(name) is None


def test_a_response_says_how_old_it_is():
    """No two have one name; one that has begun long ago, or that isn't ours, can't still be on its way."""
    assert len({make_tag() for _ in range(100)}) == 100
    assert item_ids.has_just_begun(name_response(make_tag()))
    assert not item_ids.has_just_begun(name_response("0" * 32))
    assert not item_ids.has_just_begun("resp_abc")


@given(st.text())
def test_what_is_sealed_is_read_again(text):
    """Nothing is lost on the way."""
    assert open_seal(seal(text)) == text


@given(st.text().map("gAAAA".__add__) | st.sampled_from(["mlxs1.*", "mlxs1.a", "mlxs1.é", "mlxs1._w=="]))
def test_a_foreign_or_broken_seal_is_none(sealed):
    """What isn't ours, or is damaged, is no error and says nothing."""
    assert open_seal(sealed) is None
