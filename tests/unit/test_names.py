"""Names: a function is called by what it does."""

import ast
from collections import Counter

import pytest

from tests.support.source_tree import OURS, list_nodes

# Participles of irregular verbs that aren't a verb's first form too (`put`, `read`, `run`).
IRREGULAR = {
    "begun", "borne", "bought", "broken", "brought", "built", "caught", "chosen", "dealt", "done", "drawn",
    "driven", "eaten", "fallen", "fed", "forbidden", "forgotten", "found", "fought", "frozen", "given", "gone",
    "got", "grown", "heard", "held", "hidden", "hung", "kept", "known", "laid", "led", "lent", "lost", "made",
    "meant", "met", "paid", "said", "seen", "sent", "shaken", "shown", "shut", "sold", "sought", "spent", "spoken",
    "stolen", "stood", "struck", "stuck", "sunk", "sworn", "taken", "taught", "thought", "thrown", "told", "torn",
    "understood", "undone", "withheld", "woken", "won", "worn", "wound", "written",
}  # fmt: skip
# Verbs and nouns that only end like one.
NO_PARTICIPLES = {
    "bring", "embed", "exceed", "feed", "need", "ping", "proceed", "ring", "seed", "speed", "spring", "string",
}  # fmt: skip


def is_participle(name: str) -> bool:
    """Whether a function's name begins with a participle: `_held`, `settled_text`, `reading`."""
    first = name.strip("_").partition("_")[0]
    if first in NO_PARTICIPLES:
        return False
    return first in IRREGULAR or (first.endswith("ed") and len(first) > 3) or (first.endswith("ing") and len(first) > 4)


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is read as an attribute, which is a state or a thing."""
    return any(ast.unparse(one).endswith(("property", ".setter")) for one in function.decorator_list)


def test_functions_are_verbs():
    """No function is named by a participle: a reader sees what it does, and need not guess what is done to what."""
    nodes = [(name, node) for name in OURS for node in list_nodes(name)]
    functions = [(name, node) for name, node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert [(name, f.name) for name, f in functions if is_participle(f.name) and not is_property(f)] == []


def test_a_class_has_a_name_of_its_own():
    """No two public classes are called the same: who reads a name knows which one is meant."""
    names = [node.name for name in OURS for node in list_nodes(name) if isinstance(node, ast.ClassDef)]
    public = Counter(name for name in names if not name.startswith("_"))

    assert [name for name, times in public.items() if times > 1] == []


@pytest.mark.parametrize("name", ["_held", "settled", "told_when", "_reading", "marked"])
def test_a_participle_is_found(name):
    """The rule above sees regular and irregular ones, and those of what still goes on."""
    assert is_participle(name)


@pytest.mark.parametrize("name", ["read_text", "feed", "put", "has_failed", "is_closed", "hold", "run", "_string_of"])
def test_a_verb_is_none(name):
    """Verbs pass, and words that only end like a participle."""
    assert not is_participle(name)
