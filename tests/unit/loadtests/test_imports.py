"""Each name that a load test takes from this project is there: the type checker doesn't read them."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = ("deployments", "reliability", "tests", "tools")
# Other people's suites run the drivers, in environments that have none of this.
FILES = [path for path in (ROOT / "loadtests").rglob("*.py") if path.parent.name != "drivers"]


@pytest.mark.parametrize("path", sorted(FILES), ids=lambda path: path.stem)
def test_each_imported_name_is_there(path):
    """Law: a name that moves or becomes private takes the load tests along."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    for node in taken:
        if node.module.partition(".")[0] in OURS:
            module = importlib.import_module(node.module)
            for name in (one.name for one in node.names if not hasattr(module, one.name)):
                importlib.import_module(f"{node.module}.{name}")
