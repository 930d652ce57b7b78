"""`python -m tests.mutants [FILE ...]`: apply each sabotage to a copy and require that a test fails.

The tests of a mutant are those of its file (`TESTS`), fastest first; a mutant that none of them notices survives, and
the exit code is 1. The copies are made in a temporary folder; the work tree is never touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import doors, faults, formats, guards, loops, stops, tools, walk

ROOT = Path(__file__).resolve().parents[2]
FILES = (walk, faults, guards, doors, loops, tools, formats, stops)
MUTANTS = [one for file in FILES for one in file.MUTANTS]
_FORMATS = "tests/reliability/test_tools_formats.py"
# The longest matching beginning of a mutant's file decides.
TESTS: dict[str, tuple[str, ...]] = {
    "reliability/escalation/policies.py": (
        "tests/reliability/test_escalation*.py",
        "tests/reliability/test_refused_requests.py",
    ),
    "reliability/faults.py": ("tests/reliability/test_faults.py",),
    "reliability/escalation/refusals.py": (
        "tests/reliability/test_refus*.py",
        "tests/reliability/test_escalation*.py",
    ),
    "reliability/escalation/wording.py": ("tests/reliability/test_wording.py",),
    "reliability/answer/judgement.py": ("tests/reliability/test_answer*.py", _FORMATS, "tests/test_attempt_loops.py"),
    "reliability/escalation/reask.py": ("tests/reliability/test_answer.py",),
    "reliability/escalation/health.py": ("tests/reliability/test_answer.py", "tests/reliability/test_faults.py"),
    "reliability/memory/leases.py": ("tests/reliability/test_leases.py",),
    "reliability/loops/": ("tests/reliability/test_loops_*.py", _FORMATS),
    "reliability/tools/": ("tests/reliability/test_tools_*.py",),
    "reliability/": tuple(
        f"tests/reliability/test_{name}.py"
        for name in (
            "breaker",
            "retry_budget",
            "rolling",
            "openings",
            "gate",
            "tools_formats",
            "pressure",
            "memory_rules",
            "ledger",
            "budget*",
            "admission*",
            "replay",
            "logprobs",
        )
    ),
    "deployments/tiers/hosted/upstream_errors.py": ("tests/tiers/test_faults.py",),
    "deployments/tiers/hosted/chat_chunks.py": ("tests/tiers/test_usage.py",),
    "deployments/tiers/hosted/hosted_tier.py": ("tests/tiers/test_usage.py",),
    "deployments/listener/listening.py": ("tests/test_listening.py",),
    "deployments/request/patience.py": ("tests/test_stalls.py", "tests/test_drive*.py", "tests/sim/test_sim.py"),
    "deployments/config_paths.py": ("tests/test_config_paths.py",),
    "deployments/graph/stopping.py": ("tests/test_stopping.py",),
    "deployments/state/recovery.py": ("tests/state/test_old_folders.py",),
    "deployments/running/": ("tests/running/test_*.py",),
    "deployments/": ("tests/test_attempt*.py", "tests/test_drive*.py", "tests/sim/test_sim.py"),
}
WORKERS = os.cpu_count() or 1
TIMEOUT_S = 180.0
# pytest's: a test failed; a test file couldn't even be read, since it uses what was broken.
NOTICED = (1, 2)


def tests_of(file: str, root: Path) -> list[str]:
    """The test files for a mutant of `file`, with patterns resolved; the one of the same name first."""
    beginning = max((key for key in TESTS if file.startswith(key)), key=len)
    found = [str(path) for pattern in TESTS[beginning] for path in sorted(root.glob(pattern))]
    stem = Path(file).stem
    return sorted(found, key=lambda path: Path(path).stem.removeprefix("test_").removeprefix("loops_") != stem)


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
