"""One server for each module of this folder: a hosted tier, whose upstream plays what the last user message names."""

from collections.abc import Iterator

import pytest

from tests.support import scripts
from tests.support.named_plays import play_named
from tests.support.serving import Deploy, Server
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def server(deploy: Deploy, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Run the server of one module."""
    with Upstream() as upstream:
        upstream.plays("some/model", play_named)
        aliases = {"aliases": {"openai/gpt-4o": "premium"}}
        args = scripts.graph({"premium": scripts.hosted(upstream)}, retries=0, server=aliases)
        yield deploy(args, request.module.__name__.rpartition(".")[2].replace("_", "-"))
