"""Of several mistakes in a configuration the one is told that explains the others."""

from typing import Any

import pytest

from deployments.config.app_config import load
from deployments.config.config_errors import ConfigError

GOOD: dict[str, Any] = {
    "tiers": {"fast": {"kind": "scripted", "script": []}},
    "reliability": {"escalation": {"chain": ["fast"]}},
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"tiers": {"fast": {"kind": "scripted", "scirpt": []}}},
            "tiers.fast.scirpt: unknown key; allowed here: asleep,",
        ),
        ({"server": {"attempts_max": "x", "keepalive": 1}}, "server.keepalive: unknown key; allowed here: aliases,"),
        (
            {"server": {"timeouts": {"idle_s": "x", "idle": 1}}},
            "server.timeouts.idle: unknown key; allowed here: connect_s,",
        ),
    ],
)
def test_an_unknown_key_is_told_before_all_others(changes: dict[str, Any], line: str) -> None:
    """Law: a misspelt key explains a missing one, so it is told first, with the keys of its own section; the line says
    that there are more."""
    with pytest.raises(ConfigError) as caught:
        load(GOOD | changes)

    assert str(caught.value).startswith(line)
    assert str(caught.value).endswith(" (and 1 more)")


def test_so_many_mistakes_are_counted() -> None:
    """Law: who repairs one mistake knows how many are left; one alone isn't counted."""
    for count in (1, 2, 3):
        wrong = dict(list({"attempts_max": "x", "keepalive_s": "x", "deadline_s": "x"}.items())[:count])
        with pytest.raises(ConfigError) as caught:
            load(GOOD | {"server": wrong})
        words = str(caught.value)

        assert words.startswith("server.")
        assert words.endswith(f" (and {count - 1} more)") == (count > 1)
