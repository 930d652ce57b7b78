"""Ten edits as agents ask for them, and prose to compare: a file rewritten with one change, JSON put right, a list of
paths said again.

Each text is made from a seed, so a second run asks for other names. They begin with the material and end with the
instruction, so tasks about one file share its prefix.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

_NOUNS = ("order", "invoice", "parcel", "ticket", "account", "sensor", "shelf", "driver", "route", "batch", "label")
_VERBS = ("load", "store", "merge", "check", "count", "split", "move", "close", "print", "send", "read", "sort")
_LINES = 150
PROSE = (
    "Write a long story about a fox who lives at the edge of a forest.",
    "Explain to a child why the sky is blue and the sunset red.",
    "Describe a market in a harbour town on a rainy morning.",
    "What should somebody think about before moving to another country?",
)


@dataclass(frozen=True, slots=True)
class Task:
    """One question; `kind` names its family."""

    kind: str
    text: str


def build_tasks() -> list[Task]:
    """Build the ten: four rewrites, three corrections, three lists."""
    chance = random.Random(1)
    module, verbs = _write_module(chance)
    changes = [
        f"Rename the function `{verbs[0]}` to `{verbs[0]}_all`",
        f"Add the line `# reviewed` above the function `{verbs[1]}`",
        f"In the function `{verbs[2]}` change the default of `limit` to 99",
        f"Remove the docstring of the function `{verbs[3]}`",
    ]
    rewrite = "and answer with the whole file again, unchanged otherwise, and nothing else."
    tasks = [Task("rewrite", f"```python\n{module}```\n{change} {rewrite}") for change in changes]
    tasks += [Task("json", _ask_for_json(chance)) for _ in range(3)]
    return tasks + [Task("paths", _ask_for_paths(chance)) for _ in range(3)]


def _write_module(chance: random.Random) -> tuple[str, list[str]]:
    """Write a module of 150 lines; return it and the names of its functions."""
    names = [f"{verb}_{noun}" for verb in _VERBS for noun in _NOUNS]
    chance.shuffle(names)
    lines = ["from __future__ import annotations", "", "import json", "from pathlib import Path", ""]
    used = []
    while len(lines) < _LINES - 8:
        name = names.pop()
        used.append(name)
        noun, verb = name.split("_")[1], name.split("_")[0]
        lines += [
            "",
            f"def {name}(path: Path, limit: int = {chance.randrange(10, 90)}) -> list[str]:",
            f'    """{verb.capitalize()} each {noun} that stands in the file."""',
            f"    {noun}s = json.loads(path.read_text())",
            f"    found = [str(one['{noun}']) for one in {noun}s if one.get('{chance.choice(_NOUNS)}')]",
            f"    if len(found) > limit + {chance.randrange(100)}:",
            f"        raise ValueError(f'too many: {{len(found)}} {noun}s')",
            "    return sorted(found)[:limit]",
            "",
        ]
    return "\n".join(lines) + "\n", used


def _ask_for_json(chance: random.Random) -> str:
    records = [
        {
            "id": chance.randrange(10_000),
            "kind": chance.choice(_NOUNS),
            "path": _write_path(chance),
            "done": bool(chance.randrange(2)),
            "tags": chance.sample(_NOUNS, 3),
        }
        for _ in range(16)
    ]
    broken = json.dumps(records, indent=1).replace('"id"', "'id'", 1)
    return f"```json\n{broken}\n```\nOne key has the wrong quotes. Answer with the corrected JSON and nothing else."


def _ask_for_paths(chance: random.Random) -> str:
    paths = "\n".join(_write_path(chance) for _ in range(30))
    return f"{paths}\n\nRepeat this list of paths exactly, one on each line, and nothing else."


def _write_path(chance: random.Random) -> str:
    folders = [chance.choice(_NOUNS) for _ in range(3)]
    return f"src/{'/'.join(folders)}/{chance.choice(_VERBS)}_{chance.choice(_NOUNS)}_{chance.randrange(100)}.py"
