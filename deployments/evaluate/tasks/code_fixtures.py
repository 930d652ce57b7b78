"""Three repositories of code: `buggy_calc`, `unit_mixup_repo` and `lost_page_repo`.

buggy_calc       short: one function of a small calculator has one wrong line, and a test says so
unit_mixup_repo  two modules: a timeout is set in seconds and compared in milliseconds
lost_page_repo   a reader of pages stops one page early; three other modules look as if they could be it
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from deployments.evaluate.tasks.check import Check
from deployments.evaluate.tasks.fixture import Fixture, PlantedFault, find_line

__all__ = ["make_buggy_calc", "make_lost_page", "make_unit_mixup"]

QUESTION = "The tests of this repository fail. Find the one line that is wrong, and put it right."
# The right line, the wrong one, and what the test asks.
CALC: dict[str, tuple[str, str, str, Any]] = {
    "add": ("return a + b", "return a - b", "calc.add(7, 5)", 12),
    "multiply": ("return a * b", "return a / b", "calc.multiply(6, 4)", 24),
    "largest": ("return a if a > b else b", "return a if a < b else b", "calc.largest(3, 9)", 9),
    "is_even": ("return a % 2 == 0", "return a % 2 != 0", "calc.is_even(10)", True),
}
HIDDEN_EACH = 3
SIGNATURES = {"add": "a, b", "multiply": "a, b", "largest": "a, b", "is_even": "a"}


def make_buggy_calc(dice: random.Random) -> Fixture:
    """Make the calculator; the seed says which function is wrong."""
    wrong = dice.choice(sorted(CALC))
    source = '"""A small calculator."""\n'
    tests = "import unittest\n\nimport calc\n\n\nclass CalcTest(unittest.TestCase):\n"
    for name, (right, bad, asks, answer) in CALC.items():
        body = bad if name == wrong else right
        source += f'\n\ndef {name}({SIGNATURES[name]}):\n    """See the tests."""\n    {body}\n'
        check = f"assertTrue({asks})" if answer is True else f"assertEqual({asks}, {answer!r})"
        tests += f"    def test_{name}(self):\n        self.{check}\n\n"
    right, bad, *_ = CALC[wrong]
    return Fixture(
        name="buggy_calc",
        question=QUESTION,
        files={"calc.py": source, "test_calc.py": tests.rstrip("\n") + "\n"},
        fault=PlantedFault(file="calc.py", line=find_line(source, bad), right=right),
        protected=("test_calc.py",),
        tests=tuple(Check("import calc", asks, answer) for _, _, asks, answer in CALC.values()),
        hidden=tuple(_ask_calculator(dice)),
    )


def _ask_calculator(dice: random.Random) -> Iterator[Check]:
    """Ask each function with other values."""
    for _ in range(HIDDEN_EACH):
        a, b = dice.sample(range(1, 60), 2)
        yield Check("import calc", f"calc.add({a}, {b})", a + b)
        yield Check("import calc", f"calc.multiply({-a}, {b})", -a * b)
        yield Check("import calc", f"calc.largest({a}, {b})", max(a, b))
        yield Check("import calc", f"[calc.is_even({a}), calc.is_even({a + 1})]", [a % 2 == 0, a % 2 == 1])


SETTINGS = '''"""Settings of the job runner."""

# How long a job may run, in seconds.
JOB_TIMEOUT_S = {timeout}
# How many jobs run at once.
JOBS_MAX = {jobs}
'''
CLOCK = '''"""The clock of the job runner."""


def elapsed_ms(started_s, now_s):
    """Return how long a job has run, in milliseconds."""
    return (now_s - started_s) * 1000
'''
RUNNER = '''"""Runs jobs, and ends those that run for too long."""

from clock import elapsed_ms
from settings import JOB_TIMEOUT_S


def is_overdue(started_s, now_s):
    """Tell whether a job has run for too long."""
    limit_ms = JOB_TIMEOUT_S
    return elapsed_ms(started_s, now_s) > limit_ms


def pick_overdue(jobs, now_s):
    """Return the names of the jobs that are overdue."""
    return [name for name, started_s in jobs.items() if is_overdue(started_s, now_s)]
'''
RUNNER_IMPORTS = "from runner import is_overdue, pick_overdue\nfrom settings import JOB_TIMEOUT_S"


def make_unit_mixup(dice: random.Random) -> Fixture:
    """Make the job runner whose limit is in the wrong unit."""
    timeout, jobs = dice.randint(20, 90), dice.randint(2, 9)
    tests = (
        "import unittest\n\nfrom runner import is_overdue, pick_overdue\n\n\nclass RunnerTest(unittest.TestCase):\n"
        "    def test_a_young_job_may_go_on(self):\n"
        f"        self.assertFalse(is_overdue(100, {100 + timeout // 2}))\n\n"
        "    def test_an_old_job_is_overdue(self):\n"
        f"        self.assertEqual(pick_overdue({{'a': 0, 'b': {timeout}}}, {timeout + 5}), ['a'])\n"
    )
    wrong = "limit_ms = JOB_TIMEOUT_S"
    return Fixture(
        name="unit_mixup_repo",
        question=QUESTION,
        files={
            "settings.py": SETTINGS.format(timeout=timeout, jobs=jobs),
            "clock.py": CLOCK,
            "runner.py": RUNNER,
            "test_runner.py": tests,
        },
        fault=PlantedFault(file="runner.py", line=find_line(RUNNER, wrong), right="limit_ms = JOB_TIMEOUT_S * 1000"),
        protected=("test_runner.py",),
        tests=(
            Check(RUNNER_IMPORTS, f"is_overdue(100, {100 + timeout // 2})", False),
            Check(RUNNER_IMPORTS, f"pick_overdue({{'a': 0, 'b': {timeout}}}, {timeout + 5})", ["a"]),
        ),
        hidden=tuple(_ask_runner(dice, timeout)),
    )


def _ask_runner(dice: random.Random, timeout: int) -> Iterator[Check]:
    """Ask around the limit, and that the setting is as it was."""
    yield Check(RUNNER_IMPORTS, "JOB_TIMEOUT_S", timeout)
    for started in (0, dice.randint(1, 99), dice.randint(1000, 9999)):
        for after_s, is_over in ((1, False), (timeout - 1, False), (timeout + 1, True), (40 * timeout, True)):
            yield Check(RUNNER_IMPORTS, f"is_overdue({started}, {started + after_s})", is_over)
    jobs = {"x": 0, "y": timeout, "z": 2 * timeout}
    yield Check(RUNNER_IMPORTS, f"pick_overdue({jobs}, {2 * timeout + 3})", ["x", "y"])


STORE = '''"""Where the rows are kept."""

PAGE_ROWS = {rows}


class Store:
    """Gives its rows a page at a time."""

    def __init__(self, rows):
        self._rows = list(rows)

    def count_pages(self):
        """Return how many pages there are, the last one perhaps not full."""
        return -(-len(self._rows) // PAGE_ROWS)

    def read_page(self, number):
        """Return the rows of a page; pages are counted from 0."""
        return self._rows[number * PAGE_ROWS : (number + 1) * PAGE_ROWS]
'''
EXPORT = '''"""Exports all rows."""

from formatting import format_row


def export(store):
    """Return every row as a line."""
    lines = []
    for number in range(store.count_pages() - 1):
        for row in store.read_page(number):
            lines.append(format_row(row))
    return lines
'''
FORMATTING = '''"""How a row is written."""


def format_row(row):
    """Write a row as one line."""
    return ";".join(str(part) for part in row)
'''
TOTALS = '''"""Sums of rows."""


def total(rows):
    """Return the sum of what stands second in each row."""
    return sum(row[1] for row in rows)
'''
EXPORT_IMPORTS = "from export import export\nfrom store import Store"


def _ask_export(letter: str, count: int) -> str:
    return f"export(Store([(f'{letter}{{i}}', i * i) for i in range({count})]))"


def _list_lines(letter: str, count: int) -> list[str]:
    return [f"{letter}{i};{i * i}" for i in range(count)]


def make_lost_page(dice: random.Random) -> Fixture:
    """Make the exporter that loses the last page."""
    rows, extra = dice.randint(3, 6), dice.randint(1, 2)
    count = 2 * rows + extra
    tests = (
        "import unittest\n\nfrom export import export\nfrom store import Store\nfrom totals import total\n\n\n"
        "class ExportTest(unittest.TestCase):\n"
        "    def test_every_row_is_exported(self):\n"
        f"        rows = [(f'r{{i}}', i) for i in range({count})]\n"
        f"        self.assertEqual(len(export(Store(rows))), {count})\n\n"
        "    def test_total(self):\n"
        "        self.assertEqual(total([('a', 1), ('b', 2)]), 3)\n"
    )
    wrong = "for number in range(store.count_pages() - 1):"
    return Fixture(
        name="lost_page_repo",
        question=QUESTION,
        files={
            "store.py": STORE.format(rows=rows),
            "export.py": EXPORT,
            "formatting.py": FORMATTING,
            "totals.py": TOTALS,
            "test_export.py": tests,
        },
        fault=PlantedFault(
            file="export.py", line=find_line(EXPORT, wrong), right="for number in range(store.count_pages()):"
        ),
        protected=("test_export.py",),
        tests=(
            Check(EXPORT_IMPORTS, _ask_export("r", count), _list_lines("r", count)),
            Check("from totals import total", "total([('a', 1), ('b', 2)])", 3),
        ),
        hidden=tuple(
            Check(EXPORT_IMPORTS, _ask_export(letter, count), _list_lines(letter, count))
            for count in (0, 1, 2, 5, 12, 30, 31)
            for letter in dice.choice("bcdefgh")
        ),
    )
