"""The house rules that a program can check: layers, sizes, docstrings."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", [n for n in OURS if n.startswith("reliability/")])
def test_the_core_does_no_io(name):
    """`reliability/` imports what is pure, and nothing of the shell, of time, dice, files or network."""
    roots = {module.partition(".")[0] for module in imports(parsed(name))}

    assert roots <= PURE


@pytest.mark.parametrize("name", [n for n in SOURCES if not n.startswith("tests/")])
def test_nothing_is_unpickled(name):
    """Whoever writes what is unpickled runs code here. No module opens a way for pickles, or for what is built on them:
    on a socket, in a file or through a queue. (Ray carries its own calls.)"""
    tree = parsed(name)
    assert not {module.partition(".")[0] for module in imports(tree)} & PICKLERS
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "allow_pickle"]


@pytest.mark.parametrize("name", [n for n in OURS if not n.startswith(("deployments/tiers/", "deployments/models/"))])
def test_only_the_tiers_know_mlx(name):
    """Nothing but the tiers, and what makes their models, imports mlx."""
    assert not {module for module in imports(parsed(name)) if module.partition(".")[0] in ("mlx", "mlx_lm")}


def test_mlx_is_not_imported_with_the_modules():
    """A machine without mlx can import every module: the engine's packages are loaded when a model is."""
    modules = [n.removesuffix(".py").replace("/", ".") for n in OURS if not n.endswith(("__main__.py", "__init__.py"))]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\n"
    code += "print([m for m in sys.modules if m.split('.')[0] in ('mlx', 'mlx_lm', 'transformers')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert out.stdout.strip() == "[]"


def test_drive_knows_no_ray():
    """The simulator runs the very code of `drive`: nothing that it imports imports Ray."""
    code = "import sys, deployments.request.drive\nprint('ray' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert out.stdout.strip() == "False"


@pytest.mark.parametrize("name", OURS)
def test_rooms_are_small(name):
    """A file can be seen at a glance, and so can a function."""
    lines = (ROOT / name).read_text(encoding="utf-8").count("\n")
    functions = [n for n in ast.walk(parsed(name)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert lines <= FILE_LINES_MAX
    assert [f.name for f in functions if (f.end_lineno or 0) - f.lineno + 1 > FUNCTION_LINES_MAX] == []


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


@pytest.mark.parametrize("name", [n for n in OURS if n != "reliability/faults.py"])
def test_one_table_sorts_faults_and_flaws(name):
    """What is known of a fault or a flaw stands in its row in `reliability/faults.py`, and in no other collection."""
    assert [node.lineno for node in ast.walk(parsed(name)) if sorts_kinds(node)] == []


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


@pytest.mark.parametrize("name", SOURCES)
def test_every_module_says_what_it_is(name):
    """Each file begins with a docstring."""
    assert ast.get_docstring(parsed(name))


@pytest.mark.parametrize("name", [n for n in SOURCES if n.startswith("tests/") and "/test_" in n])
def test_every_test_says_its_law(name):
    """Each test has a docstring that states what it holds to."""
    tests = [
        node
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]

    assert [test.name for test in tests if not ast.get_docstring(test)] == []


@pytest.mark.parametrize("name", SOURCES)
def test_no_room_without_a_name(name):
    """There is no place for things that have none."""
    assert not {"utils", "common", "helpers", "base", "manager"} & {
        part.removesuffix(".py") for part in Path(name).parts
    }


def test_the_readme_is_short():
    """Who comes first reads all of it; the rest is in docs/."""
    assert (ROOT / "README.md").stat().st_size <= README_BYTES_MAX
