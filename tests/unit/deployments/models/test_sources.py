"""Model sources: what is accepted."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.sources import _PARTS_MAX, CODER_LARGE, CODER_SMALL, parse_source
from tests.support import tiny_model as tiny
from tests.unit.deployments.models.test_wheels import TINY


class TestParse:
    def test_the_forms(self) -> None:
        """Law: each form is read into its parts."""
        hub = parse_source("hf:org/name@v1.0")
        assert (hub.kind, hub.name, hub.revision) == ("hf", "org/name", "v1.0")
        assert parse_source("path:~/m").name == "~/m"
        wheel = parse_source(f"{TINY}?sha256={'a' * 64}")
        assert (wheel.name, wheel.revision, wheel.file) == (tiny.PACKAGE, tiny.VERSION, tiny.FILE)
        assert wheel.sha256 == "a" * 64
        file = parse_source("hf:org/name@v1.0#sub/m.gguf")
        assert (file.name, file.revision, file.file, file.is_gguf) == ("org/name", "v1.0", "sub/m.gguf", True)
        assert not hub.is_gguf

    @given(st.integers(0, 200), st.integers(0, 200))
    def test_parts_are_listed_in_the_order_of_their_numbers(self, first: int, last: int) -> None:
        """Law: part 10 comes after part 9; no part at all, or more than may be, is no source."""
        text = f"parts:some-part{{{first}..{last}}}==1.0#*/data/*.bin?sha256={'b' * 64}"
        if not 0 < last - first + 1 <= _PARTS_MAX:
            with pytest.raises(ValueError, match="parts:PACKAGE"):
                parse_source(text)
            return
        source = parse_source(text)
        assert source.packages == tuple(f"some-part{n}" for n in range(first, last + 1))
        assert (source.revision, source.file, source.sha256) == ("1.0", "*/data/*.bin", "b" * 64)

    @pytest.mark.parametrize("text", [CODER_SMALL, CODER_LARGE])
    def test_a_known_file_has_copies_of_the_same_bytes(self, text: str) -> None:
        """Law: the hub's file and its copies are pinned by one sha256; another pin has no copies."""
        source = parse_source(text)
        copies = parse_source(source.copies or "")
        assert source.sha256 == copies.sha256
        assert len(source.sha256 or "") == 64
        assert source.size_bytes
        other = parse_source(f"{text}?sha256={'0' * 64}")
        assert (other.copies, other.size_bytes, other.sha256) == (None, None, "0" * 64)
        assert parse_source(f"{text}?sha256={source.sha256}").copies == source.copies

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "",
                "auto",
                "hf:",
                "hf:name@main",
                "hf:org/name",
                "hf:org/name@main#f.bin",
                "hf:org/name#f.gguf",
                "path:",
            ),
            *("pypi:p#f.gguf", "pypi:p==1", "pypi:p==1#f.bin", "parts:p{1..2}==1#f.bin"),
            "parts:p==1#f?sha256=" + "a" * 64,
        ],
    )
    def test_anything_else_names_the_forms(self, text: str) -> None:
        """Law: what isn't a source is a ValueError that names the allowed forms."""
        with pytest.raises(ValueError, match=r"hf:ORG/NAME@REVISION, .*path:DIR, pypi:PACKAGE==VERSION#FILE"):
            parse_source(text)

    @given(st.text())
    def test_no_text_does_anything_worse(self, text: str) -> None:
        """Law: for every text, a source or a ValueError."""
        with contextlib.suppress(ValueError):
            assert parse_source(text).text == text
