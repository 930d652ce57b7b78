"""The error by which a call is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from deployments.errors import ApiError


def refusal_of(ask: Callable[..., object], *args: Any, **named: Any) -> ApiError:
    """Ask, and return the error that is raised."""
    with pytest.raises(ApiError) as refused:
        ask(*args, **named)
    return refused.value
