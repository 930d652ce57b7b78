"""Where the references of a schema lead, found out before anything is validated with it; and which types it allows.

Invariant: types never leave one out; what can't be told is None, anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reliability.tool_calls import join
from reliability.tools.schema.dialects import DATA, MAPS, TYPES, BadSchema

_HEIGHT_MAX = 64
_WEIGHT_MAX = 10_000

_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")

Path = tuple[object, ...]
_FORMS = ("allOf", "anyOf", "oneOf")
_FORMS_MAX = 1_000  # that judge an object in one place; of more, nothing can be told
_ANYTHING: Mapping[str, Any] = {}
_OF: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def anchors_of(root: Any) -> dict[str, Any]:
    """Find the nodes that are named by an anchor."""
    anchors: dict[str, Any] = {}
    for node, _ in _list_nodes(root):
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                anchors.setdefault(node[key], node)
    return anchors


def check_references(root: Any) -> None:
    """Raise `BadSchema` for a reference that can't be followed to an end."""
    anchors = anchors_of(root)
    known: dict[int, tuple[int, int]] = {}
    for node, path in _list_nodes(root):
        _weigh(node, path, root, anchors, known)


def resolve(root: Any, reference: str, anchors: Mapping[str, Any]) -> Any:
    """Return the schema that a reference inside the document means. Raises KeyError where it means nothing."""
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
    return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace")


def _list_nodes(root: Any) -> Iterator[tuple[Mapping[str, Any], Path]]:
    stack: list[tuple[Any, Path]] = [(root, ())]
    while stack:
        node, path = stack.pop()
        if isinstance(node, Mapping):
            yield node, path
            named = bool(path) and path[-1] in MAPS
            stack += [(v, (*path, k)) for k, v in node.items() if named or k not in DATA]
        elif isinstance(node, list):
            stack += [(v, (*path, i)) for i, v in enumerate(node)]


def _list_in_place(node: Mapping[str, Any]) -> Iterator[Any]:
    for key in _FORMS:
        if isinstance(node.get(key), list):
            yield from node[key]
    yield from (node[key] for key in ("not", "if", "then", "else") if key in node)
    if isinstance(node.get("dependentSchemas"), Mapping):
        yield from node["dependentSchemas"].values()


def _weigh(
    node: Any, path: Path, root: Any, anchors: Mapping[str, Any], known: dict[int, tuple[int, int]], depth: int = 0
) -> tuple[int, int]:
    """Count how many schemas judge an instance of this one at the same place, and how deep they are nested."""
    if not isinstance(node, Mapping):
        return 1, 1
    if id(node) in known:
        return known[id(node)]
    if depth > _HEIGHT_MAX:
        raise BadSchema(join(*path), "a reference leads back to itself")
    below = list(_list_in_place(node))
    keys = [key for key in ("$ref", "$dynamicRef") if isinstance(node.get(key), str)]
    for key in keys:
        try:
            below.append(resolve(root, node[key], anchors))
        except KeyError:
            raise BadSchema(join(*path, key), f"{node[key][:80]!r} leads nowhere") from None
    parts = [_weigh(part, path, root, anchors, known, depth + 1) for part in below]
    weight, height = 1 + sum(w for w, _ in parts), 1 + max((h for _, h in parts), default=0)
    if weight > _WEIGHT_MAX or height > _HEIGHT_MAX:
        raise BadSchema(join(*path), "references multiply beyond what this server follows")
    known[id(node)] = weight, height
    return weight, height


class Places:
    """What the schemas of one document say, each found out once. `looked`: at how many schemas, so far."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.looked = 0
        # With each schema, so that no other one takes its id.
        self._types: dict[int, tuple[Any, frozenset[str] | None]] = {}
        self._members: dict[int, tuple[Any, _Members]] = {}
        self._required: dict[int, tuple[Any, frozenset[str]]] = {}

    def find_types(self, schema: Any, depth: int = 0) -> frozenset[str] | None:
        """Find the types that an instance of this schema may have; None where any may be."""
        if not isinstance(schema, Mapping) or depth > _HEIGHT_MAX:
            return None
        if id(schema) not in self._types:
            self.looked += 1
            self._types[id(schema)] = schema, self._intersect_parts(schema, depth + 1)
        return self._types[id(schema)][1]

    def find_member(self, schema: Any, key: str) -> Any:
        """Find what a schema says of one property, through references; None where it says nothing."""
        if not isinstance(schema, Mapping):
            return None
        if id(schema) not in self._members:
            members = _Members(schema, self.root)
            self.looked += members.size
            self._members[id(schema)] = schema, members
        members = self._members[id(schema)][1]
        if key not in members.found:
            self.looked += members.size
            members.found[key] = members.find(key)
        return members.found[key]

    def find_required(self, schema: Any) -> frozenset[str]:
        if not isinstance(schema, Mapping):
            return frozenset()
        if id(schema) not in self._required:
            names = schema.get("required", ())
            self.looked += len(names)
            self._required[id(schema)] = schema, frozenset(names)
        return self._required[id(schema)][1]

    def _intersect_parts(self, schema: Mapping[str, Any], depth: int) -> frozenset[str] | None:
        found = _find_own_types(schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference[:2] in ("#", "#/"):
            found = _intersect(found, self.find_types(resolve(self.root, reference, {}), depth))
        for part in schema.get("allOf", ()):
            found = _intersect(found, self.find_types(part, depth))
        for either in ("anyOf", "oneOf"):
            if schema.get(either):
                parts = [self.find_types(part, depth) for part in schema[either]]
                found = _intersect(found, frozenset[str]().union(*(TYPES if part is None else part for part in parts)))
        return None if found == TYPES else found


class _Members:
    """What a schema, and what judges an object in its place, say of members. A form's `additionalProperties` count
    where neither it nor a form below it says anything of the member."""

    def __init__(self, schema: Mapping[str, Any], root: Any) -> None:
        self.found: dict[str, Any] = {}
        self.size = 1
        self._forms: dict[int, Mapping[str, Any]] = {}
        self._above: dict[int, list[int]] = {}
        stack: list[Any] = [schema]
        while stack and self.size <= _FORMS_MAX:
            form = stack.pop()
            if not isinstance(form, Mapping) or id(form) in self._forms:
                continue
            self._forms[id(form)] = form
            self.size += ("$ref" in form) + sum(len(form.get(name, ())) for name in _FORMS)
            if self.size <= _FORMS_MAX:
                parts = _list_forms(form, root)
                for part in parts:
                    self._above.setdefault(id(part), []).append(id(form))
                stack += reversed(parts)
        self._saying = [at for at, form in self._forms.items() if form.get("properties")]
        others = [at for at, form in self._forms.items() if isinstance(form.get("additionalProperties"), Mapping)]
        above = self._climb([over for at in others for over in self._above.get(at, ())])
        self._open = [at for at in others if at not in above]

    def find(self, key: str) -> Any:
        """Find what they say of one member, together; None where they say nothing."""
        if self.size > _FORMS_MAX:
            return _ANYTHING
        declaring = [at for at in self._saying if key in self._forms[at]["properties"]]
        above = self._climb(declaring)
        schemas = [self._forms[at]["properties"][key] for at in declaring]
        schemas += [self._forms[at]["additionalProperties"] for at in self._open if at not in above]
        if len(schemas) > 1:
            return {"anyOf": schemas}
        return schemas[0] if schemas else None

    def _climb(self, forms: Sequence[int]) -> set[int]:
        found, stack = set(forms), list(forms)
        while stack:
            above = [at for at in self._above.get(stack.pop(), ()) if at not in found]
            found.update(above)
            stack += above
        return found


def _list_forms(form: Mapping[str, Any], root: Any) -> list[Any]:
    parts = [part for name in _FORMS for part in form.get(name, ())]
    if isinstance(form.get("$ref"), str) and form["$ref"].startswith("#/"):
        parts.append(resolve(root, form["$ref"], {}))
    return parts


def _find_own_types(schema: Mapping[str, Any]) -> frozenset[str] | None:
    found = _name_types(schema.get("type"))
    banned = schema.get("not")
    if isinstance(banned, Mapping) and banned.keys() == {"type"}:
        named = _name_types(banned["type"]) or TYPES
        found = _intersect(found, TYPES - named - ({"integer"} if "number" in named else set()))
    if "enum" in schema:
        found = _intersect(found, frozenset(_OF.get(type(value), "string") for value in schema["enum"]))
    if "const" in schema:
        found = _intersect(found, frozenset({_OF.get(type(schema["const"]), "string")}))
    return found


def _name_types(kinds: Any) -> frozenset[str] | None:
    return None if kinds is None else frozenset([kinds] if isinstance(kinds, str) else kinds)


def _intersect(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """Return the types that two schemas allow together; an integer is a number."""
    if one is None or other is None:
        return other if one is None else one
    wide_one, wide_other = (kinds | {"integer"} if "number" in kinds else kinds for kinds in (one, other))
    return wide_one & wide_other
