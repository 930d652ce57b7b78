"""The configuration: every mistake is one line that names the key."""

from __future__ import annotations

import pytest
import yaml
from ray.serve.config import AutoscalingPolicy
from ray.serve.schema import ServeDeploySchema

from deployments.config import ConfigError, load, patch
from deployments.config_file import read_file
from tests.effects.driving import config_of
from tests.repository import ROOT

# -- examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "deployments/examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_configuration(path):
    """Each example is what this server and Ray Serve take, and its policy can be found and made."""
    read_file(path)
    schema = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    (app,) = schema.applications
    policy = AutoscalingPolicy(**app.autoscaling_policy)
    assert policy.get_policy()(**policy.policy_kwargs)({}) == ({}, {})


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("bogus", 1, "bogus: unknown key; allowed here: reliability, server, state, tiers"),
        (
            "tiers.fast.bogus",
            1,
            "tiers.fast.bogus: unknown key; allowed here: asleep, cloud, context_tokens",
        ),
        (
            "tiers.m.bogus",
            1,
            "tiers.m.bogus: unknown key; allowed here: adapter, asleep, blas_threads",
        ),
        ("tiers.fast.timeouts.bogus", 1, "tiers.fast.timeouts.bogus: unknown key; allowed here: connect_s"),
        ("reliability.bogus", 1, "reliability.bogus: unknown key; allowed here: circuit_breaker, escalation"),
        ("reliability.escalation.bogus", 1, "reliability.escalation.bogus: unknown key; allowed here: chain"),
        ("server.timeouts.bogus", 1, "server.timeouts.bogus: unknown key; allowed here: connect_s"),
        ("tiers.fast.kind", "cloud", "tiers.fast: Input tag 'cloud'"),
        ("tiers.Fast", {"kind": "mlx"}, "tiers.Fast"),
        ("tiers.auto", {"kind": "mlx"}, "tiers.auto: the name is taken"),
        ("tiers", {}, "tiers: "),
        ("tiers.x", {"kind": "hosted"}, "tiers.x: a hosted tier needs base_url and model, or a preset"),
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
        ("reliability.token_budget.max_output_tokens", 0, "reliability.token_budget.max_output_tokens: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(path, value, line):
    """What can't be used is refused in one line, with the key's path as it stands in the file."""
    with pytest.raises(ConfigError) as caught:
        config_of(path, value)

    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [None, [], "tiers"])
def test_args_that_are_no_mapping(raw):
    """A file that has lost its indentation is told so."""
    with pytest.raises(ConfigError, match="args"):
        load(raw)


SMALL = (
    "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
    "reliability: {escalation: {chain: [fast]}}}}]"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "is not YAML"),
        ("[]", "applications: a list is needed"),
        ("applications: []", "exactly one with import_path deployments.app:build"),
        ("applicatoins: []\napplications: []", "applicatoins: unknown key"),
        ("applications: [{import_path: 'deployments.app:build', nmae: x}]", "applications.0.nmae: unknown key"),
        (
            "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
            "reliability: {escalation: {chain: [fast]}}}, deployments: [{name: slow}]}]",
            "deployments.0.name: there is no deployment 'slow'; deployments: Router, fast",
        ),
        (
            "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
            "reliability: {escalation: {chain: [fast]}}}, deployments: [{name: fast, user_config: {modle: x}}]}]",
            "deployments.0.user_config: modle: unknown key",
        ),
        (
            "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
            "reliability: {escalation: {chain: [fast]}}}, deployments: [{name: fast, num_replica: 2}]}]",
            "applications.0.deployments.0.num_replica: unknown key",
        ),
        (f"http_options: {{ssl_key_file: k.pem}}\n{SMALL}", "http_options.ssl_key_file: unknown key"),
        (f"http_options: {{port: abc}}\n{SMALL}", "http_options.port: Input should be a valid integer"),
        (f"http_options: 8000\n{SMALL}", "http_options: a mapping is needed"),
    ],
)
def test_a_file_is_checked_whole(tmp_path, text, line):
    """Also the parts that Ray Serve accepts without a word: misspelt keys, deployments that don't exist."""
    path = tmp_path / "serve_config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(path)

    assert line in str(caught.value)


def test_a_file_in_another_encoding_is_said_so(tmp_path):
    """Bytes that aren't UTF-8 aren't a stack trace either."""
    path = tmp_path / "serve_config.yaml"
    path.write_bytes(b"applications: [\xff]")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_file(path)


def test_a_missing_file_is_said_so(tmp_path):
    """A wrong path isn't a stack trace."""
    with pytest.raises(ConfigError, match="can't be read"):
        read_file(tmp_path / "none.yaml")


def test_the_shipped_file_is_good():
    """`serve_config.yaml` passes our check and Ray Serve's, and its chain is the user's."""
    from pathlib import Path

    import yaml

    path = Path(__file__).parents[1] / "serve_config.yaml"
    config = read_file(path)
    ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))

    assert config.args.reliability.escalation.chain == ("fast", "standard", "longctx", "premium")
    assert (config.host, config.port) == ("127.0.0.1", 8000)


def test_a_patch_keeps_what_it_does_not_name():
    """`user_config` merges by key, and the result is checked like the whole."""
    config = config_of("server.aliases", {"a": "fast"})
    patched = patch(config, {"server": {"keepalive_s": 3}})

    assert patched.server.aliases == {"a": "fast"}
    assert patched.server.keepalive_s == 3
    with pytest.raises(ConfigError, match=r"server\.keepalive_s"):
        patch(config, {"server": {"keepalive_s": -1}})
