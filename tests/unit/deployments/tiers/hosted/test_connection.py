"""The inbox of a hosted tier, in virtual time: nothing is lost or reordered, and nobody waits longer than asked.
Secrets in texts: none of them leaves, and nothing else is changed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.connection import INBOX_BYTES_MAX, REDACTED, Inbox, Redactor, _list_secrets
from tests.sim.clock import run

PAUSES_S = st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.05]), min_size=1, max_size=30)


async def pieces(pauses_s: list[float]) -> AsyncIterator[bytes]:
    for number, pause_s in enumerate(pauses_s):
        await asyncio.sleep(pause_s)
        yield b"%d;" % number


@given(PAUSES_S, st.sampled_from([0.0, 0.03]))
def test_everything_comes_in_order_and_in_time(pauses_s: list[float], window_s: float) -> None:
    """Law: whatever the window, each byte comes once and in order, at most a window after it has arrived; within a
    window there is one answer, and the end is told at once."""

    async def read() -> None:
        loop = asyncio.get_running_loop()
        inbox, got, last_s = Inbox(pieces(pauses_s)), b"", -1.0
        began_s = loop.time()
        while data := await inbox.take(last_s + window_s):
            got += data
            ended = got.count(b";") == len(pauses_s)
            assert ended or loop.time() >= last_s + window_s - 1e-9
            due_s = began_s + sum(pauses_s[: got.count(b";")])
            assert loop.time() <= max(due_s, last_s + window_s) + 1e-9
            last_s = loop.time()
        assert got == b"".join(b"%d;" % number for number in range(len(pauses_s)))
        assert loop.time() <= max(began_s + sum(pauses_s), last_s) + 1e-9
        await inbox.close()

    run(read())


def test_a_full_inbox_holds_the_source_back_and_goes_on() -> None:
    """Law: a window doesn't make it read ahead without bound."""

    async def flood() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (INBOX_BYTES_MAX // 2)

    async def read() -> None:
        inbox, sizes = Inbox(flood()), []
        while data := await inbox.take(asyncio.get_running_loop().time() + 0.03):
            sizes.append(len(data))
        assert max(sizes) <= INBOX_BYTES_MAX
        assert sum(sizes) == 5 * (INBOX_BYTES_MAX // 2)
        await inbox.close()

    run(read())


def test_what_the_source_raised_comes_after_what_it_gave() -> None:
    """Law: a lost connection takes nothing with it that had arrived."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"first"
        raise ConnectionResetError("gone")

    async def read() -> None:
        inbox = Inbox(broken())
        assert await inbox.take(1.0) == b"first"
        with pytest.raises(ConnectionResetError):
            await inbox.take(2.0)
        assert asyncio.get_running_loop().time() == 0.0
        await inbox.close()

    run(read())


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


@pytest.mark.parametrize("key", ["key sk-or-v1-0123456789", "key SK-***7890abc", "Authorization: bearer abc.def"])
def test_the_forms_of_keys_are_known(key: str) -> None:
    """Law: what looks like a key goes, whosever it is, also half of it behind asterisks."""
    shown = Redactor([])(f"{key} is wrong")

    assert REDACTED in shown
    assert not any(part in shown for part in ("0123", "7890", "abc"))


def test_what_is_too_short_to_be_a_secret_stays() -> None:
    """Law: a header of a letter or two doesn't make holes in every text."""
    assert Redactor(["a", "no", ""])("a no is a no") == "a no is a no"


def test_credentials_are_told_by_the_names_of_headers() -> None:
    """Law: each value of such a header is a secret, with its scheme and without it; others are none; and the secrets
    don't stand in the words for the redactor itself."""
    found = _list_secrets({"Authorization": "Bearer letmein", "X-API-Key": "k-1", "X-Title": "app", "Cookie": "a=b"})

    assert {"Bearer letmein", "letmein", "k-1", "a=b"} == set(found)
    assert "letmein" not in repr(Redactor(found))
