"""What the contract tests are given."""

from collections.abc import Iterator

import pytest

from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def upstream(request: pytest.FixtureRequest) -> Iterator[Upstream]:
    """A server in a provider's place, one for each module; it asks for the module's `UPSTREAM_KEY`, if it has one."""
    with Upstream(key=getattr(request.module, "UPSTREAM_KEY", None)) as running:
        yield running
