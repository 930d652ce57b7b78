"""Whether a mark of reasoning is used or talked about, by what stands around it."""

from __future__ import annotations

import pytest

from reliability.tools.reasoning_marks import compile_ends, ends_reasoning, find_row, is_used, opens_reasoning


def judged(rule, text, mark):
    """What a rule says of the first such mark in a text."""
    start = text.index(mark)
    return rule(text, start, start + len(mark))


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("<think>", True),
        ("  <think> so", True),
        ("Yes.\n<think> so", True),
        ("Yes. <think>so", True),
        ("Yes. <think> so", False),
        ("Tags: <think>, <answer>", False),
        ("I <think>so", False),
        ("\n`<think>`", False),
        ('{"a": "Yes. <think>so"}', False),
        ("Run `cat x: <think>y`", False),
    ],
)
def test_an_opener_opens_where_a_line_or_a_sentence_begins(text, opens):
    """Law: in a line only glued to what follows; in quotes, code and data never."""
    assert judged(opens_reasoning, text, "<think>") is opens


@pytest.mark.parametrize(
    ("text", "ends", "used"),
    [
        ("so</think>yes", True, True),
        ("so.\n</think>", True, True),
        ("the </think> tag", False, False),
        ("so. </think> Yes", True, True),
        ("'</think>'", False, False),
        ('{"a": "so</think>yes"}', True, False),
        ('{"a": "so", "b": 1}</think>yes', True, True),
        ('he said "no" and so</think>yes', True, True),
        ("in `a</think>b`", True, False),
        ("```\nso\n```</think>```json", True, True),
        ("with ```</think>```", False, False),
    ],
)
def test_a_closer_ends_unless_it_is_talked_about(text, ends, used):
    """Law: behind an opener code and data are the reasoning's; without one they are the answer's."""
    assert judged(ends_reasoning, text, "</think>") is ends
    assert judged(is_used, text, "</think>") is used


def test_each_opener_has_its_own_closers():
    """Law: what closes one family doesn't close another one; what closes turns too counts only behind its opener."""
    solar, magistral = find_row("<|think|>", 0), find_row("x [THINK]", 2)
    assert solar is not None
    assert magistral is not None
    assert compile_ends(solar).search("so<|end|>")
    assert not compile_ends(magistral).search("so<|end|></think>")
    assert find_row("[/THINK]", 0) is None


def test_a_string_that_has_no_end_is_looked_back_for_in_bounded_time():
    """Law: many escaped quotes before a mark are data, and cost no more than a few looks."""
    text = '{"a": "' + 'x\\"' * 100_000 + "</think>"
    assert judged(is_used, text, "</think>") is False
