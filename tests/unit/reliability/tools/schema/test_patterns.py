"""Clients' patterns: what they mean, what they may cost, and what is said where one is not asserted."""

import datetime
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, TypeAdapter

from reliability.steps import OutOfSteps, Steps
from reliability.tools.schema.patterns import FORMATS, BrokenPattern, Unasserted, estimate_compile_steps, translate
from tests.support.call_values import made
from tests.support.renderings import tool

# Each runs for ever in an engine that backtracks.
ENDLESS = [
    ("(a?){30}a{30}", "a" * 30 + "!"), ("(a{0,99}){0,9}b", "a" * 200), ("a{0,99}" * 5 + "b", "a" * 300),
    ("(a{1,2}){50}b", "a" * 100), ("(x{1,20}){1,20}y", "x" * 400), ("(a|b|ab){1,60}c", "ab" * 60),
    (r"(\w{1,10}\s?){1,20}$", "a" * 100 + "!"),
    (r"^([a-z]{1,10} ?){1,20}$", "a slug of words that is an ordinary sentence!"),
    (r"^([A-Za-z0-9]{1,20}[-_]?){1,10}$", "a" * 60 + "!"), ("^(a+)+$", "a" * 60 + "!"), ("(x+x+)+y", "x" * 60),
    ("((a|b+)c?)*d", "ab" * 60), ("(.|a)*b$", "a" * 60),
]  # fmt: skip


def unasserted(pattern):
    with pytest.raises(Unasserted) as why:
        translate(pattern)
    return str(why.value)


@pytest.mark.parametrize(("pattern", "text"), ENDLESS)
def test_no_pattern_holds_anybody_up(pattern, text):
    """What backtracks for ever elsewhere is decided here, at once."""
    started_s = time.process_time()
    assert translate(pattern).allows(text) is (pattern == "(a?){30}a{30}")
    assert time.process_time() - started_s < 0.5


@pytest.mark.parametrize("pattern", ["^[a-z0-9]+(?:-[a-z0-9]+)*$", "^(a+)+$", "^([a-z]{1,10} ?){1,20}$"])
def test_what_looks_dangerous_is_checked_all_the_same(pattern):
    """Nothing is left out for its looks."""
    box = made([tool("f", {"properties": {"a": {"pattern": pattern}}})])
    assert box.tools[0].unchecked == ()
    assert box.tools[0].compiled.validator.is_valid({"a": "aaa"})
    assert not box.tools[0].compiled.validator.is_valid({"a": "aaa!"})


@pytest.mark.parametrize(("pattern", "why"), [
    ("(a)\\1+", "refers back"), ("(?<x>a)\\k<x>", "refers back"), ("a(?=b)", "looks ahead"),
    ("^a|^(?=b)b", "looks ahead"), ("^(?=a)a|b", "looks ahead"), ("(?<!a)b", "looks ahead or behind"),
    ("^(?=(?=a))a$", "looks ahead"), ("a++", "possessive"), ("(?>a)", "only some engines know"),
    ("\\p{Emoji}", "property"), ("\\p{Letter}", "property"), ("\\ud800", "half a character"), ("a" * 1_001, "longer"),
    ("((a{99}){99}){99}", "larger"), ("(a{0,1000}){0,1000}", "larger"), ("^(ab){1,1500}$", "larger"),
    ("a{99999}", "larger"), ("\\y", "escape"),
])  # fmt: skip
def test_what_no_linear_engine_has_is_not_asserted_and_said_so(pattern, why):
    """The tool stays usable, and it says which pattern isn't checked, and why."""
    assert why in unasserted(pattern)
    box = made([tool("f", {"properties": {"a": {"pattern": pattern}}})])
    assert box.tools[0].compiled.validator.is_valid({"a": "!"})
    assert box.tools[0].unchecked[0].startswith("/properties/a/pattern: the pattern ")


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a)", "[z-a]", "a**", "\\", "(?"])
def test_what_is_no_pattern_in_any_dialect_is_the_clients_mistake(pattern):
    """It is refused, not left out."""
    with pytest.raises(BrokenPattern):
        translate(pattern)


def test_names_that_cant_be_told_apart_are_not_refused():
    """A name pattern that isn't asserted takes the refusal of other names with it."""
    box = made([tool("f", {"patternProperties": {"(a)\\1": {"type": "string"}}, "additionalProperties": False})])
    assert box.tools[0].compiled.validator.is_valid({"ä": 1})
    assert box.tools[0].unchecked


def test_matching_is_paid_for():
    """A long text against a large program is more than few steps allow, and the same is decided with enough."""
    box = made([tool("f", {"properties": {"a": {"pattern": "^(a|b){1,900}c"}}})])
    value = {"a": "ab" * 50_000}
    with pytest.raises(OutOfSteps):
        box.tools[0].compiled.validator.is_valid(value, Steps(20_000))
    assert not box.tools[0].compiled.validator.is_valid(value, Steps(20_000_000))


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "\\.", "(?:ab)", "(b|c)", "\\bx", "[a-c1]"])
repeats = st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}", "{2,}", "*?"])
simple = st.lists(st.tuples(atoms, repeats).map("".join), min_size=1, max_size=4).map("".join)
patterns = st.tuples(st.sampled_from(["", "^"]), simple, st.sampled_from(["", "$"])).map("".join)


@settings(max_examples=400, deadline=None)
@given(pattern=patterns, text=st.text("ab1x. c\n", max_size=12))
def test_it_agrees_with_an_engine_that_backtracks(pattern, text):
    """Where Python's engine means the same and ends, the answer is the same."""
    python = pattern.replace(".", "[^\\n\\r\\u2028\\u2029]") if "\\." not in pattern else None
    if python is None or "[ab.]" in pattern:
        return
    expected = re.search(python.removesuffix("$") + ("\\Z" if python.endswith("$") else ""), text, re.ASCII)
    assert translate(pattern).allows(text) is (expected is not None)


@settings(max_examples=400, deadline=None)
@given(pattern=st.text("ab()[]{}*+?|^$\\.,-:=!<>P12sSdwpLuk/", max_size=14), text=st.text("ab1 ", max_size=6))
def test_any_text_is_a_pattern_or_refused(pattern, text):
    """Nothing that a client writes as a pattern ends in anything but a verdict."""
    try:
        found = translate(pattern)
    except (BrokenPattern, Unasserted):
        return
    assert found.allows(text) in (True, False)
    assert found.steps(text) > 0
    assert estimate_compile_steps(pattern) > 0


GOOD = [
    ("date-time", "2028-02-29t23:59:60.5z"), ("date-time", "2031-01-02 03:04:05-23:59"), ("time", "00:00:00Z"),
    ("uri", "mailto:a@b"), ("uri", "urn:x:%20"), ("hostname", "a" * 63 + ".b."), ("duration", "P2W"),
    ("duration", "P1Y2M3DT4H5M6S"), ("duration", "PT0S"), ("regex", "(a)\\1"), ("date", "2028-02-29"),
    ("ipv4", "10.0.0.255"), ("no such format", "\n"),
]  # fmt: skip
BAD = [
    ("date-time", "2031-02-29T03:04:05Z"), ("date-time", "2031-01-02"), ("date-time", "2031-01-02T24:00:00Z"),
    ("date-time", "2031-01-02T03:04:05Z\n"), ("date-time", "٢٠٣١-01-02T03:04:05Z"), ("time", "03:04:05+24:00"),
    ("uri", "//host/path"), ("uri", "https://x/a b"), ("hostname", "a" * 64), ("hostname", "a..b"),
    ("hostname", "a." * 127), ("duration", "P"), ("duration", "PT"), ("duration", "P1DT"),
    ("duration", "P1W2D"), ("regex", "(a"), ("date", "2031-02-29"), ("ipv4", "10.0.0.256"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "fits"), [(*row, True) for row in GOOD] + [(*row, False) for row in BAD])
def test_formats_mean_what_their_standards_say(name, text, fits):
    """The edges of RFC 3339, 3986 and 1123 as libraries read them, of ISO 8601's durations, and of ECMA's patterns."""
    assert FORMATS.conforms(text, name) is fits


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (
            datetime.datetime,
            ["2031-01-02T03:04:05", "2031-01-02T03:04", "2031-01-02 03:04Z", "2031-01-02T03:04:05.5+0100"],
        ),
        (datetime.time, ["03:04", "03:04:05", "03:04:05.5", "03:04Z"]),
        (AnyUrl, ["https://x/?titles=A|B", "https://x/{id}", "data:text/html,<h1>Hi</h1>", "https://x/a^b", "C:\\a"]),
    ],
)
def test_what_the_tools_own_library_takes_is_no_mistake(kind, texts):
    """A tool whose schema pydantic has written takes these values, so that a call with one is right."""
    adapter = TypeAdapter(kind)
    for text in texts:
        adapter.validate_python(text)
        assert FORMATS.conforms(text, adapter.json_schema()["format"]), text


@pytest.mark.parametrize("name", sorted({name for name, _ in BAD}))
@pytest.mark.parametrize("value", [None, True, 7, 1.5, [], ["x"], {}])
def test_a_format_is_about_texts_only(name, value):
    """Whatever is no string has any format: what it may be is for `type` to say."""
    assert FORMATS.conforms(value, name)
