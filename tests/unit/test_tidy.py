"""The house rules that a program can check: layers, sizes, docstrings."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.source_tree import OURS, SOURCES, imports, parsed

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
README_BYTES_MAX = 7_000
PURE = {
    "__future__", "abc", "ast", "bisect", "collections", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "string", "types", "typing",
    "unicodedata", "zlib", "contextlib", "jsonschema", "re2", "rapidfuzz", "pydantic", "reliability",
}  # fmt: skip

PICKLERS = {
    "pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "dbm", "joblib", "multiprocessing", "copyreg",
    "pickletools", "xmlrpc", "_xxsubinterpreters",
}  # fmt: skip


def roots(name: str) -> set[str]:
    return {module.partition(".")[0] for module in imports(parsed(name))}


def test_the_core_does_no_io():
    """`reliability/` imports what is pure, and nothing of the shell, of time, dice, files or network."""
    assert [name for name in OURS if name.startswith("reliability/") and not roots(name) <= PURE] == []


def test_nothing_is_unpickled():
    """Whoever writes what is unpickled runs code here. No module opens a way for pickles, or for what is built on them:
    on a socket, in a file or through a queue. (Ray carries its own calls.)"""
    files = [name for name in SOURCES if not name.startswith("tests/")]
    assert [name for name in files if roots(name) & PICKLERS] == []
    assert [name for name in files for node in ast.walk(parsed(name)) if allows_pickle(node)] == []


def allows_pickle(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "allow_pickle"


def test_only_the_tiers_know_mlx():
    """Nothing but the tiers, and what makes their models, imports mlx."""
    others = [name for name in OURS if not name.startswith(("deployments/tiers/", "deployments/models/"))]
    assert [name for name in others if roots(name) & {"mlx", "mlx_lm"}] == []


def test_mlx_is_not_imported_with_the_modules():
    """A machine without mlx can import every module: the engine's packages are loaded when a model is."""
    modules = [n.removesuffix(".py").replace("/", ".") for n in OURS if not n.endswith(("__main__.py", "__init__.py"))]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\n"
    code += "print([m for m in sys.modules if m.split('.')[0] in ('mlx', 'mlx_lm', 'transformers')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["request.drive", "config.loopback"])
def test_it_knows_no_ray(module):
    """The simulator runs the very code of `drive`, and a tier asks about hosts: nothing that either imports imports
    Ray."""
    code = f"import sys, deployments.{module}\nprint('ray' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert out.stdout.strip() == "False"


def functions(name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(parsed(name)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_rooms_are_small():
    """A file can be seen at a glance, and so can a function."""
    lines = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") for name in OURS}
    sizes = {(name, f.name): (f.end_lineno or 0) - f.lineno + 1 for name in OURS for f in functions(name)}

    assert [name for name, count in lines.items() if count > FILE_LINES_MAX] == []
    assert [function for function, count in sizes.items() if count > FUNCTION_LINES_MAX] == []


def is_kind(node: ast.AST) -> bool:
    """`Fault.X` or `Flaw.X`, whatever module the name was reached by."""
    if isinstance(node, ast.MatchValue):
        node = node.value
    if isinstance(node, ast.Starred):
        node = node.value
    owner = node.value if isinstance(node, ast.Attribute) else None
    return getattr(owner, "attr", getattr(owner, "id", None)) in ("Fault", "Flaw")


def compared(node: ast.AST) -> list[ast.expr]:
    return [node.left, *node.comparators] if isinstance(node, ast.Compare) else []


def sorts_kinds(node: ast.AST) -> bool:
    """Whether some faults or flaws are told from the others here: a set, a list, a mapping by them, a chain of
    comparisons, a match. One beside other things, or compared alone, is no such place."""
    match node:
        case ast.Set(elts=parts) | ast.List(elts=parts):
            return any(map(is_kind, parts))
        case ast.Dict(keys=parts):
            return any(map(is_kind, filter(None, parts)))
        case ast.Tuple(elts=parts):
            return bool(parts) and (all(map(is_kind, parts)) or sum(map(is_kind, parts)) > 1)
        case ast.BoolOp(values=values):
            return sum(is_kind(part) for value in values for part in compared(value)) > 1
        case ast.Match(cases=cases):
            return sum(is_kind(part) for case in cases for part in ast.walk(case.pattern)) > 1
    return False


def test_one_table_sorts_faults_and_flaws():
    """What is known of a fault or a flaw stands in its row in `reliability/faults.py`, and in no other collection."""
    others = [name for name in OURS if name != "reliability/faults.py"]
    assert [(name, node.lineno) for name in others for node in ast.walk(parsed(name)) if sorts_kinds(node)] == []


@pytest.mark.parametrize(
    ("code", "sorts"),
    [
        ("BROKEN = frozenset({Fault.CRASHED, types.Fault.PROTOCOL})", True),
        ("ONE = {Flaw.LOOP}", True),
        ("ONE = frozenset((Flaw.LOOP,))", True),
        ("MORE = [*some, Fault.CRASHED]", True),
        ("WORDS = {Fault.AUTH: 'refused', **more}", True),
        ("if flaw in (Flaw.LOOP, Flaw.CYCLE): pass", True),
        ("if flaw is Flaw.LOOP or flaw is Flaw.CYCLE: pass", True),
        ("match flaw:\n case Flaw.LOOP | Flaw.CYCLE: pass", True),
        ("match flaw:\n case Flaw.LOOP: pass\n case Flaw.CYCLE: pass", True),
        ("if attempt.fault is Fault.BUDGET and attempt.hard_stop: pass", False),
        ("FAULT_OF_STATUS = {401: Fault.AUTH, 402: Fault.AUTH}", False),
        ("KNOWN = frozenset({'none', *Fault})", False),
        ("def f():\n return Fault.CRASHED, 'it broke', None", False),
        ("return_type: tuple[Fault, str]", False),
    ],
)
def test_a_second_table_is_found(code, sorts):
    """The rule above sees each way to sort them; a fault that something is read as is no sorting."""
    assert any(sorts_kinds(node) for node in ast.walk(ast.parse(code))) is sorts


def test_every_module_says_what_it_is():
    """Each file begins with a docstring."""
    assert [name for name in SOURCES if not ast.get_docstring(parsed(name))] == []


def test_every_test_says_its_law():
    """Each test has a docstring that states what it holds to."""
    files = [name for name in SOURCES if name.startswith("tests/") and "/test_" in name]
    tests = [(name, f) for name in files for f in functions(name) if f.name.startswith("test_")]

    assert [(name, test.name) for name, test in tests if not ast.get_docstring(test)] == []


def test_no_room_without_a_name():
    """There is no place for things that have none."""
    without = {"utils", "common", "helpers", "base", "manager"}
    assert [name for name in SOURCES if without & set(Path(name).with_suffix("").parts)] == []


def test_the_readme_is_short():
    """Who comes first reads all of it; the rest is in docs/."""
    assert (ROOT / "README.md").stat().st_size <= README_BYTES_MAX
