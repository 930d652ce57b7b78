"""Secrets in texts: none of them leaves, and nothing else is changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.redaction import REDACTED, Redactor, secret_headers

# Of letters that no other word here has; a secret may begin with another one.
SECRETS = st.text("XYZ", min_size=4, max_size=8)
OTHERS = st.text("abc .", max_size=6)


@given(st.lists(SECRETS, min_size=1, max_size=4), st.data())
def test_no_secret_leaves_and_no_other_word_is_lost(secrets: list[str], data: st.DataObject) -> None:
    """Law: wherever the secrets of a tier stand in a text, they are taken out whole, and the rest stays."""
    others = data.draw(st.lists(OTHERS, min_size=1, max_size=5))
    parts = [(data.draw(st.sampled_from(secrets)), other) for other in others]
    shown = Redactor(secrets)("".join(f"|{secret}|{other}" for secret, other in parts))

    assert shown == "".join(f"|{REDACTED}|{other}" for other in others)


@pytest.mark.parametrize(
    "text", ["key sk-or-v1-0123456789 is wrong", "key SK-***7890abc is wrong", "Authorization: bearer abc.def"]
)
def test_the_forms_of_keys_are_known(text: str) -> None:
    """Law: what looks like a key goes, whosever it is, also half of it behind asterisks."""
    shown = Redactor([])(text)

    assert REDACTED in shown
    assert not any(part in shown for part in ("0123", "7890", "abc"))


def test_what_is_too_short_to_be_a_secret_stays() -> None:
    """Law: a header of a letter or two doesn't make holes in every text."""
    assert Redactor(["a", "no", ""])("a no is a no") == "a no is a no"


def test_credentials_are_told_by_the_names_of_headers() -> None:
    """Law: each value of such a header is a secret, with its scheme and without it; others are none; and the secrets
    don't stand in the words for the redactor itself."""
    found = secret_headers({"Authorization": "Bearer letmein", "X-API-Key": "k-1", "X-Title": "app", "Cookie": "a=b"})

    assert {"Bearer letmein", "letmein", "k-1", "a=b"} == set(found)
    assert "letmein" not in repr(Redactor(found))
