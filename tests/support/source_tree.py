"""The project's source as the tests of its tidiness read it: modules, their imports, their functions."""

import ast
import functools
from collections.abc import Iterator

from tests.support.repository import ROOT, tracked

PACKAGES = ("reliability/", "deployments/")
SOURCES = [name for name in tracked() if name.endswith(".py")]
OURS = [name for name in SOURCES if name.startswith(PACKAGES)]


@functools.cache
def parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


@functools.cache
def list_nodes(name: str) -> list[ast.AST]:
    return list(ast.walk(parsed(name)))


def imports(tree: ast.AST) -> Iterator[str]:
    """List the modules that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
