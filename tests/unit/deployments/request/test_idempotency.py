"""Which requests may be repeated: by what name, and by which try of an SDK."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.errors import ApiError
from deployments.request.idempotency import find_kept, read_name
from tests.support.run_values import request_of, run_of


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_name_is_visible_ascii(name):
    """Law: it is taken as it is."""
    assert read_name({"idempotency-key": name}) == (name, None)


@given(st.text(max_size=300).filter(lambda name: not (name.isascii() and name.isprintable() and " " not in name)))
def test_anything_else_is_refused_by_the_headers_name(name):
    """Law: a client that repeats under a name that the server passed over would be charged twice and not know it."""
    with pytest.raises(ApiError, match="Idempotency-Key") as refused:
        read_name({"idempotency-key": name})
    assert (refused.value.code, refused.value.param) == ("invalid_request", "Idempotency-Key")


@pytest.mark.parametrize(("name", "fits"), [("", False), ("x" * 255, True), ("x" * 256, False)])
def test_a_name_has_bounds(name, fits):
    """Law: 1 to 255 characters."""
    if fits:
        assert read_name({"idempotency-key": name}) == (name, None)
    else:
        with pytest.raises(ApiError):
            read_name({"idempotency-key": name})


@pytest.mark.parametrize(
    ("count", "found"), [("0", ("", 0)), ("2", ("", 2)), ("", None), ("-1", None), ("1" * 9, None)]
)
def test_a_try_is_a_small_number(count, found):
    """Law: what is no count is no header of an SDK's, and the request runs as one without."""
    assert read_name({"x-stainless-retry-count": count}) == found


def test_a_name_goes_before_a_try():
    """Law: who names its request is taken by its name."""
    assert read_name({"idempotency-key": "n", "x-stainless-retry-count": "1"}) == ("n", None)


@pytest.mark.parametrize("route", ["completions", "embeddings"])
def test_what_is_passed_on_is_not_kept(route):
    """Law: its pieces are another API's bytes; nobody is asked."""
    run, nobody = run_of(request_of("hi")), None
    assert asyncio.run(find_kept(nobody, route, {"idempotency-key": "n"}, b"", run)) is None  # type: ignore[arg-type]


def test_logprobs_are_not_kept_and_the_report_says_so():
    """Law: nothing that a client asks for has no effect without a word."""
    nobody: Any = None
    run = run_of(replace(request_of("hi"), top_logprobs=1))

    assert asyncio.run(find_kept(nobody, "chat", {"idempotency-key": "n"}, b"", run)) is None
    assert "logprobs" in run.notes[0]
