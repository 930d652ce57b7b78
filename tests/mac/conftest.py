"""What the tests on a scripted Mac are given."""

import pytest

from tests.support import tiny_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tiny_model.write_folder(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
