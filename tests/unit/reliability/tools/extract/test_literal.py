"""Reading values: what has one reading is read, what has two is not."""

import ast
import json

import pytest

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import DEPTH_MAX, Unreadable, dump, read


@pytest.mark.parametrize(("text", "value"), [
    ("{'a': True, 'b': None, \"c\": false}", {"a": True, "b": None, "c": False}),
    ('{"a": TRUE, "b": Null}', {"a": True, "b": None}),
    ("{'a': (1, 2), 'b': (1), 'c': (), 'd': (1,)}", {"a": [1, 2], "b": 1, "c": [], "d": [1]}),
    ("[1, 2,]", [1, 2]), ('{"a": 1,}', {"a": 1}), ("{a: 1, $b: 2, 3: 'x'}", {"a": 1, "$b": 2, "3": "x"}),
    ('{"a": 1_000, "b": .5, "c": 5., "d": -1.5e3}', {"a": 1000, "b": 0.5, "c": 5.0, "d": -1500.0}),
    ('{"a": 1, /* one */ "b": "x" // two\n, "c": 2 # three\n}', {"a": 1, "b": "x", "c": 2}),
    ('{"a": "line\nbreak\tand tab"}', {"a": "line\nbreak\tand tab"}),
    ('{"a": "\\d+\\."}', {"a": "\\d+\\."}), ('{"a": "\\d\\"x\\/"}', {"a": '\\d"x/'}),
    ('{"a": "it\\\'s"}', {"a": "it's"}),
    ("{'a': 'it\\'s \\x41\\u00e9\\U0001f600\\n'}", {"a": "it's Aé\U0001f600\n"}),
    ("{'a': '\\ud83d\\ude00'}", {"a": "\U0001f600"}), ('{"a": "x", "a": "x"}', {"a": "x"}),
    ('{"a": 12345678901234567890}', {"a": 12345678901234567890}),
])  # fmt: skip
def test_one_reading_is_read(text, value):
    """Literals of Python and JavaScript, comments, raw line breaks and lone backslashes give the value
    they spell."""
    assert json.dumps(read(text).value) == json.dumps(value)


NO_JSON = [r"\x00", r"\x7f", r"\x64", r"\xE9", r"\x27", r"\U0001F600", r"\UFFFFFFFF", r"\x4", r"\U12", r"\d"]


@pytest.mark.parametrize("escape", NO_JSON)
@pytest.mark.parametrize(
    "around", ["{}", "re.compile('[^{}-z]')", "C:{}\\Work", "sed 's/{}//g' f", '{} \\"x\\"', "\\d{}", "{}\\w"]
)
def test_an_escape_that_json_lacks_stays_as_written(around, escape):
    """Law: in JSON a backslash that begins no escape of JSON stays, whatever other languages read there, which is
    noted; next to an escape of JSON the string has two readings."""
    written = around.replace("{}", escape)
    value = read(f'{{"a": "{written}", "b": [1]}}')
    assert value.value == {"a": written.replace('\\"', '"'), "b": [1]}
    assert RepairKind.ESCAPE in value.repair_kinds
    with pytest.raises(Unreadable):
        read(f'{{"a": "{written}\\n"}}')


@pytest.mark.parametrize("text", ["{{'a': \"it's {}\"}}", "{{'a': '{}'}}", "['x', \"it's {}\"]"])
@pytest.mark.parametrize("escape", NO_JSON[:6])
def test_an_escape_of_python_is_read_behind_single_quotes(text, escape):
    """Law: a text with strings in single quotes is Python's or JavaScript's, whose escapes are read."""
    text = text.format(escape)
    assert read(text).value == ast.literal_eval(text)


@pytest.mark.parametrize("text", [
    '{"a": value}', '{"a": 1 "b": 2}', '{"a" 1}', '{"a": "b" "c"}', '{"a": 5*11}', '{"a": 1/3}', '{"a": 10 // 2\n}',
    '{"a": 007}', '{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', "{'a': 1e999}", '{"a": -1e-999}', "{'a': .01e-999}",
    '{"a": 1.1.1}', '{"a": +1}', '{"a": 0x10}', '{"a": 1e}', '{"a": -}', '{"a": 1, "a": 2}', "{'a': 1, 'a': 2}",
    '{"a": 1, "a": 1.0}', '{"a": true, "a": 1}', "[1, ...]", "{'a', 'b'}", '{"a": "C:\\dir\\new"}', '{"a": "\\d\\\\"}',
    "{'a': '\\07'}", "{'a': '\\U7fffffff'}", '{"a\nb": 1, }', '{"a": 1', '["a"', "(1", '{"a', "{1.5: 2}", "",
    '{"a": /* 1}', "{'a': f'x'}", "f(x)", '{"a": ' + "9" * 5_000 + "}", "{'a': " + "9" * 5_000 + "}",
    "[" * 200 + "]" * 200, "(" * 200, "[" * 100_000, '{"a": [1, , 2]}', '{"a": 1e5_0}',
])  # fmt: skip
def test_two_readings_are_none(text):
    """Expressions, missing marks, lost digits, keys given twice and the like are refused, never guessed."""
    with pytest.raises(Unreadable) as why:
        read(text)
    assert why.value.reason


def test_depth_is_bounded_in_both_readings():
    """Values are read up to the bound of depth, strictly and widely, and not beyond."""
    for left, right in (("[", "]"), ("(", ",)"), ('{"a":', "}"), ("{'a':", "}")):
        assert read(left * (DEPTH_MAX - 1) + "1" + right * (DEPTH_MAX - 1)).value
        with pytest.raises(Unreadable):
            read(left * (DEPTH_MAX + 2) + "1" + right * (DEPTH_MAX + 2))


def test_long_texts_are_read_through_the_window():
    """A value that is longer than the decoder's first window is read whole; a broken one is still broken."""
    value = {"a": ["x" * 70_000, {"b": [*range(20_000)]}]}
    text = json.dumps(value)

    assert read(text + " tail").value == value
    assert read(" " * 70_000 + "1").value == 1
    with pytest.raises(Unreadable):
        read(text[:-1])
    with pytest.raises(Unreadable):
        read('{"a": ' + "[1," * 40_000)


def test_lone_surrogates_survive_writing():
    """What UTF-8 can't carry is spelled out; everything else stays readable."""
    assert dump({"a": "\ud800"}) == '{"a": "\\ud800"}'
    assert dump({"a": "é漢"}) == '{"a": "é漢"}'
