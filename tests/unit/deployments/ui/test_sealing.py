"""Cookies and tokens: what this server made is good for whom it made it, and nothing else is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.ui.sealing import COOKIE_S, Cookie, Seal

SEAL, OTHER = Seal("a" * 64), Seal("b" * 64)
DIGEST, NOW_S = b"\x01" * 32, 1.8e9
NAMES = st.text("abcXYZ019._-", min_size=0, max_size=20)


def read(value: str, seal: Seal = SEAL, digest: bytes = DIGEST, now_s: float = NOW_S) -> Cookie | None:
    found = seal.read_cookie(value)
    return found[0] if found and seal.is_good(*found, digest, now_s) else None


@given(NAMES)
def test_a_cookie_is_good_until_it_ends(name):
    """For its own name, up to its last moment."""
    value = SEAL.make_cookie(name, DIGEST, NOW_S)
    cookie = read(value)

    assert cookie is not None
    assert cookie.name == name
    assert read(value, now_s=NOW_S + COOKIE_S - 1) == cookie
    assert read(value, now_s=NOW_S + COOKIE_S) is None


@given(NAMES, st.integers(0, 200), st.characters())
def test_a_changed_cookie_is_none(name, place, letter):
    """Whatever letter of it is another one."""
    value = SEAL.make_cookie(name, DIGEST, NOW_S)
    at = place % len(value)
    changed = value[:at] + letter + value[at + 1 :]

    assert (read(changed) is None) is (changed != value)


@given(st.text())
def test_any_text_is_read_or_none(text):
    """No text that a browser may send raises."""
    assert read(text) is None


def test_a_cookie_ends_with_its_key_and_its_secret():
    """A key that was replaced, or another server's secret, makes it none."""
    value = SEAL.make_cookie("boss", DIGEST, NOW_S)

    assert read(value, digest=b"\x02" * 32) is None
    assert read(value, seal=OTHER) is None


def test_a_token_is_its_cookie_s_alone():
    """Neither another cookie's token passes, nor none."""
    one, two = (read(SEAL.make_cookie("boss", DIGEST, NOW_S)) for _ in range(2))
    assert one is not None
    assert two is not None

    assert SEAL.is_token(one, SEAL.make_token(one))
    for wrong in (SEAL.make_token(two), OTHER.make_token(one), "", "ü"):
        assert not SEAL.is_token(one, wrong)


def test_the_secret_is_not_shown():
    """Not in a repr, which may stand in a log."""
    assert "a" * 8 not in repr(SEAL)
