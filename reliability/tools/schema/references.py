"""Where the references of a schema lead, found out before anything is validated with it.

A reference that leads nowhere, one that leads back to itself before any part of the instance was consumed,
and references that multiply (each level naming the next one twice) would each surface as a crash or a
standstill in the middle of a request. Here they are the client's mistake. Recursion through `properties`
or `items` is fine: it ends with the instance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reliability.tool_calls import join
from reliability.tools.schema.dialects import DATA, MAPS, BadSchema

__all__ = ["anchors_of", "check_references", "resolve"]

HEIGHT_MAX = 64
WEIGHT_MAX = 10_000

_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")

Path = tuple[object, ...]


def anchors_of(root: Any) -> dict[str, Any]:
    """Find the nodes that are named by an anchor."""
    anchors: dict[str, Any] = {}
    _visit(root, lambda node, path: _note_anchors(node, anchors))
    return anchors


def check_references(root: Any) -> None:
    """Raise `BadSchema` for a reference that can't be followed to an end."""
    anchors = anchors_of(root)
    known: dict[int, tuple[int, int]] = {}
    _visit(root, lambda node, path: _weigh(node, path, root, anchors, known))


def resolve(root: Any, reference: str, anchors: Mapping[str, Any]) -> Any:
    """Return the schema that a reference inside the document means. Raises KeyError where it means
    nothing."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return anchors[reference[1:]]
    node = root
    for raw in reference[2:].split("/"):
        part = _ESCAPED.sub(_unescape, raw).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(part)] if isinstance(node, list) else node[part]
        except (TypeError, IndexError, ValueError):
            raise KeyError(reference) from None
    return node


def _unescape(found: re.Match[str]) -> str:
    """Read the characters that a reference spells as bytes of UTF-8."""
    return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace")


def _visit(root: Any, see: Callable[[Mapping[str, Any], Path], object]) -> None:
    """Show every object of a document, data left out, without recursion."""
    stack: list[tuple[Any, Path]] = [(root, ())]
    while stack:
        node, path = stack.pop()
        if isinstance(node, Mapping):
            see(node, path)
            named = bool(path) and path[-1] in MAPS
            stack += [(v, (*path, k)) for k, v in node.items() if named or k not in DATA]
        elif isinstance(node, list):
            stack += [(v, (*path, i)) for i, v in enumerate(node)]


def _note_anchors(node: Mapping[str, Any], anchors: dict[str, Any]) -> None:
    for key in ("$anchor", "$dynamicAnchor"):
        if isinstance(node.get(key), str):
            anchors.setdefault(node[key], node)


def _list_in_place(node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that judge the same instance as this one."""
    for key in ("allOf", "anyOf", "oneOf"):
        if isinstance(node.get(key), list):
            yield from node[key]
    yield from (node[key] for key in ("not", "if", "then", "else") if key in node)
    if isinstance(node.get("dependentSchemas"), Mapping):
        yield from node["dependentSchemas"].values()


def _weigh(
    node: Any, path: Path, root: Any, anchors: Mapping[str, Any], known: dict[int, tuple[int, int]], depth: int = 0
) -> tuple[int, int]:
    """Count how many schemas judge an instance of this one at the same place, and how deep they are
    nested."""
    if not isinstance(node, Mapping):
        return 1, 1
    if id(node) in known:
        return known[id(node)]
    if depth > HEIGHT_MAX:
        raise BadSchema(join(*path), "a reference leads back to itself")
    below = list(_list_in_place(node))
    keys = [key for key in ("$ref", "$dynamicRef") if isinstance(node.get(key), str)]
    below += [_resolve_target(node[key], (*path, key), root, anchors) for key in keys]
    parts = [_weigh(part, path, root, anchors, known, depth + 1) for part in below]
    weight, height = 1 + sum(w for w, _ in parts), 1 + max((h for _, h in parts), default=0)
    if weight > WEIGHT_MAX or height > HEIGHT_MAX:
        raise BadSchema(join(*path), "references multiply beyond what this server follows")
    known[id(node)] = weight, height
    return weight, height


def _resolve_target(reference: str, path: Path, root: Any, anchors: Mapping[str, Any]) -> Any:
    try:
        return resolve(root, reference, anchors)
    except KeyError:
        raise BadSchema(join(*path), f"{reference[:80]!r} leads nowhere") from None
