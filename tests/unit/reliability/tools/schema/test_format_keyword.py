"""The `format` keyword: what its names accept, and whom they say nothing about."""

from __future__ import annotations

import pytest

from reliability.tools.schema.format_keyword import FORMATS

GOOD = [
    ("date-time", "2028-02-29t23:59:60.5z"),
    ("date-time", "2031-01-02 03:04:05-23:59"),
    ("time", "00:00:00Z"),
    ("uri", "mailto:a@b"),
    ("uri", "urn:x:%20"),
    ("hostname", "a" * 63 + ".b."),
    ("duration", "P2W"),
    ("duration", "P1Y2M3DT4H5M6S"),
    ("duration", "PT0S"),
    ("regex", "(a)\\1"),
    ("date", "2028-02-29"),
    ("ipv4", "10.0.0.255"),
    ("no such format", "\n"),
]
BAD = [
    ("date-time", "2031-02-29T03:04:05Z"),
    ("date-time", "2031-01-02T03:04:05"),
    ("date-time", "2031-01-02T24:00:00Z"),
    ("date-time", "2031-01-02T03:04:05Z\n"),
    ("date-time", "٢٠٣١-01-02T03:04:05Z"),
    ("time", "03:04:05+24:00"),
    ("uri", "//host/path"),
    ("uri", "https://x/a b"),
    ("hostname", "a" * 64),
    ("hostname", "a..b"),
    ("hostname", "a." * 127),
    ("duration", "P"),
    ("duration", "PT"),
    ("duration", "P1DT"),
    ("duration", "P1W2D"),
    ("regex", "(a"),
    ("date", "2031-02-29"),
    ("ipv4", "10.0.0.256"),
]


@pytest.mark.parametrize(("name", "text", "fits"), [(*row, True) for row in GOOD] + [(*row, False) for row in BAD])
def test_formats_mean_what_their_standards_say(name, text, fits):
    """The edges of RFC 3339, 3986 and 1123, of ISO 8601's durations, and of ECMA's patterns."""
    assert FORMATS.conforms(text, name) is fits


@pytest.mark.parametrize("name", sorted({name for name, _ in BAD}))
@pytest.mark.parametrize("value", [None, True, 7, 1.5, [], ["x"], {}])
def test_a_format_is_about_texts_only(name, value):
    """Whatever is no string has any format: what it may be is for `type` to say."""
    assert FORMATS.conforms(value, name)
