"""A path may begin with the home of somebody who isn't known here."""

from __future__ import annotations

import pytest

from deployments.models.adapter import adapter_at
from deployments.models.artifact import resolve
from deployments.models.sources import ModelUnavailable, parse_source

NOBODY = "~nobody-of-that-name"


def test_a_model_and_an_adapter_say_that_there_is_no_such_folder():
    """The tier is unavailable with that reason, and nothing is raised that the tier doesn't expect."""
    with pytest.raises(ModelUnavailable, match="there is no such folder"):
        resolve(parse_source(f"path:{NOBODY}/model"), say=lambda words: None)
    with pytest.raises(ModelUnavailable, match="there is no such folder"):
        adapter_at(f"{NOBODY}/adapter")
