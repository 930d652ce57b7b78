"""The house rules that a program can check: layers, sizes, docstrings."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository import ROOT, tracked

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
README_BYTES_MAX = 10_000
PURE = {
    "__future__", "abc", "ast", "bisect", "collections", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "string", "types", "typing",
    "unicodedata", "zlib", "contextlib", "jsonschema", "re2", "rapidfuzz", "pydantic", "reliability",
}  # fmt: skip
PACKAGES = ("reliability/", "deployments/")
SOURCES = [name for name in tracked() if name.endswith(".py")]
OURS = [name for name in SOURCES if name.startswith(PACKAGES)]


def parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("name", [n for n in OURS if n.startswith("reliability/")])
def test_the_core_does_no_io(name):
    """`reliability/` imports what is pure, and nothing of the shell, of time, dice, files or network."""
    roots = {module.partition(".")[0] for module in imports(parsed(name))}

    assert roots <= PURE


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


# -- the tree ------------------------------------------------------------------------------------------------------

MODULES_MAX = 20
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in OURS}


def imported(name: str) -> set[str]:
    """The modules of ours that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                whole if (whole := f"{node.module}.{alias.name}") in MODULES else node.module for alias in node.names
            }
    return found & MODULES.keys()


def room_of(module: str) -> str:
    """Where a module stands: its folder. The face of a folder and the modules at the root of a package stand each for
    itself."""
    folder = module.rpartition(".")[0]
    if MODULES[module].endswith("__init__.py"):
        return f"{module}.__init__"
    return folder if "." in folder else module


def ways() -> dict[str, set[str]]:
    """Which folders a folder imports from."""
    found: dict[str, set[str]] = {}
    for module, name in MODULES.items():
        found.setdefault(room_of(module), set()).update(room_of(other) for other in imported(name))
    return {room: others - {room} for room, others in found.items()}


def test_no_folder_imports_in_a_circle():
    """Whoever reads from the bottom up meets nothing that he hasn't met."""
    left = ways()
    while free := [room for room, others in left.items() if not others & left.keys()]:
        for room in free:
            del left[room]

    assert left == {}


@pytest.mark.parametrize("folder", sorted({str(Path(name).parent) for name in OURS}))
def test_a_folder_can_be_seen_at_a_glance(folder):
    """At most so many modules in one folder."""
    assert sum(str(Path(name).parent) == folder for name in OURS) <= MODULES_MAX + 1  # `__init__` isn't counted


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_stands_once(package):
    """No two modules of a package have one name: a name in a traceback, or in talk, says which file."""
    names = [Path(name).name for name in OURS if name.startswith(package) and not name.endswith("__init__.py")]

    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []
