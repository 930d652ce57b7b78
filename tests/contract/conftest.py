"""What the contract tests are given."""

import pytest

from tests.conftest import UPSTREAM_KEY
from tests.support.dialects import DIALECTS
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def upstream():
    """A server in a provider's place, one for each module."""
    with Upstream(key=UPSTREAM_KEY) as running:
        yield running


@pytest.fixture(params=[False, True])
def stream(request):
    """Whether an answer is streamed: a test that takes it without naming values is tried both ways."""
    return request.param


@pytest.fixture(params=DIALECTS)
def dialect(request):
    """Each dialect in turn."""
    return request.param
