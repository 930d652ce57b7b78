"""The configuration: every mistake is one line that names the key."""

import pytest

from deployments.config.app_config import patch
from deployments.config.config_errors import ConfigError
from tests.support.small_config import config_of


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("bogus", 1, "bogus: unknown key; allowed here: evaluate, reliability, server, state, telemetry, tiers"),
        ("tiers.fast.bogus", 1, "tiers.fast.bogus: unknown key; allowed here: asleep, cloud, context_tokens"),
        ("tiers.m.bogus", 1, "tiers.m.bogus: unknown key; allowed here: adapter, asleep, blas_threads"),
        ("tiers.m.draft_model", "path:x", "tiers.m.draft_model: unknown key; allowed here: adapter, asleep"),
        ("tiers.fast.timeouts.bogus", 1, "tiers.fast.timeouts.bogus: unknown key; allowed here: connect_s"),
        ("reliability.bogus", 1, "reliability.bogus: unknown key; allowed here: circuit_breaker, context"),
        ("reliability.escalation.bogus", 1, "reliability.escalation.bogus: unknown key; allowed here: chain"),
        ("server.timeouts.bogus", 1, "server.timeouts.bogus: unknown key; allowed here: connect_s"),
        ("tiers.fast.kind", "cloud", "tiers.fast: Input tag 'cloud'"),
        ("tiers.Fast", {"kind": "mlx"}, "tiers.Fast"),
        ("tiers.auto", {"kind": "mlx"}, "tiers.auto: the name is taken"),
        ("tiers", {}, "tiers: "),
        ("tiers.x", {"kind": "hosted"}, "tiers.x: a hosted tier needs base_url and model, or a preset"),
        ("tiers.x", {"kind": "hosted", "preset": "nowhere"}, "tiers.x.preset: Input should be 'openrouter'"),
        *(
            (f"{at}api_key_env", key, f"{at}api_key_env: this is a key: the name of the variable that holds it")
            for at in ("tiers.premium.", "reliability.escalation.cloud_fallback.")
            for key in ("gsk_8eXgKkYwT3zQ9wHnVb2L", "AIzaSyD4x0Vn2m_kQ8rT6uW1y")
        ),
        ("tiers.m.min_replicas", 5, "tiers.m: min_replicas (5) is over max_replicas (1)"),
        (
            "reliability.escalation.chain",
            ["fast", "best"],
            "there is no tier 'best'; tiers: fast, standard, m, premium",
        ),
        ("reliability.escalation.chain", ["fast", "fast"], "chain names a tier twice: fast"),
        ("reliability.escalation.chain", [], "reliability.escalation.chain: "),
        ("reliability.escalation.escalate_on", ["boredom"], "reliability.escalation.escalate_on.0: "),
        ("server.timeouts", {"first_token_s": 700, "total_s": 600}, "first_token_s (700) is over total_s (600)"),
        ("server.aliases", {"gpt": "best"}, "server.aliases.gpt: there is no tier 'best'"),
        ("server.body_bytes_max", "ten", "server.body_bytes_max: "),
        ("server.api_keys_env", "not a name", "server.api_keys_env: "),
        ("server.api_keys_file", "", "server.api_keys_file: "),
        ("server.allow_open", "yes", "server.allow_open: "),  # what only looks like a yes opens no door
        ("reliability.token_budget.max_output_tokens", 0, "reliability.token_budget.max_output_tokens: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(path, value, line):
    """What can't be used is refused in one line, with the key's path as it stands in the file."""
    with pytest.raises(ConfigError) as caught:
        config_of(path, value)

    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_patch_keeps_what_it_does_not_name():
    """`user_config` merges by key, and the result is checked like the whole."""
    config = config_of("server.aliases", {"a": "fast"})
    patched = patch(config, {"server": {"keepalive_s": 3}})

    assert patched.server.aliases == {"a": "fast"}
    assert patched.server.keepalive_s == 3
    with pytest.raises(ConfigError, match=r"server\.keepalive_s"):
        patch(config, {"server": {"keepalive_s": -1}})


@pytest.mark.parametrize(
    ("path", "value", "line", "more"),
    [
        ("tiers.x", {"kind": "scripted", "scirpt": []}, "tiers.x.scirpt: unknown key; allowed here: asleep,", 1),
        ("server", {"attempts_max": "x", "keepalive": 1}, "server.keepalive: unknown key; allowed here: aliases,", 1),
        ("server.timeouts", {"idle_s": "x", "idle": 1}, "server.timeouts.idle: unknown key; allowed here: connect", 1),
        ("server", {"attempts_max": "x"}, "server.", 0),
        ("server", {"attempts_max": "x", "keepalive_s": "x", "deadline_s": "x"}, "server.", 2),
    ],
)
def test_an_unknown_key_is_told_before_all_others_and_they_are_counted(path, value, line, more):
    """A misspelt key explains a missing one, so it is told first, with the keys of its own section; who repairs one
    mistake knows how many are left."""
    with pytest.raises(ConfigError) as caught:
        config_of(path, value)

    assert str(caught.value).startswith(line)
    assert str(caught.value).endswith(f" (and {more} more)") is (more > 0)
