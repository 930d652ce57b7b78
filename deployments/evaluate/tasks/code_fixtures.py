"""Three repositories of code: `buggy_calc`, `unit_mixup_repo` and `lost_page_repo`.

buggy_calc       short: one function of a small calculator has one wrong line, and a test says so
unit_mixup_repo  two modules: a timeout is set in seconds and compared in milliseconds
lost_page_repo   a reader of pages stops one page early; three other modules look as if they could be it
"""

from __future__ import annotations

import random

from deployments.evaluate.tasks.fixture import Fault, Fixture, find_line

__all__ = ["make_buggy_calc", "make_lost_page", "make_unit_mixup"]

QUESTION = "The tests of this repository fail. Find the one line that is wrong, and put it right."
CALC = {
    "add": ("return a + b", "return a - b", "self.assertEqual(calc.add(7, 5), 12)"),
    "multiply": ("return a * b", "return a / b", "self.assertEqual(calc.multiply(6, 4), 24)"),
    "largest": (
        "return a if a > b else b",
        "return a if a < b else b",
        "self.assertEqual(calc.largest(3, 9), 9)",
    ),
    "is_even": ("return a % 2 == 0", "return a % 2 != 0", "self.assertTrue(calc.is_even(10))"),
}
CALC_HIDDEN = """import unittest

import calc


class HiddenTest(unittest.TestCase):
    def test_other_values(self):
        found = [calc.add(2, 3), calc.add(-1, 4), calc.add(0, 9)]
        found += [calc.multiply(3, 5), calc.multiply(7, 0), calc.multiply(-2, 4)]
        found += [calc.largest(8, 2), calc.largest(-3, -5), calc.largest(4, 6)]
        self.assertTrue(all(type(value) is int for value in found))
        self.assertEqual(found, [5, 3, 9, 15, 0, -8, 8, -3, 6])
        found = [calc.is_even(value) for value in (7, 0, 3, 12)]
        self.assertTrue(all(type(value) is bool for value in found))
        self.assertEqual(found, [False, True, False, True])
"""
SIGNATURES = {"add": "a, b", "multiply": "a, b", "largest": "a, b", "is_even": "a"}


def make_buggy_calc(dice: random.Random) -> Fixture:
    """Make the calculator; the seed says which function is wrong."""
    wrong = dice.choice(sorted(CALC))
    source = '"""A small calculator."""\n'
    tests = "import unittest\n\nimport calc\n\n\nclass CalcTest(unittest.TestCase):\n"
    for name, (right, bad, check) in CALC.items():
        body = bad if name == wrong else right
        source += f'\n\ndef {name}({SIGNATURES[name]}):\n    """See the tests."""\n    {body}\n'
        tests += f"    def test_{name}(self):\n        {check}\n\n"
    right, bad, _ = CALC[wrong]
    return Fixture(
        name="buggy_calc",
        question=QUESTION,
        files={"calc.py": source, "test_calc.py": tests.rstrip("\n") + "\n"},
        fault=Fault(file="calc.py", line=find_line(source, bad), right=right),
        protected=("test_calc.py",),
        hidden_test=CALC_HIDDEN,
    )


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


RUNNER_HIDDEN = """import unittest

from runner import is_overdue, pick_overdue
from settings import JOB_TIMEOUT_S


class HiddenTest(unittest.TestCase):
    def test_around_the_limit(self):
        for started in (0, 7, 5000):
            self.assertFalse(is_overdue(started, started + 1))
            self.assertFalse(is_overdue(started, started + JOB_TIMEOUT_S - 1))
            self.assertTrue(is_overdue(started, started + JOB_TIMEOUT_S + 1))
            self.assertTrue(is_overdue(started, started + 40 * JOB_TIMEOUT_S))

    def test_only_the_old_ones(self):
        jobs = {'x': 0, 'y': JOB_TIMEOUT_S, 'z': 2 * JOB_TIMEOUT_S}
        names = pick_overdue(jobs, 2 * JOB_TIMEOUT_S + 3)
        self.assertTrue(type(names) is list and all(type(name) is str for name in names))
        self.assertEqual(names, ['x', 'y'])
"""


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
        fault=Fault(file="runner.py", line=find_line(RUNNER, wrong), right="limit_ms = JOB_TIMEOUT_S * 1000"),
        protected=("test_runner.py",),
        hidden_test=RUNNER_HIDDEN,
    )


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


EXPORT_HIDDEN = """import unittest

from export import export
from store import Store


class HiddenTest(unittest.TestCase):
    def test_any_number_of_rows(self):
        for count in (0, 1, 2, 5, 12, 30, 31):
            rows = [(f'q{i}', i * i) for i in range(count)]
            lines = export(Store(rows))
            self.assertTrue(type(lines) is list and all(type(line) is str for line in lines))
            self.assertEqual(lines, [f'q{i};{i * i}' for i in range(count)])
"""


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
        fault=Fault(file="export.py", line=find_line(EXPORT, wrong), right="for number in range(store.count_pages()):"),
        protected=("test_export.py",),
        hidden_test=EXPORT_HIDDEN,
    )
