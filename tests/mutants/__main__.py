"""`python -m tests.mutants [FILE ...]`: apply each sabotage to a copy and require that a test fails.

Each mutant is a row of a `.toml` table in this folder; its old text stands exactly once in the file that it changes.
The tests of a mutant are those of its file and those in `ALSO`; a mutant that none of them notices survives, and
the exit code is 1. The copies are made in a temporary folder; the work tree is never touched.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _read_mutants() -> list[tuple[str, str, str, str]]:
    """Read the tables next to this file: for each file of the source, rows of [law, old text, new text]."""
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(__file__).parent.glob("*.toml"))]
    return [(file, old, new, law) for table in tables for file, rows in table.items() for law, old, new in rows]


MUTANTS = _read_mutants()
_FORMATS = "tests/unit/reliability/tools/test_formats.py"
# What else notices, beside the tests that mirror a mutant's file: for all files whose paths begin so.
ALSO: dict[str, tuple[str, ...]] = {
    "reliability/tool_calls.py": ("tests/unit/reliability/tools/check/test_complaints.py",),
    "reliability/rolling.py": ("tests/unit/reliability/admission/test_*.py",),
    "reliability/admission/": (
        "tests/unit/reliability/admission/test_*.py",
        "tests/unit/reliability/escalation/test_refusals.py",
    ),
    "reliability/answer/": (
        "tests/unit/reliability/answer/test_*.py",
        _FORMATS,
        "tests/unit/deployments/request/test_attempt_equal_calls.py",
        "tests/unit/deployments/request/test_attempt_loops.py",
    ),
    "reliability/escalation/": (
        "tests/unit/reliability/escalation/test_*.py",
        "tests/unit/reliability/test_faults.py",
        "tests/unit/deployments/request/test_continuing.py",
    ),
    "reliability/loops/": ("tests/unit/reliability/loops/test_*.py", _FORMATS),
    "reliability/sessions/": ("tests/unit/reliability/sessions/test_*.py",),
    "reliability/memory/": ("tests/unit/reliability/memory/test_*.py",),
    "reliability/tools/": (
        "tests/unit/reliability/tools/**/test_*.py",
        "tests/unit/reliability/answer/test_judgement_arguments.py",
    ),
    "deployments/tiers/hosted/": ("tests/unit/deployments/tiers/hosted/test_chat_*.py",),
    "deployments/request/": ("tests/unit/deployments/request/test_*.py", "tests/sim/test_sim.py"),
    "deployments/running/": ("tests/unit/deployments/running/test_*.py",),
}
WORKERS = os.cpu_count() or 1
TIMEOUT_S = 180.0
# pytest's: a test failed; a test file couldn't even be read, since it uses what was broken.
NOTICED = (1, 2)


def tests_of(file: str, root: Path) -> list[str]:
    """The test files for a mutant of `file`: those that mirror it, then those that `ALSO` names for it."""
    path = Path(file)
    patterns = [f"tests/unit/{path.parent}/test_{path.stem}*.py"]
    for beginning, more in ALSO.items():
        if file.startswith(beginning):
            patterns += more
    return list(dict.fromkeys(str(found) for pattern in patterns for found in sorted(root.glob(pattern))))


def survives(mutant: tuple[str, str, str, str]) -> str | None:
    """What is wrong with a mutant: it survived, or it can't be applied. None for a killed one."""
    file, old, new, law = mutant
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        for name in ("reliability", "deployments", "tests"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        text = (root / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            return f"{file}: the text stands {text.count(old)} times in it, not once: {old!r}"
        (root / file).write_text(text.replace(old, new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests_of(file, root)]
        env = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(command, cwd=root, env=env, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return None  # a suite that hangs is one that noticed
    return None if run.returncode in NOTICED else f"{file}: survived ({law}; exit code {run.returncode})"


def main(files: list[str]) -> int:
    """Run all mutants, or those of the given files."""
    chosen = [mutant for mutant in MUTANTS if not files or mutant[0] in files]
    wrong: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for done, words in enumerate(pool.map(survives, chosen), 1):
            if words:
                wrong.append(words)
                print(f"\n{words}", file=sys.stderr)
            print(f"\r{done} of {len(chosen)} mutants, {len(wrong)} alive", end="", file=sys.stderr, flush=True)
    print(f"\n{len(chosen)} mutants, {len(chosen) - len(wrong)} killed")
    for words in wrong:
        print(words)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
