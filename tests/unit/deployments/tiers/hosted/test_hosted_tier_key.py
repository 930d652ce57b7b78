"""The key of a `hosted` tier: it goes to the upstream and nowhere else."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from deployments.reports.redaction import REDACTED
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.hosted.upstream_errors import MESSAGE_CHARS_MAX
from reliability.types import Fault, Finish, TierState
from tests.support import plays
from tests.support.plays import Head, Send
from tests.support.tier_asking import answer, ask, failed, hosted_tier
from tests.support.upstream import Upstream

KEY = "sk-or-v1-0123456789abcdef"
KEY_ENV = "TRIED_API_KEY"


def test_without_a_key_the_tier_says_so(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key that is needed and missing makes the tier unavailable, with the variable's name."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)

    async def run() -> None:
        tier = hosted_tier(upstream, api_key_env="OPENROUTER_API_KEY")
        status = await tier.status()
        assert (status.state, status.reason) == (TierState.UNAVAILABLE, "OPENROUTER_API_KEY is not set")
        before = len(upstream.log)
        events = await answer(tier, ask())
        assert [failed(events).fault] == [Fault.UNAVAILABLE]
        assert "OPENROUTER_API_KEY is not set" in failed(events).message
        assert len(upstream.log) == before

    asyncio.run(run())


def test_the_key_is_read_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key that is set later is used from then on."""
    monkeypatch.setenv(KEY_ENV, "wrong-key-0000")

    async def run(upstream: Upstream) -> None:
        tier = hosted_tier(upstream, api_key_env=KEY_ENV)
        assert failed(await answer(tier, ask())).fault is Fault.AUTH
        monkeypatch.setenv(KEY_ENV, f" {KEY}\n")
        assert isinstance((await answer(tier, ask()))[-1], Finish)
        assert upstream.log[-1].headers["authorization"] == f"Bearer {KEY}"
        await tier.close()

    with Upstream(key=KEY) as upstream:
        asyncio.run(run(upstream))


@pytest.mark.parametrize("key", [KEY, "plain0key", "k" * 600, 'with spaces and "quotes"'])
def test_the_key_never_leaks(key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Law: an upstream that echoes the key, in any error, finds it redacted everywhere on our side."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(KEY_ENV, key)
    echoes = [
        plays.status(400, f"{'x' * (MESSAGE_CHARS_MAX - 10)} {key}", param=key, error_code=key),
        plays.status(500, f"Bearer {key}"),
        plays.whole(f"denied: {key}".encode(), status_code=403),
        plays.error_frame(1, key, f"bad key {key}"),
        plays.whole(json.dumps({"error": "denied", "detail": key}).encode(), status_code=422),
        plays.whole(json.dumps({"error": key}).encode()),
        (Head(headers=plays.SSE), Send(f"event: error\ndata: {key}\n\n".encode())),
    ]

    async def run(upstream: Upstream) -> None:
        upstream.plays("m", *echoes)
        tier = hosted_tier(upstream, api_key_env=KEY_ENV, headers={"X-Api-Key": f"{key}-2"})
        for _ in echoes:
            seen = repr(await answer(tier, ask()))
            assert key not in seen
            assert key[: len(key) // 2] not in seen
        assert key not in repr(tier) + str(await tier.status())
        await tier.close()

    with Upstream() as upstream:
        asyncio.run(run(upstream))
    assert key not in caplog.text


def test_a_key_that_no_header_can_carry(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key with a line break or an umlaut is a reason in the status, without the key."""

    async def run(key: str) -> None:
        monkeypatch.setenv(KEY_ENV, key)
        tier = hosted_tier(upstream, api_key_env=KEY_ENV)
        reason = (await tier.status()).reason
        assert reason == f"{KEY_ENV} holds characters that no HTTP header can carry"
        assert failed(await answer(tier, ask())).fault is Fault.UNAVAILABLE

    for key in ("secret\nkey", "schlüssel"):
        asyncio.run(run(key))


def test_credentials_in_the_address_stay_hidden(upstream: Upstream) -> None:
    """Law: user and password of a base_url are sent as such and shown nowhere."""
    upstream.plays("m", plays.status(400, "what is hunter22?"))

    async def run() -> None:
        url = upstream.base_url.replace("//", "//joe:hunter22@")
        tier = HostedTier(name="premium", base_url=url, model="m")
        seen = repr(await answer(tier, ask())) + repr(tier) + str(await tier.status())
        assert "hunter22" not in seen
        assert upstream.log[-1].headers["authorization"] == "Basic am9lOmh1bnRlcjIy"
        await tier.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("address", "query", "echo"),
    [
        ("//joe:hunter22@", "", "unknown login: Basic am9lOmh1bnRlcjIy"),
        ("//", "?key=hunter%2B22", "Cannot POST /v1/chat/completions?key=hunter%2B22"),
        ("//", "?version=2026&api-key=hunter%2B22", "the api-key hunter+22 is unknown in version 2026"),
    ],
)
def test_an_address_s_secrets_are_hidden_in_each_form(upstream: Upstream, address: str, query: str, echo: str) -> None:
    """Law: what of a base_url opens the upstream is redacted as it is sent, as it is written and as it is meant; the
    rest of the address is no secret."""
    upstream.plays("m", plays.status(400, echo))

    async def run() -> None:
        tier = HostedTier(name="premium", base_url=upstream.base_url.replace("//", address) + query, model="m")
        seen = repr(await answer(tier, ask())) + repr(tier) + str(await tier.status())
        assert not any(secret in seen for secret in ("am9l", "hunter", "22"))
        assert REDACTED in seen
        assert ("2026" in echo) == ("2026" in seen)
        await tier.close()

    asyncio.run(run())
