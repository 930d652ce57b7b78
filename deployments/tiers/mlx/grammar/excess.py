"""How much of a schema is too much for a grammar, found before llguidance is asked.

llguidance lets other threads run while it compiles, but nobody can stop it, and one thread compiles for all requests of
a tier. Measured 2026-11-23, 2 vCPU AMD EPYC, Linux, llguidance 1.9.1, bytes as tokens: an object of 9,000 properties
takes 17 s, the square of their number; patterns that must all hold for one string take twice as long for each more
(16: 0.1 s, 20: over 2 s, 30: no end), which none of its limits bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.tools.schema.references import anchors_of, resolve

__all__ = ["NODES_MAX", "find_excess", "nodes_of"]

NODES_MAX = 2_000  # schemas in one schema; `WORDS_A_NODE` members of an enum count as one
WORDS_A_NODE = 20
PATTERNS_MAX = 8  # that must hold for one string together
VISITS_MAX = 20_000


def find_excess(schema: Mapping[str, Any]) -> str:
    """Explain why a schema is not given to llguidance; empty where it may be."""
    if nodes_of(schema) > NODES_MAX:
        return f"it has more than {NODES_MAX} parts"
    anchors = anchors_of(schema)
    visits = [VISITS_MAX]
    if any(_count_patterns(node, schema, anchors, visits) > PATTERNS_MAX for node in _list_nodes(schema)):
        return f"more than {PATTERNS_MAX} patterns must hold together"
    return ""


def nodes_of(schema: Any) -> int:
    """Count the nodes of a schema."""
    return sum(1 + len(node.get("enum", ())) // WORDS_A_NODE for node in _list_nodes(schema))


def _list_nodes(schema: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            found.append(node)
            stack += [value for key, value in node.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(node, list):
            stack += node
    return found


def _count_patterns(node: Any, root: Any, anchors: Mapping[str, Any], visits: list[int]) -> int:
    """Count the most patterns that one string must meet in this node; beyond `visits`, too many."""
    visits[0] -= 1
    if visits[0] < 0:
        return PATTERNS_MAX + 1
    if not isinstance(node, Mapping):
        return 0
    count = int("pattern" in node or "format" in node)
    parts = list(node.get("allOf") or ())
    if isinstance(node.get("$ref"), str):
        parts.append(resolve(root, node["$ref"], anchors))
    for either in ("anyOf", "oneOf"):
        some = node.get(either) or ()
        count += max((_count_patterns(part, root, anchors, visits) for part in some), default=0)
    return count + sum(_count_patterns(part, root, anchors, visits) for part in parts)
