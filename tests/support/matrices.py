"""Matrices of test cases, of which `make test` tries a half."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

STREAMS = (False, True)


def take_turns(*axes: Iterable[Any]) -> list[Any]:
    """Return all combinations for `parametrize`; those of an odd sum of places have the mark `further`. So of two axes
    each row of the one is tried, with the `STREAMS` in turns; of three, each pair of two values. A row that is a tuple
    is spread."""
    cases = []
    for places in itertools.product(*(enumerate(axis) for axis in axes)):
        values: list[Any] = []
        for _, value in places:
            values += value if isinstance(value, tuple) else [value]
        marks = [pytest.mark.further] * (sum(place for place, _ in places) % 2)
        cases.append(pytest.param(*values, marks=marks))
    return cases
