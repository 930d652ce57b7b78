"""Which way to ask again."""

import pytest

from reliability.escalation.decisions import RETRY_STRATEGY, RetryStep, next_reask


@pytest.mark.parametrize(
    ("strategy", "can", "steps"),
    [
        (RETRY_STRATEGY, True, [("correct", False), ("resample", True), ("constrain", True), ("constrain", True)]),
        (RETRY_STRATEGY, False, [("correct", False), ("resample", False), ("resample", False)]),
        ((RetryStep.RESAMPLE, RetryStep.CORRECT), True, [("resample", False), ("correct", False), ("correct", False)]),
        ((RetryStep.CONSTRAIN,), True, [("constrain", True), ("constrain", True)]),
        ((RetryStep.CONSTRAIN,), False, [("correct", False), ("correct", False)]),
        ((), True, [("correct", False)]),
    ],
)
def test_the_steps_of_a_retry_strategy(strategy, can, steps):
    """One step per re-ask, the last one repeated; a grammar from the second on, where the tier and its
    strategy have one."""
    found = [next_reask(strategy, n, can_constrain=can) for n in range(len(steps))]
    assert [(reask.step.value, reask.constrained) for reask in found] == steps
