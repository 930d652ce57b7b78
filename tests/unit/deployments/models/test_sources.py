"""Model sources: what is accepted."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.sources import DEFAULT_SOURCE, parse_source
from tests.support import tiny_model as tiny
from tests.unit.deployments.models.test_wheels import TINY


class TestParse:
    def test_the_three_forms(self) -> None:
        """Law: each form is read into its parts."""
        hub = parse_source("hf:org/name@v1.0")
        assert (hub.kind, hub.name, hub.revision) == ("hf", "org/name", "v1.0")
        assert parse_source("path:~/m").name == "~/m"
        wheel = parse_source(f"{TINY}?sha256={'a' * 64}")
        assert (wheel.name, wheel.revision, wheel.file) == (tiny.PACKAGE, tiny.VERSION, tiny.FILE)
        assert wheel.sha256 == "a" * 64

    def test_the_default_is_pinned(self) -> None:
        """Law: the default model's file has a sha256 in the code."""
        assert len(parse_source(DEFAULT_SOURCE).sha256 or "") == 64

    @pytest.mark.parametrize(
        "text",
        ["", "auto", "hf:", "hf:name@main", "hf:org/name", "path:", "pypi:p#f.gguf", "pypi:p==1", "pypi:p==1#f.bin"],
    )
    def test_anything_else_names_the_forms(self, text: str) -> None:
        """Law: what isn't a source is a ValueError that names the allowed forms."""
        with pytest.raises(ValueError, match=r"hf:ORG/NAME@REVISION, path:DIR or pypi:PACKAGE==VERSION#FILE"):
            parse_source(text)

    @given(st.text())
    def test_no_text_does_anything_worse(self, text: str) -> None:
        """Law: for every text, a source or a ValueError."""
        with contextlib.suppress(ValueError):
            assert parse_source(text).text == text
