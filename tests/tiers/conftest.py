"""What the tests of tiers are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.upstream import Upstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that plays OpenRouter."""
    with Upstream() as server:
        yield server
