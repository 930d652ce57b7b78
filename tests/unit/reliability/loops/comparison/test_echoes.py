"""What a result only repeats of its call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.comparison.echoes import ECHO, mask_echoes
from reliability.loops.comparison.findings import Call


def mask(arguments: Any, text: str) -> str:
    return mask_echoes(Call("read", json.dumps(arguments)), text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"path": "a%a.py"}, "no file a%a.py here"),
        ({"offset": 0}, "offset %a is behind the end"),
        ({"offset": 0, "limit": 55}, "lines %a to %b are behind the end"),
        ({"range": [0, 9]}, "nothing from %a to 9"),
    ],
)
def test_other_arguments_with_the_same_answer_are_the_same(arguments: Any, text: str) -> None:
    """Law: results that differ in what was asked alone are equal once that is masked."""

    def answer(figure: int) -> str:
        asked = (
            json.dumps(arguments).replace("%a", str(figure)).replace("0,", f"{figure},").replace("0}", f"{figure}}}")
        )
        told = text.replace("%a", str(figure)).replace("%b", str(figure + 55))
        return mask(json.loads(asked), told)

    assert answer(700) == answer(900)
    assert ECHO in answer(700)


def test_what_the_call_did_not_say_stays() -> None:
    """A figure inside a word or a longer number is no echo."""
    assert mask({"n": 4}, "a4 41 4.5 x") == "a4 41 4.5 x"
    assert mask({"n": True}, "True") == "True"


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9)), max_size=30), st.text())
def test_nothing_is_too_odd(arguments: dict[str, Any], text: str) -> None:
    """Law: any call and any result can be masked."""
    assert isinstance(mask(arguments, text), str)
    assert mask_echoes(Call("read", text), text) in (text, mask_echoes(Call("read", text), text))
