"""What the tests of the MLX tier are given."""

import asyncio
from collections.abc import Iterator

import pytest

from deployments.models.sources import DEFAULT_SOURCE
from deployments.tiers.mlx.mlx_tier import MlxTier
from tests.support.mlx_rig import ready


@pytest.fixture(scope="package")
def tier() -> Iterator[MlxTier]:
    """The real model, loaded once for all that ask it and look at nothing that others have left in it."""
    made = ready(model=DEFAULT_SOURCE)
    yield made
    asyncio.run(made.close())
