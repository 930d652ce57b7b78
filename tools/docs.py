"""`make docs`: the parts of the docs that come from the code, each between two markers of its page.

    docs/errors.md            errors     the error table
    docs/configuration.md     config     every key
    docs/operations.md        commands   the commands of `mlx-stack-serve --help`
    docs/architecture.md      folders    the folders, a line each
    docs/models.md            models     the families of models that mlx-lm knows
    docs/serve_config.schema.json        the whole file

A test holds the pages against the code (tests/unit/tools/test_docs.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from deployments.cli.commands import cli
from deployments.errors import TABLE
from tests.zoo.table import build_table
from tools.config_schema import config_schema
from tools.config_tables import config_tables

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "docs/serve_config.schema.json"
SENTENCE_CHARS_MAX = 140
# Folders without a module that could say what they are; None: not shown.
FOLDERS = {
    ".ci": "the checks that must hold on a clean clone",
    "deployments/built_in": "links to the configuration and the flags that the package ships: `serve_config.yaml`, "
    "`serve.env`",
    "deployments/examples": "example configurations: one Mac, a Mac for each tier",
    "deployments/examples/grafana": "for Prometheus and Grafana: what to scrape, when to be alarmed, a dashboard",
    "docs": "these pages",
}
PACKAGES = ("deployments", "reliability", "tests", "loadtests", "tools")
# Has the folders of the packages: not shown again.
MIRROR = Path("tests/unit")


def errors() -> str:
    """Write the error table."""
    rows = [
        f"| `{code}` | {row.status} | `{row.type}` | {'yes' if row.retry else 'no'} | {row.meaning} |"
        for code, row in TABLE.items()
    ]
    return "\n".join(["| code | status | type | retry | meaning |", "|---|---|---|---|---|", *rows])


def commands() -> str:
    """Write what each subcommand does."""
    rows = [f"| `mlx-stack-serve {name}` | {one.get_short_help_str(100)} |" for name, one in cli.commands.items()]
    return "\n".join(["| command | does |", "|---|---|", *rows])


def folders() -> str:
    """Write the folders of the project, each with the first sentence of its package."""
    rows = dict(FOLDERS) | {name: _read_first_sentence(ROOT / name / "__init__.py") for name in _find_packages()}
    width = max(map(len, rows)) + 1
    return "\n".join(["```", *(f"{f'{name}/':<{width}}  {rows[name]}" for name in sorted(rows, key=_sort_key)), "```"])


def _find_packages() -> Iterator[str]:
    for name in PACKAGES:
        for path in (ROOT / name).rglob("__init__.py"):
            folder = path.parent.relative_to(ROOT)
            if not folder.is_relative_to(MIRROR) or folder == MIRROR:
                yield str(folder)


def _sort_key(name: str) -> tuple[int, str]:
    top = name.partition("/")[0]
    return (PACKAGES.index(top) if top in PACKAGES else len(PACKAGES), name)


def _read_first_sentence(path: Path) -> str:
    """Read the first sentence of a module's docstring, without its full stop; up to its colon where
    it is long."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(docstring.split()), maxsplit=1)[0]
    return (sentence if len(sentence) <= SENTENCE_CHARS_MAX else sentence.partition(": ")[0]).rstrip(".")


PAGES = {
    ROOT / "docs/errors.md": ("errors", errors),
    ROOT / "docs/configuration.md": ("config", config_tables),
    ROOT / "docs/operations.md": ("commands", commands),
    ROOT / "docs/architecture.md": ("folders", folders),
    ROOT / "docs/models.md": ("models", build_table),
}


def render_page(page: Path) -> str:
    """Return the page with its part made anew.

    Raises:
        ValueError: it has no place for it.
    """
    if page == SCHEMA:
        return config_schema()
    name, make = PAGES[page]
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{page.name} needs the markers {begin} and {end} once each")
    return f"{text.partition(begin)[0]}{begin}\n{make()}\n{end}{text.partition(end)[2]}"


if __name__ == "__main__":
    for page in (SCHEMA, *PAGES):
        page.write_text(render_page(page), encoding="utf-8")
