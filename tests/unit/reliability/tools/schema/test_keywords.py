"""The keywords' own rules."""

import pytest

from reliability.tools.schema.validator import Validator


@pytest.mark.parametrize(
    ("multiple", "value", "valid"),
    [(0.1, 0.3, True), (0.01, 4.35, True), (0.1, 0.35, False), (1e-300, 1e300, True), (3, 10**400, False)],
)
def test_numbers_are_compared_as_they_are_written(multiple, value, valid):
    """0.3 is a multiple of 0.1, whatever binary fractions say."""
    assert Validator({"multipleOf": multiple}).is_valid(value) is valid
