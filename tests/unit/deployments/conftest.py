"""What the tests of tiers are given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.tiers.mlx.grammar.compiler import Constraints
from tests.support import tiny_model
from tests.support.engine_rig import Rig
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that plays OpenRouter."""
    with Upstream() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's files."""
    return tiny_model.write_folder(tmp_path_factory.mktemp("engine") / "tiny")


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    """An engine with two places on that model."""
    made = Rig(folder)
    yield made
    made.model.moving.set()
    made.engine.close()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    """The tiny model's."""
    from mlx_lm.tokenizer_utils import load

    return load(folder)


@pytest.fixture(scope="module")
def constraints(tokenizer: Any) -> Constraints:
    """The grammars of that tokenizer."""
    return Constraints(tokenizer)
