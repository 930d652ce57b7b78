"""The parts of README.md that come from the code: the file tree, the error table. `make readme` writes them."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from deployments.wire.errors import TABLE

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
OTHERS = {
    ".ci/run": "what must hold on a clean clone: lint, types, tests",
    ".gitignore": "",
    "CHANGELOG.md": "what changes for users",
    "LICENSE": "Apache-2.0",
    "Makefile": "`make serve`, `make test` and the rest",
    "README.md": "this page",
    "pyproject.toml": "packages, dependencies, the tools' settings",
    "requirements.lock": "what `make serve` installs, pinned and hashed",
    "requirements-dev.lock": "the same with the tools of `make check` and `make test`",
    "serve.env": "Ray Serve's flags that `make serve` sets",
    "deployments/haproxy_on_loopback.sh": "HAProxy as Ray Serve starts it, with this server's changes",
    "serve_config.yaml": "the graph as Ray Serve reads it",
    "deployments/state/README.md": "the laws of the state package, and what it costs",
    "loadtests/scripted.yaml": "the scripted tiers of `make load` and `make soak`",
    "loadtests/README.md": "the benchmarks and their measured tables",
    "deployments/examples/mac_cluster.yaml": "a cluster: one Mac for each tier",
    "deployments/examples/one_mac.yaml": "one Mac: tiers that grow and sleep within its memory",
    "deployments/tiers/smollm2_tools.jinja": "the chat template with tools of the default model",
}


def tracked() -> list[str]:
    """The files of the project. Test files are shown as their folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in listed.stdout.splitlines() if (ROOT / name).exists())


def tree() -> str:
    """One line a file: its name and the first sentence of its docstring; tests one line a folder."""
    rows: dict[str, str] = {}
    for name in tracked():
        if name.startswith("tests/"):
            if not name.endswith(".py"):
                continue
            folder = str(Path(name).parent) + "/"
            rows.setdefault(folder, first_sentence(ROOT / folder / "__init__.py"))
        elif name.endswith("py.typed") or name == ".gitignore":
            continue
        elif name.endswith(".py"):
            rows[name] = first_sentence(ROOT / name)
        else:
            rows[name] = OTHERS[name]
    width = max(map(len, rows))
    return "\n".join(["```", *(f"{name:<{width}}  {words}".rstrip() for name, words in rows.items()), "```"])


def first_sentence(path: Path) -> str:
    """Of a module's docstring, on one line and without its full stop; up to its colon where it is long."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(docstring.split()), maxsplit=1)[0]
    return (sentence if len(sentence) <= 100 else sentence.partition(": ")[0]).rstrip(".")


def errors() -> str:
    """The error table."""
    rows = [
        f"| `{code}` | {row.status} | `{row.type}` | {'yes' if row.retry else 'no'} | {row.meaning} |"
        for code, row in TABLE.items()
    ]
    return "\n".join(["| code | status | type | retry | meaning |", "|---|---|---|---|---|", *rows])


PARTS = {"tree": tree, "errors": errors}


def written(text: str) -> str:
    """`text` with each part between its markers made anew."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        text = pattern.sub(lambda _, b=begin, e=end, m=make: f"{b}\n{m()}\n{e}", text)
    return text


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
