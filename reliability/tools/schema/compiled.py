"""A client's schema, compiled: normalised, checked, and ready to judge with.

Compiling costs a thousand times what a validation costs, so what was compiled is kept by its text, for its API key
alone.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reliability.steps import Steps
from reliability.tools.schema.dialects import BadSchema, Normaliser
from reliability.tools.schema.references import check_references
from reliability.tools.schema.validator import Validator

SCHEMA_CHARS_MAX = 1_000_000
SCHEMAS_KEPT_MAX = 1_024
CHARS_KEPT_MAX = 8_000_000  # as Python's objects, about twelve times as many bytes
CHARS_A_STEP = 50  # written as text and read again


@dataclass(frozen=True)
class Compiled:
    """`schema` in draft 2020-12, what of it is not asserted, and the text that it was compiled from."""

    text: str
    schema: Mapping[str, Any]
    unchecked: tuple[str, ...]

    @cached_property
    def validator(self) -> Validator:
        return Validator(self.schema)


_Key = tuple[str, bool, str]  # the owner, whether it is of arguments, the text


class _SchemaCache:
    def __init__(self) -> None:
        self.chars = 0
        self._found: OrderedDict[_Key, Compiled | BadSchema] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: _Key) -> Compiled | BadSchema | None:
        """Return what is kept, as the newest now."""
        found = self._found.get(key)
        if found is not None:
            with suppress(KeyError):  # another thread was faster
                self._found.move_to_end(key)
        return found

    def put(self, key: _Key, found: Compiled | BadSchema) -> None:
        """Keep it, and let go of what is too much."""
        if key in self._found:
            return
        self._found[key] = found
        self.chars += len(key[-1])
        while len(self._found) > SCHEMAS_KEPT_MAX or self.chars > CHARS_KEPT_MAX:
            gone, _ = self._found.popitem(last=False)
            self.chars -= len(gone[-1])


SCHEMA_CACHE = _SchemaCache()


def compile_schema(given: Mapping[str, Any], steps: Steps, *, arguments: bool) -> Compiled | BadSchema:
    """Compile a schema, or return what is wrong with it. `arguments`: of a tool, always an object. Raises
    `OutOfSteps`."""
    try:
        text = json.dumps(given, sort_keys=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return BadSchema("", "must be plain JSON of a bounded depth")
    steps.spend(1 + len(text) // (CHARS_A_STEP * 10))
    found = SCHEMA_CACHE.get((steps.owner, arguments, text))
    if found is None:
        found = _compile(text, steps, arguments=arguments)
        SCHEMA_CACHE.put((steps.owner, arguments, text), found)
    return found


def keep(compiled: Compiled, *, arguments: bool, owner: str = "") -> None:
    """Keep what was compiled elsewhere for this API key."""
    SCHEMA_CACHE.put((owner, arguments, compiled.text), compiled)


def _compile(text: str, steps: Steps, *, arguments: bool) -> Compiled | BadSchema:
    if len(text) > SCHEMA_CHARS_MAX:
        return BadSchema("", "the schema is larger than this server takes")
    steps.spend(len(text) // CHARS_A_STEP)
    walk = Normaliser(steps)
    try:
        schema = walk.normalise(json.loads(text))
        check_references(schema)
        kinds = schema.get("type", "object")
        if arguments and "object" not in ([kinds] if isinstance(kinds, str) else kinds):
            raise BadSchema("/type", "the parameters of a tool must be an object")
    except BadSchema as bad:
        return BadSchema(bad.path, bad.message)  # without the stack that it was raised from
    except (RecursionError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        return BadSchema("", f"the schema can't be compiled: {type(error).__name__}")
    return Compiled(text, schema, tuple(walk.unchecked))
