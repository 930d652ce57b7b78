"""JSON values as texts that are equal where the values are: how `enum`, `const` and `uniqueItems` compare.

Comparing all with all is quadratic; a set of texts isn't. Texts are hashed with a secret of the process, so nobody can
write values that collide (whole numbers could be: Python hashes them by a known rule).
"""

from __future__ import annotations

from typing import Any

from reliability.steps import Steps

CHARS_A_STEP = 500


def write_canonical(value: Any, steps: Steps | None = None) -> str:
    """Write one text for all values that are equal as JSON: 1 and 1.0, objects in any order; not 1 and true."""
    if isinstance(value, str):
        if steps is not None:
            steps.spend(1 + len(value) // CHARS_A_STEP)
        return '"' + value
    parts: list[str] = []
    _write(value, parts, steps)
    return "".join(parts)


def _write(value: Any, out: list[str], steps: Steps | None) -> None:
    if steps is not None:
        steps.spend(1 + (len(value) // CHARS_A_STEP if isinstance(value, str) else 0))
    if isinstance(value, str):
        out.append(f'"{len(value)}:{value}')
    elif isinstance(value, dict):
        out.append("{")
        for key in sorted(value):
            out.append(f'"{len(key)}:{key}')
            _write(value[key], out, steps)
        out.append("}")
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for item in value:
            _write(item, out, steps)
        out.append("]")
    else:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # Hexadecimal: the digits of a huge decimal number take the square of their count.
        out.append(f"{value:x}," if isinstance(value, int) and not isinstance(value, bool) else f"{value!r},")
