"""The tree: small folders that import one way, a name for each module, and a test file for it."""

import ast
import functools
from collections import Counter
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.source_tree import OURS, PACKAGES, SOURCES, list_nodes
from tests.unit.deployments import tested_by as shell
from tests.unit.reliability import tested_by as core

MODULES_MAX = 20
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in OURS}


def imported(name: str) -> set[str]:
    """The modules of ours that a module imports, wherever in it."""
    found = set()
    for node in list_nodes(name):
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


@functools.cache
def ways() -> dict[str, set[str]]:
    """Which folders a folder imports from."""
    found: dict[str, set[str]] = {}
    for module, name in MODULES.items():
        found.setdefault(room_of(module), set()).update(room_of(other) for other in imported(name))
    return {room: others - {room} for room, others in found.items()}


def test_no_folder_imports_in_a_circle():
    """Whoever reads from the bottom up meets nothing that he hasn't met."""
    left = dict(ways())
    while free := [room for room, others in left.items() if not others & left.keys()]:
        for room in free:
            del left[room]

    assert left == {}


def test_a_folder_can_be_seen_at_a_glance():
    """At most so many modules in one folder."""
    counts = Counter(str(Path(name).parent) for name in OURS)
    assert [folder for folder, count in counts.items() if count > MODULES_MAX + 1] == []  # `__init__` isn't counted


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_stands_once(package):
    """No two modules of a package have one name: a name in a traceback, or in talk, says which file."""
    names = [Path(name).name for name in OURS if name.startswith(package) and not name.endswith("__init__.py")]

    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []


# From the bottom up: a folder imports from those before it. (The modules at the root of a package stand between them,
# where the rule against circles leaves them room.)
ORDER = [
    "reliability/tools", "reliability/loops/comparison", "reliability/loops", "reliability/sessions",
    "reliability/memory", "reliability/admission", "reliability/tools/schema", "reliability/tools/extract",
    "reliability/tools/check", "reliability/answer", "reliability/escalation", "deployments/config",
    "deployments/work", "deployments/listener", "deployments/running", "deployments/state",
    "deployments/memory/sensors", "deployments/memory", "deployments/models", "deployments/request",
    "deployments/reports", "deployments/tiers", "deployments/tiers/mlx/grammar", "deployments/tiers/mlx/decoding",
    "deployments/tiers/mlx/cpu", "deployments/tiers/mlx/prompt_cache", "deployments/tiers/mlx",
    "deployments/tiers/hosted", "deployments/tiers/scripted", "deployments/graph", "deployments/api/forms",
    "deployments/api", "deployments/api/anthropic", "deployments/api/openai_responses", "deployments/api/openapi",
    "deployments/evaluate/asking", "deployments/evaluate/calls", "deployments/evaluate/tasks",
    "deployments/evaluate/figures", "deployments/evaluate/pages", "deployments/evaluate", "deployments/ui",
    "deployments/app", "deployments/cli/service", "deployments/cli",
]  # fmt: skip


def test_no_folder_imports_from_above():
    """Imports run one way: from the HTTP boundary down to the core."""
    rooms = [folder.replace("/", ".") for folder in ORDER]

    above = {room: ways()[room] & set(rooms[at + 1 :]) for at, room in enumerate(rooms)}
    assert {room: others for room, others in above.items() if others} == {}


def test_every_folder_has_its_place():
    """A new folder is put into the order."""
    folders = {str(Path(name).parent) for name in OURS if "/" in str(Path(name).parent)}

    assert set(ORDER) == folders


TESTED_BY = core.TESTED_BY | shell.TESTED_BY
MODULE_FILES = [name for name in OURS if not name.endswith("__init__.py")]


def mirrored(name: str) -> list[Path]:
    """The test files that stand where a module's tests are looked for first."""
    path = Path(name)
    return sorted((ROOT / "tests/unit" / path.parent).glob(f"test_{path.stem.strip('_')}*.py"))


def test_a_module_has_a_test_file_of_its_name():
    """Who changes a module finds its tests by its path; where it is tested through another, the table says where."""
    assert [name for name in MODULE_FILES if bool(mirrored(name)) is (name in TESTED_BY)] == []


def test_the_table_of_the_others_is_true():
    """It names modules and test files that are there."""
    assert set(TESTED_BY) <= set(MODULE_FILES)
    assert [path for path in TESTED_BY.values() if path not in SOURCES] == []


def test_the_version_is_the_codes_own():
    """Nothing asks what version is installed: a checkout runs also where none is, or an older one."""
    asking = [name for name in OURS if 'version("mlx-stack-serve")' in (ROOT / name).read_text(encoding="utf-8")]
    assert not asking
