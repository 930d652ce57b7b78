"""What a call costs, and whether it leaves the machine."""

import math
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.config.app_config import load
from deployments.config.config_errors import ConfigError
from deployments.config.loopback import is_loopback
from deployments.config.tier_cost import Price, cloud_tiers, cost_usd, is_cloud, price_of
from reliability.config import CloudFallback
from reliability.types import Usage

CLOUD = CloudFallback()
tokens = st.integers(0, 10**9)
prices = st.builds(
    Price,
    usd_per_mtok_prompt=st.floats(0, 1e6, allow_nan=False),
    usd_per_mtok_completion=st.floats(0, 1e6, allow_nan=False),
)


def tier(**keys: Any) -> Any:
    keys = {"kind": "hosted", "base_url": "http://127.0.0.1:1234/v1", "model": "m"} | keys
    config = load({"tiers": {"t": keys}, "reliability": {"escalation": {"chain": ["t"]}}})
    return config.tiers["t"]


def preset(**keys: Any) -> Any:
    return tier(base_url=None, model=None, preset="openrouter", **keys)


@given(prices, tokens, tokens, tokens, tokens)
def test_a_cost_is_the_sum_of_its_tokens(price, prompt, completion, more, cached):
    """It is linear in each kind of token, never negative, and a cached token costs what a token costs."""
    one = cost_usd(Usage(prompt_tokens=prompt, completion_tokens=completion), price)
    other = cost_usd(Usage(prompt_tokens=more, cached_tokens=cached), price)
    both = cost_usd(Usage(prompt_tokens=prompt + more, completion_tokens=completion), price)

    assert one >= 0
    assert math.isclose(both, one + other, rel_tol=1e-9, abs_tol=1e-12)


@given(st.none() | st.builds(Usage, prompt_tokens=tokens, completion_tokens=tokens), st.none() | prices)
def test_what_is_not_known_is_none_and_never_zero(usage, price):
    """Without tokens or without a price there is no cost; with both there is one."""
    assert (cost_usd(usage, price) is None) == (usage is None or price is None)


def test_the_presets_model_has_its_published_price():
    """A thousand tokens each way of the default cloud model cost 0.3 and 1.5 cents."""
    price = price_of(preset(), CLOUD)

    assert math.isclose(cost_usd(Usage(prompt_tokens=1000, completion_tokens=1000), price), 0.018)


LOCAL_TIERS: dict[str, dict[str, Any]] = {
    "mlx": {"kind": "mlx"},
    "scripted": {"kind": "scripted", "script": [{"answer": "hi"}]},
}


def other(kind: str, **keys: Any) -> Any:
    raw = {"tiers": {"t": LOCAL_TIERS[kind] | keys}, "reliability": {"escalation": {"chain": ["t"]}}}
    return load(raw).tiers["t"]


@pytest.mark.parametrize(
    ("config", "fallback"),
    [
        (preset(), CloudFallback(model="some/other-model")),
        (tier(), CLOUD),
        (tier(preset="openrouter", model="anthropic/claude-sonnet-4-6"), CLOUD),
        (other("mlx"), CLOUD),
        (other("scripted"), CLOUD),
    ],
)
def test_no_price_is_guessed(config, fallback):
    """Another model, another URL, another kind of tier: unknown."""
    assert price_of(config, fallback) is None


def test_a_configured_price_wins():
    """Also over the known one of the preset's model, and where it is nothing."""
    free = preset(usd_per_mtok_prompt=0, usd_per_mtok_completion=0)

    assert price_of(free, CLOUD) == Price(usd_per_mtok_prompt=0, usd_per_mtok_completion=0)
    assert cost_usd(Usage(prompt_tokens=5), price_of(free, CLOUD)) == 0


@pytest.mark.parametrize("key", ["usd_per_mtok_prompt", "usd_per_mtok_completion"])
def test_half_a_price_is_refused(key):
    """A cost that misses one side would look like a whole one."""
    with pytest.raises(ConfigError, match="set together"):
        tier(**{key: 1.0})


@example("[]@")
@given(st.text("abcdehlost.-127_%@\\/?#:[]", min_size=1, max_size=20))
def test_every_url_is_cloud_unless_its_host_is_loopback(host):
    """Whatever a URL looks like there is an answer, and a doubtful one is cloud: the client's own reader decides."""
    url = f"http://{host}/v1"
    try:
        read = httpx.URL(url).host
    except httpx.InvalidURL:
        read = ""

    assert is_cloud(tier(base_url=url)) == (not is_loopback(read))


@pytest.mark.parametrize(
    ("url", "cloud"),
    [
        ("http://localhost:1234/v1", False),
        ("http://[::1]:8080/v1", False),
        ("http://127.0.0.1@example.com/v1", True),
        ("http://example.com/127.0.0.1", True),
        ("https://openrouter.ai/api/v1", True),
    ],
)
def test_the_host_of_the_url_decides(url, cloud):
    """Not its path, its user or a name that only looks like this machine's; `cloud` wins over both."""
    assert is_cloud(tier(base_url=url)) is cloud
    assert is_cloud(tier(base_url=url, cloud=not cloud)) is not cloud


def test_the_other_kinds_never_leave_the_machine():
    """An mlx tier never; a scripted one only where it plays a tier that does; a preset without a URL always."""
    tiers = {"m": other("mlx"), "s": other("scripted"), "c": other("scripted", cloud=True), "p": preset()}

    assert cloud_tiers(tiers) == {"c", "p"}
