"""The sabotages of `make mutants`, which takes half an hour: that each of them can still be made."""

from __future__ import annotations

import pytest

from tests.mutants import __main__ as sabotage


@pytest.mark.parametrize(
    "mutant", sabotage.MUTANTS, ids=[f"{file}-{at}" for at, (file, *_) in enumerate(sabotage.MUTANTS)]
)
def test_a_sabotage_fits_the_code(mutant):
    """Its text stands in its file exactly once, what replaces it is another one, and there are tests to notice it."""
    file, old, new, law = mutant

    assert (sabotage.ROOT / file).read_text(encoding="utf-8").count(old) == 1
    assert old != new
    assert law
    assert sabotage.tests_of(file, sabotage.ROOT)
