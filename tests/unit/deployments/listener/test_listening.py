"""What a client may name its request."""

import pytest

from deployments.listener.listening import is_request_id


@pytest.mark.parametrize(
    ("given", "good"),
    [
        ("r" * 128, True),
        ("a b", True),
        ("", False),
        ("r" * 129, False),
        ("é", False),
        ("a\nb", False),
        ("\x1b[1m", False),
    ],
)
def test_a_name_is_a_word_or_two_of_one_line(given: str, good: bool) -> None:
    """Law: it has 1 to 128 printable ASCII characters."""
    assert is_request_id(given) is good
