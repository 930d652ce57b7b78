"""Which files are a configuration, and that nothing of a wrong one is quoted: `test_preflight.py` has what is wrong."""

import pytest
import yaml
from ray.serve.config import AutoscalingPolicy
from ray.serve.schema import ServeDeploySchema

from deployments.config.config_errors import ConfigError
from deployments.graph.serve_file import read_file
from tests.support.repository import ROOT


@pytest.mark.parametrize("path", sorted((ROOT / "deployments/examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_configuration(path):
    """Each example is what this server and Ray Serve take, and its policy can be found and made."""
    read_file(path)
    schema = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    (app,) = schema.applications
    policy = AutoscalingPolicy(**app.autoscaling_policy)
    assert policy.get_policy()(**policy.policy_kwargs)({}) == ({}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {b: [SECRET1, c: d}", "line 1, column 22: expected ',' or ']', but got '}'"),
        ("a: b\n c: SECRET1", "line 2, column 3: mapping values are not allowed here"),
        ("a: *SECRET1", "line 1, column 4: found undefined alias"),
        ("a: !SECRET1 1", "line 1, column 4: could not determine a constructor for the tag"),
        ("a: !!int SECRET1", "invalid literal for int() with base 10"),
        ('a: "SECRET1', "line 1, column 12: found unexpected end of stream"),
        ("a:\n\t- SECRET1", "line 2, column 1: found character '\\t' that cannot start any token"),
        ("a: b\n- SECRET1", "line 2, column 1: expected <block end>, but found '-'"),
        ("a: SECRET1\x01", "unacceptable character #x0001: special characters are not allowed"),
        ("a: 2026-02-31", "day"),
    ],
)
def test_a_wrong_line_isnt_quoted(tmp_path, text, said):
    """Law: what is printed goes into logs and questions to others; a key in the line stays out of it."""
    path = tmp_path / "serve_config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(path)

    assert "SECRET" not in str(caught.value)
    assert f"is not YAML: {said}" in str(caught.value)


def test_the_shipped_file_is_good():
    """`serve_config.yaml` passes our check and Ray Serve's, and its chain is the user's."""
    path = ROOT / "serve_config.yaml"
    config = read_file(path)
    ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))

    assert config.args.reliability.escalation.chain == ("fast", "standard", "longctx", "premium")
    assert (config.host, config.port) == ("127.0.0.1", 8000)
