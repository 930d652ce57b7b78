"""Penalties and biases against their formulas, written out in plain Python."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.sampling import Guarded, Sampling, build_penalties

mx = pytest.importorskip("mlx.core")

VOCABULARY = 6
logits_rows = st.lists(st.floats(-5, 5, width=32), min_size=VOCABULARY, max_size=VOCABULARY)
token_rows = st.lists(st.integers(0, VOCABULARY - 1), max_size=10)


def processed(sampling: Sampling, prompt: list[int], answer: list[int], row: list[float]) -> list[float]:
    tokens, logits = mx.array([*prompt, *answer], dtype=mx.int32), mx.array([row])
    for processor in build_penalties(sampling, len(prompt)):
        logits = processor(tokens, logits)
    out: list[list[float]] = logits.tolist()
    return out[0]


@settings(deadline=None)
@given(logits_rows, token_rows, token_rows, st.floats(-2, 2), st.floats(-2, 2))
def test_presence_and_frequency_are_openais(row, prompt, answer, presence, frequency):
    """Law: logit[t] - count[t] * frequency - (count[t] > 0) * presence, counted over the answer alone."""
    sampling = Sampling(presence_penalty=presence, frequency_penalty=frequency)
    expected = [
        logit - answer.count(token) * frequency - (token in answer) * presence for token, logit in enumerate(row)
    ]
    assert processed(sampling, prompt, answer, row) == pytest.approx(expected, abs=1e-4)


@settings(deadline=None)
@given(logits_rows, token_rows, token_rows, st.floats(0.1, 3))
def test_repetition_divides_what_was_there_already(row, prompt, answer, penalty):
    """Law: a token of prompt or answer is less likely by the factor, once however often it was there."""
    expected = [
        (logit * penalty if logit < 0 else logit / penalty) if token in (*prompt, *answer) else logit
        for token, logit in enumerate(row)
    ]
    sampling = Sampling(repetition_penalty=penalty)
    assert processed(sampling, prompt, answer, row) == pytest.approx(expected, abs=1e-3)


@settings(deadline=None)
@given(logits_rows, st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100, width=32), min_size=1))
def test_a_bias_is_added(row: list[float], bias: dict[int, float]) -> None:
    """Law: each token's bias is added to its logit, and to no other."""
    expected = [logit + bias.get(token, 0) for token, logit in enumerate(row)]
    assert processed(Sampling(logit_bias=tuple(bias.items())), [1], [], row) == pytest.approx(expected, abs=1e-4)


def test_neutral_settings_cost_nothing() -> None:
    """Law: without penalties there is no processor, and sampling stays one call for the whole batch."""
    assert build_penalties(Sampling(temperature=1.0, seed=3), 5) == []


def test_a_guard_remembers_and_stays_out_of_the_way() -> None:
    """Law: after the first error a processor isn't called again, and the logits pass unchanged."""
    calls: list[Any] = []

    def bad(tokens: Any, logits: Any) -> Any:
        calls.append(tokens)
        raise ValueError("no")

    guard, logits = Guarded(bad), mx.zeros((1, 3))
    assert guard(mx.array([1]), logits) is logits
    assert guard(mx.array([1]), logits) is logits
    assert (len(calls), str(guard.error)) == (1, "no")


def test_a_processor_says_itself_that_it_is_over() -> None:
    """Law: behind the first None it isn't called again, and that is no error."""
    calls: list[Any] = []
    guard, logits = Guarded(lambda tokens, _: calls.append(tokens)), mx.zeros((1, 3))
    assert guard(mx.array([1]), logits) is logits
    assert guard(mx.array([1]), logits) is logits
    assert (len(calls), guard.error, guard.over) == (1, None, True)
