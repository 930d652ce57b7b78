"""What two calls share that mean the same."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Stage
from reliability.loops.comparison import call_normalization
from reliability.loops.comparison.call_normalization import ECHO, HOLE, blur_call, mask_echoes, says_enough, spell_aim
from reliability.loops.comparison.findings import SeenCall
from tests.support.conversation import USER, acted, quiet, stages

NOBODY: frozenset[str] = frozenset()


def blur(arguments: Any, name: str = "run") -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return blur_call(SeenCall(name, text), NOBODY)[1]


SAME = [
    ({"command": "make"}, {"command": "make", "description": "build it", "timeout": 90}),
    ({"command": "make -k all"}, {"command": "make   -k\tall  # attempt 2"}),
    ({"command": "cat a.py"}, {"command": "cat ./a.py"}),
    ({"command": "timeout 5 make"}, {"command": "timeout 90s make"}),
    ({"command": "sleep 5; cat a"}, {"command": "sleep 0.7; cat a"}),
    ({"command": "sleep 17s && cat a"}, {"command": "sleep 3s && cat a"}),
    ({"command": "echo try1; make"}, {"command": "echo try2; make"}),
    ({"code": "print(1 + x)"}, {"code": "# once more\nprint(1 + x)"}),
    ({"path": "a.py"}, {"path": "./a.py", "attempt": 4, "explanation": "look"}),
    ({"path": "a.py"}, {"path": "a.py", "request_id": "9f1b", "timestamp": 1_760_000_000}),
    ({"path": "a.py", "offset": 10}, {"path": "a.py", "offset": 90}), ("ls  -l # again", "ls -l"),
    ({"command": "sed -n '1,11p' a.py"}, {"command": "sed -n '1,90p' a.py"}),
    ('{"b": 1, "a": "é"}', '{"a": "e\\u0301", "b": 1.0}'),
]  # fmt: skip
OTHERS = [
    ({"path": "a.py"}, {"path": "b.py"}), ({"user_id": "41"}, {"user_id": "42"}), ({"user_id": 41}, {"user_id": 42}),
    ({"date": "2026-05-01"}, {"date": "2026-05-02"}), ({"new": "x # one"}, {"new": "x # two"}),
    ({"description": "a lamp"}, {"description": "a shade"}),
    ({"command": "cat file1.txt"}, {"command": "cat file2.txt"}),
    ({"command": "echo a#b"}, {"command": "echo a#c"}), ({"expression": "2*3"}, {"expression": "2*4"}),
    ({"items": [1, 2]}, {"items": [2, 1]}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "same"), [(*pair, pair in SAME) for pair in SAME + OTHERS])
def test_what_means_the_same_is_the_same(one: Any, other: Any, same: bool) -> None:
    """Remarks, attempts, waiting times, spelling and figures make no other call; an id, a day, an edit's text, a name
    with a figure, and a remark that is all there is, do."""
    assert (blur(one) == blur(other)) is same


values = st.one_of(st.integers(), st.text(max_size=20))


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=8), values, max_size=4))
def test_nothing_is_too_odd(text: str, arguments: dict[str, Any]) -> None:
    """Every text and every object has a spelling, and it begins with the tool's name."""
    assert blur(text).startswith("run\x1f")
    assert blur(arguments).startswith("run\x1f")
    assert blur(arguments) == blur(dict(reversed(arguments.items())))


@pytest.mark.parametrize("form", ["head -n %d a.py", "head -%d a.py", "tail -n %d a.py", "sed -n '%d,90p' a.py"])
def test_a_command_that_shows_lines_is_a_place(form: str) -> None:
    """Law: how many lines of a file a command shows is a place in it, as an offset is."""
    one, other = (blur({"command": form.replace("%d", figure)}) for figure in ("17", "23"))
    assert one == other
    assert call_normalization.PLACE in one


def test_what_is_masked_is_known() -> None:
    """A call whose figures were masked is marked, and one without any is not."""
    assert HOLE in blur({"command": "make --log 2026-03-03T10:01:02.log"})
    assert HOLE not in blur({"command": "make all", "timeout": 5})


@pytest.mark.parametrize(
    "text", ["ok", "total: 7", "Saved the file.", '{"items": []}', "no such order", "Error: permission denied for it"]
)
def test_such_results_say_nothing(text: str) -> None:
    """An acknowledgement, an empty list and a bare error are what unlike deeds have in common."""
    assert not says_enough(text)
    assert says_enough("the sky is grey, the wall is red, the door is green")


def mask(arguments: Any, text: str) -> str:
    return mask_echoes(SeenCall("read", json.dumps(arguments)), text)


@pytest.mark.parametrize(("arguments", "text"), [
    ({"path": "a%a.py"}, "no file a%a.py here"), ({"offset": 0}, "offset %a is behind the end"),
    ({"range": [0, 9]}, "nothing from %a to 9"),
])  # fmt: skip
def test_other_arguments_with_the_same_answer_are_the_same(arguments: Any, text: str) -> None:
    """Law: results that differ in what was asked alone are equal once that is masked."""

    def answer(figure: int) -> str:
        asked = (
            json.dumps(arguments).replace("%a", str(figure)).replace("0,", f"{figure},").replace("0}", f"{figure}}}")
        )
        told = text.replace("%a", str(figure))
        return mask(json.loads(asked), told)

    assert answer(700) == answer(900)
    assert ECHO in answer(700)


def test_what_the_call_did_not_say_stays() -> None:
    """A figure inside a word or a longer number is no echo."""
    assert mask({"n": 4}, "a4 41 4.5 x") == "a4 41 4.5 x"
    assert mask({"n": True}, "True") == "True"


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9)), max_size=30), st.text())
def test_any_result_can_be_masked(arguments: dict[str, Any], text: str) -> None:
    """Law: any call and any result can be masked."""
    assert isinstance(mask(arguments, text), str)
    assert mask_echoes(SeenCall("read", text), text) in (text, mask_echoes(SeenCall("read", text), text))


PAGE = '- textbox "Email" [ref={}e4]\n- text: Please enter a valid email address\n- button "Submit" [ref={}e9]\n' * 2
TAKEN = 'uid={}_0 RootWebArea "Form"\n uid={}_2 StaticText "Please enter a valid email address"\n uid={}_3 button "Go"'


@pytest.mark.parametrize(
    ("tool", "arguments", "page"),
    [
        ("browser_click", {"element": "Submit button", "ref": "s{}e9"}, PAGE.replace("{}", "s{}")),
        ("browser_click", {"element": "Submit button", "ref": "e{}9"}, PAGE.replace("{}e", "e{}")),
        ("browser_type", {"element": "Email", "ref": "e{}4", "text": "x"}, PAGE.replace("{}e", "e{}")),
        ("click", {"uid": "{}_3"}, "Successfully clicked on the element\n" + TAKEN),
        ("mcp__chrome-devtools__fill", {"uid": "{}_3", "value": "x"}, TAKEN),
    ],
)
def test_a_reference_that_is_new_in_each_snapshot_is_the_same(tool, arguments, page):
    """Law: over browsers, an equal act on an equal page is a repetition, however its snapshot names the parts. Where
    the page keeps its names, another name is another part: twenty cells of a table may be filled alike."""
    acts = [{key: value.replace("{}", str(n)) for key, value in arguments.items()} for n in range(1, 7)]
    again, cells = ([USER], [USER])
    for n, act in enumerate(acts, 1):
        again += acted(tool, act, page.replace("{}", str(n)))
        cell = act | {key: f"{n // 99}_{n}" if key == "uid" else f"e{n}" for key in ("uid", "ref") if key in act}
        cells += acted(tool, cell, page.replace("{}", "1"))
    assert stages(again) == [None, None, Stage.WARN, Stage.WARN, Stage.BREAK, Stage.BREAK]
    assert quiet(cells)


def test_a_reference_is_one_only_in_a_browser():
    """Another tool's `uid` or `ref` of such a form is an id."""
    for tool, key in product(("get_user", "order"), ("uid", "ref")):
        spelled = {blur_call(SeenCall(tool, json.dumps({key: f"{n}_3"})), frozenset())[1] for n in range(5)}
        assert len(spelled) == 5


@pytest.mark.parametrize(("bounds", "same"), [
    *[({key: 3}, True) for key in ("offset", "limit", "start_line", "endLine", "page", "max_lines", "view_limit")],
    *[({key: 3}, False) for key in ("row", "id", "user", "number", "depth", "issue")],
    ({"offset": "3"}, False), ({"limit": None}, True), ({"page": 3, "query": "x"}, False),
])  # fmt: skip
def test_bounds_say_how_much_of_it(bounds, same):
    """Law: numbers of bounds say how much is looked at; any other argument says what."""
    whole, part = SeenCall("Read", '{"path": "a"}'), SeenCall("Read", json.dumps({"path": "a", **bounds}))
    assert (spell_aim(whole) == spell_aim(part)) is same
    assert spell_aim(SeenCall("Read", '{"offset": 3}')) == spell_aim(SeenCall("Read", "part of it")) == ""
