"""The patterns of placeholders: what has the form of one. Whether it is convicted: test_placeholders.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.tools.check.placeholder_forms import (
    PLACEHOLDERS,
    Argument,
    Standin,
    build_matcher,
    may_be_description,
    split_words,
)

CITY = Argument("home_city", "The city to look in. May be a town, e.g. Lima.", ("search",))
names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,8}([_-][a-zA-Z0-9]{1,8})?", fullmatch=True)
DEFAULT = build_matcher(PLACEHOLDERS)


def found(text: str, *patterns: str, argument: Argument = CITY) -> Standin | None:
    """What a text is by these patterns, the fast look included."""
    matcher = build_matcher(patterns) if patterns else DEFAULT
    likely = matcher.may_match(text, argument.name) or may_be_description(text, argument.description)
    return matcher.match(text, argument) if likely else None


@pytest.mark.parametrize("text", ["<x y>", "[x_y]", "{x-y}", "{{xY}}", "${X_Y}", "%X_Y%", "<< x y >>", "a/<x y>/b"])
def test_brackets_and_joints_are_one_pattern(text):
    """`<x *>` is any brackets and any joint of words, also inside a text without white space."""
    assert found(text, "<x *>") == Standin(framed=True)
    assert found(text, "<y *>") is None


def test_an_identifier_is_no_sentence():
    """`_` in a pattern without brackets wants a text without white space."""
    assert found("X-Y", "x_*") == found("xY", "x_*") == Standin(framed=False)
    assert found("x y", "x_*") is None
    assert found("x y", "x *") == Standin(framed=False)


@pytest.mark.parametrize(("text", "framed", "asks"), [
    ("<home city>", True, False), ("<YOUR_HOME_CITY>", True, True), ("[insert home city here]", True, True),
    ("<search_home_city>", True, False), ("{homeCity}", True, False), ("<the user's home city>", True, False),
    ("home_city", False, False), ("HomeCity", False, False), ("homecity", False, False),
    ("your home city", False, False), ("home_city_name", False, False),
])  # fmt: skip
def test_an_arguments_own_name_is_found(text, framed, asks):
    """However it is spelled, and with words that say nothing beside it."""
    assert found(text) == Standin(framed, own=True, instructs_own=asks)


@pytest.mark.parametrize("text", ["home", "city", "the home of the city", "home city Lima", "a city", "<div>", "Lima"])
def test_another_name_is_not(text):
    """A part of the name, or more than it, is a value."""
    assert found(text) is None


def test_types_and_descriptions_are_found():
    """The type's name, and the description or its first sentence, with its article or without."""
    assert found("string") == Standin(False, own=True, by_type=True)
    assert found("<string>") == Standin(True, own=True, by_type=True)
    for text in (CITY.description, "The city to look in", "city to look in."):
        assert found(text) == Standin(False, own=True)
    assert found("The city to look at") is None
    assert found("integer") is None


def test_patterns_of_one_s_own():
    """A list of one's own replaces all of the others; older spellings of the name in brackets are read."""
    assert found("??", "??") == Standin(framed=False)
    assert found("<your city>", "??") is None
    assert found("<home_city>", "{{{name}}}") == Standin(True, own=True)
    assert found("home_city", "<{name}>") is None


@given(st.text(max_size=60), names, st.text(max_size=40))
def test_the_fast_look_misses_nothing(text, name, description):
    """What the patterns find, the fast look lets pass to them."""
    argument = Argument(name, description)
    if DEFAULT.match(text, argument) is not None:
        assert found(text, argument=argument) is not None


@given(
    st.sampled_from(["<{}>", "{}", "your {}", "{}_name", "[{}]"]),
    st.from_regex(r"[a-z]{2,8}(_[a-z]{2,8})?", fullmatch=True),
)
def test_the_fast_look_misses_no_name(form, name):
    """The same, for texts that say a name."""
    text, argument = form.format(name), Argument(name)
    assert (found(text, argument=argument) is None) == (DEFAULT.match(text, argument) is None)


def test_words_are_split():
    """At signs, at capitals, and without case."""
    assert split_words("userID of the HTTPServer_v2") == ("user", "id", "of", "the", "http", "server", "v2")
