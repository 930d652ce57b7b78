"""What the tests of sessions share."""

import pytest

from tests.support.conversation_world import World


@pytest.fixture
def world() -> World:
    """An owner of conversations that knows none yet."""
    return World()
