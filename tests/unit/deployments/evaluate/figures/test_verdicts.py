"""The verdict: from intervals against thresholds, with its reasons."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.app_config import EvaluateConfig
from deployments.evaluate.figures.tables import describe_share, describe_spread
from deployments.evaluate.figures.verdicts import judge_tiers


def calls(model: str, layer: str, hits: int, runs: int) -> dict[str, Any]:
    return {"model": model, "layer": layer, "right": describe_share(hits, runs)}


def tasks(variant: str, hits: int, runs: int, model: str = "m") -> dict[str, Any]:
    return {"model": model, "variant": variant, "passed": describe_share(hits, runs)}


def speeds(first_s: float, tokens_s: float, tokens: int = 1024) -> dict[str, Any]:
    row = {name: describe_spread([value]) for name, value in (("first_s", first_s), ("tokens_s", tokens_s))}
    return {"m": {"lengths": [row | {"prompt_tokens": describe_spread([tokens])}]}}


FAST = speeds(1.0, 20.0)
THRESHOLDS = EvaluateConfig().model_dump()


def judge(right: tuple[int, int], passed: tuple[int, int], speed: Any = FAST, chain: Any = None) -> dict[str, Any]:
    rows = [calls("m", "+ grammar", *right)]
    done = [tasks("layers", *passed)]
    if chain is not None:
        rows.append(calls("auto", "+ escalation", *chain))
        done.append(tasks("chain", *chain, model="auto"))
    return judge_tiers(["m"], rows, done, speed, THRESHOLDS, "m")["m"]


@pytest.mark.parametrize(
    ("right", "passed", "speed", "chain", "verdict"),
    [
        *(((99, 100), (19, 20), FAST, None, "fit"), ((99, 100), (5, 5), FAST, None, "tentative")),
        *(((3, 3), (20, 20), FAST, None, "tentative"), ((0, 0), (0, 0), FAST, None, "tentative")),
        *(((0, 1), (0, 0), FAST, None, "tentative"), ((0, 4), (0, 4), FAST, None, "tentative")),
        *(((0, 5), (0, 0), FAST, None, "not fit"), ((10, 100), (19, 20), FAST, None, "not fit")),
        ((99, 100), (0, 20), FAST, None, "not fit"),
        ((99, 100), (19, 20), speeds(60.0, 20.0), None, "not fit"),
        ((99, 100), (19, 20), speeds(1.0, 0.5), None, "not fit"),
        ((99, 100), (19, 20), speeds(1.0, 20.0, tokens=64), None, "tentative"),
        ((99, 100), (19, 20), {}, None, "tentative"),
        ((10, 100), (0, 20), FAST, (99, 100), "fit with fallback"),
        ((10, 100), (0, 20), FAST, (5, 5), "tentative"),
        ((10, 100), (0, 20), FAST, (20, 100), "not fit"),
        ((10, 100), (0, 20), speeds(60.0, 20.0), (99, 100), "not fit"),
    ],
)
def test_the_verdict(right, passed, speed, chain, verdict):
    """Fit, fit with fallback, not fit, or too few runs to tell; never without a reason."""
    found = judge(right, passed, speed, chain)

    assert found["verdict"] == verdict
    assert found["reasons"]


shares = st.integers(0, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(shares, shares)
def test_few_runs_make_no_model_fit_or_unfit(right, passed):
    """Whatever is fit has its whole interval above the threshold; whatever isn't has one below."""
    found = judge(right, passed)
    low = [describe_share(*one)["low"] for one in (right, passed)]
    high = [describe_share(*one)["high"] for one in (right, passed)]

    if found["verdict"] == "fit":
        assert low[0] >= 0.8
        assert low[1] >= 0.6
    if found["verdict"] == "not fit":
        assert high[0] < 0.8 or high[1] < 0.6


def test_a_chain_is_the_fallback_of_its_head_alone():
    """A tier behind it isn't judged by what the head's chain does."""
    rows = [calls("m", "+ grammar", 0, 100), calls("auto", "+ escalation", 99, 100)]
    found = judge_tiers(["m"], rows, [tasks("chain", 20, 20)], FAST, THRESHOLDS, "other")

    assert found["m"]["verdict"] == "not fit"
