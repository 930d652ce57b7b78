"""Walk the request types of the official SDKs: each field at each depth, with every kind of value that its type allows.

The least value of a type has its required fields alone. `walk` adds one field at a time to it, and looks into the
values; a type that stands in several places is looked into at the first of them.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

_LISTS = (list, Iterable, Sequence)
_PLAIN: Mapping[Any, Any] = {str: "x", int: 1, float: 0.5, bool: True, object: {}, Any: {}, type(None): None}


@dataclass(frozen=True, slots=True)
class Variant:
    """A value that has one field more than its least form. `path` names the field, an element of a list by its type or
    role; `without` is the value before the field was added; `null`: the field is null."""

    path: str
    value: Any
    without: Any
    null: bool = False

    def wrap(self, key: str, put: Callable[[Any], Any]) -> "Variant":
        """Return the same, one level further out."""
        return replace(self, path=f"{key}.{self.path}", value=put(self.value), without=put(self.without))


def list_arms(hint: Any) -> list[Any]:
    """List the types that a union allows and JSON has."""
    while get_origin(hint) in (Annotated, Required, NotRequired):
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        return [arm for one in get_args(hint) for arm in list_arms(one)]
    known = hint in _PLAIN or is_typeddict(hint) or get_origin(hint) in (*_LISTS, dict, Mapping, Literal)
    return [hint] if known else []  # an open file, which the SDK writes as base64


def list_fields(hint: Any) -> dict[str, tuple[list[Any], bool]]:
    """List the fields of an object's type: what each may be, and whether it is required."""
    hints = get_type_hints(hint, include_extras=True)
    return {name: (list_arms(one), get_origin(one) is Required) for name, one in hints.items()}


def name_kind(hint: Any) -> str:
    """Name an object's type by the `type` or role that its values have, the element of another list by 0."""
    fields = list_fields(hint) if is_typeddict(hint) else {}
    for name in ("type", "role"):
        if name in fields and get_origin(fields[name][0][0]) is Literal:
            return str(get_args(fields[name][0][0])[0])
    return "0"


def build_least(hint: Any, given: Mapping[str, Any]) -> Any:
    """Build the least value of a type. `given`: fields that can't have any value of their type, by name; what an object
    needs beside its required fields, by its kind."""
    if is_typeddict(hint):
        more = given.get(name_kind(hint), {})
        needed = {name: arms[0] for name, (arms, required) in list_fields(hint).items() if required}
        built = {name: given[name] if name in given else build_least(arm, given) for name, arm in needed.items()}
        return built | more
    if get_origin(hint) is Literal:
        return get_args(hint)[-1]
    if get_origin(hint) in _LISTS:
        return [build_least(list_arms(get_args(hint)[0])[0], given)]
    if get_origin(hint) in (dict, Mapping):
        return {"x": build_least(list_arms(get_args(hint)[1])[0], given)}
    return _PLAIN[hint]


def walk(hint: Any, given: Mapping[str, Any], seen: set[Any] | None = None) -> Iterator[Variant]:
    """Walk a type: each kind of value of each of its fields, at any depth, and null where none is required."""
    seen = set() if seen is None else seen
    if get_origin(hint) in _LISTS:
        for arm in list_arms(get_args(hint)[0]):
            for variant in walk(arm, given, seen):
                yield variant.wrap(name_kind(arm), lambda value: [value])
    if not is_typeddict(hint) or hint in seen:
        return
    seen.add(hint)
    least = build_least(hint, given)
    for name, (arms, required) in list_fields(hint).items():
        rest = {key: value for key, value in least.items() if key != name}
        for value in _list_values(name, arms, given):
            yield Variant(name, {**rest, name: value}, rest)
        for arm in arms:
            for variant in walk(arm, given, seen):
                yield variant.wrap(name, lambda value, name=name, rest=rest: {**rest, name: value})
        if not required:
            yield Variant(name, {**rest, name: None}, rest, null=True)


def _list_values(name: str, arms: Sequence[Any], given: Mapping[str, Any]) -> Iterator[Any]:
    """List one value of each kind that a field may have; all of those that are written out."""
    if name in given:
        yield given[name]
        return
    for arm in arms:
        elements = list_arms(get_args(arm)[0]) if get_origin(arm) in _LISTS else ()
        if get_origin(arm) is Literal:
            yield from get_args(arm)
        elif elements:
            yield from ([build_least(one, given)] for one in elements)
        elif arm is not type(None):
            yield build_least(arm, given)
