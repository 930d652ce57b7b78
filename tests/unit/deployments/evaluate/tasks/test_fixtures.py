"""The fixtures: made alike from one seed, broken as they are made, whole once the one line is right."""

import subprocess
import sys
from pathlib import Path

import pytest

from deployments.evaluate.tasks.bounded_tests import run_tests
from deployments.evaluate.tasks.fixtures import FIXTURES, Fixture, make_fixture, write_files

SEEDS = (1, 2, 7)


def repair(fixture: Fixture, folder: Path) -> None:
    """Put the line right that the fixture names."""
    path = folder / fixture.fault.file
    lines = path.read_text().split("\n")
    old = lines[fixture.fault.line - 1]
    lines[fixture.fault.line - 1] = old[: len(old) - len(old.lstrip())] + fixture.fault.right
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FIXTURES)
def test_a_fixture_fails_by_its_one_line(tmp_path, name, seed):
    """Its tests fail as it is made, and pass once that line, and nothing else, is right: those that an agent reads, and
    the questions that are asked in their place."""
    fixture = make_fixture(name, seed)
    write_files(fixture.files, tmp_path)

    assert run_tests(tmp_path, fixture.tests)
    assert run_unittest(tmp_path) != 0
    repair(fixture, tmp_path)
    assert run_tests(tmp_path, (*fixture.tests, *fixture.hidden)) == ""
    assert run_unittest(tmp_path) == 0


def run_unittest(folder: Path) -> int:
    """Run the tests as an agent reads them."""
    command = [sys.executable, "-B", "-m", "unittest", "discover"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.parametrize("name", FIXTURES)
def test_a_seed_makes_the_same_files(name):
    """On every machine, and other seeds make others."""
    assert make_fixture(name, 3) == make_fixture(name, 3)
    assert len({str(make_fixture(name, seed)) for seed in range(12)}) > 1
    assert set(make_fixture(name, 3).protected) < set(make_fixture(name, 3).files)


def test_the_evidence_of_the_logs_is_one_line_of_many():
    """Hundreds of kilobytes, and one line that tells."""
    fixture = make_fixture("noisy_logs_repo", 1)
    logs = [text for name, text in fixture.files.items() if name.endswith(".log")]

    assert sum(map(len, logs)) > 200_000
    assert sum(" ERROR " in line for text in logs for line in text.splitlines()) == 1
