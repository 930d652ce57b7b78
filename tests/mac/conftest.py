"""What the tests on a scripted Mac are given."""

from pathlib import Path

import pytest

from tests.support import tiny_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model of a few kilobytes."""
    return tiny_model.write_folder(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
