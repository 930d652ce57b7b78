"""What the tests of tiers are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deployments.tiers import blas
from tests.upstream import Upstream

# As a replica does, and before any test module imports MLX: with the library that comes with it the model's tests take
# five times as long.
blas.preload()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that plays OpenRouter."""
    with Upstream() as server:
        yield server
