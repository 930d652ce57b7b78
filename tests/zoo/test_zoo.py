"""The zoo: some of the architectures on the engine (`make nightly` has all), and the table of them."""

import pytest

from deployments.tiers.mlx.decoding.generators import Sharing
from deployments.tiers.mlx.prompt_cache.prompt_cache import MlxCaches
from tests.support.model_configs import CONFIGS
from tests.zoo.__main__ import check_config, write_model
from tests.zoo.aspects import ASPECTS
from tests.zoo.families import FAMILIES, FAST
from tests.zoo.faults import FAULTS
from tests.zoo.table import build_table


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("zoo") / "model")


@pytest.mark.parametrize("config", FAST)
def test_each_kind_is_served_as_plain_mlx_lm_computes_it(config, model, tmp_path):
    """Law: batched, reused, from disk, resumed, with draft tokens and under a grammar, the log-probabilities of each
    sampled token are plain mlx-lm's, but for the excuses, which hold."""
    assert check_config(config, model, tmp_path) == []


def test_a_wrong_cache_is_seen(model, tmp_path, monkeypatch):
    """Law: the zoo can fail: where a reused prompt lacks one token, the answers from memory and from disk differ."""
    shorten = MlxCaches.copy_shortened
    monkeypatch.setattr(MlxCaches, "copy_shortened", lambda ops, cache, tokens: shorten(ops, cache, tokens + 1))
    found = check_config("qwen3", model, tmp_path, ["decoding", "reuse", "disk"])
    assert [line.partition(":")[0] for line in found] == ["reuse", "disk"]


def test_each_configuration_has_one_family():
    """Law: the table has all architectures that can be computed here, each once."""
    named = [config for family in FAMILIES for config in family.configs.split(", ")]

    assert sorted(named) == CONFIGS
    assert set(FAST) <= set(CONFIGS)


def test_each_exception_has_a_check():
    """Law: a family that isn't batched, or differs, names a fault that plain mlx-lm shows."""
    for family in FAMILIES:
        assert (family.fault in FAULTS) == (family.sharing is not Sharing.ALL or bool(family.excused)), family.name
        assert set(family.excused) <= set(ASPECTS)


def test_each_published_mark_is_known():
    """Law: how calls and reasoning open, as published, is in the tables of those that read them."""
    assert "not read" not in build_table()
