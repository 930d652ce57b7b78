"""Errors that end a command with one line, and a mistake in the configuration as such a line.

Nothing is imported before it is needed: a Tab and `--help` load this module too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_QUOTED = re.compile(r"""(['"])(.*?)\1""", re.DOTALL)
_OWN = re.compile(r".{0,2}|<.*>")  # a sign (`'\t'`), or YAML's name of a token (`<block end>`)


class ConfigError(ValueError):
    """The configuration can't be used. The message is one line that names the key; a command ends with exit code 2."""


class CommandFailed(RuntimeError):
    """A command can't do what it was asked for. The message is one line that says why; the exit code is 1."""


def describe_yaml_error(error: Exception) -> str:
    """Say in one line what is wrong with a YAML file, and where, without what stands there: it may be a key."""
    mark, words = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    quoted = (found for found in _QUOTED.finditer(words) if not _OWN.fullmatch(found[2]))
    end = next((found.start() for found in quoted), None)
    return where + " ".join(words[:end].split()).rstrip(":")


def first_mistake(model: type[BaseModel], error: ValidationError) -> str:
    """Say the first mistake, an unknown key before all others (it explains a missing one), and how many there are."""
    mistakes = error.errors(include_url=False, include_context=False, include_input=False)
    first = next((m for m in mistakes if m["type"] == "extra_forbidden"), mistakes[0])
    from deployments.config.tier_config import KINDS

    # Without the tag that pydantic puts in for the kind of a tier.
    loc = first["loc"]
    path = ".".join(str(part) for i, part in enumerate(loc) if not (part in KINDS and i == 2 and loc[0] == "tiers"))
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(find_allowed_keys(model, first["loc"][:-1]))
        line = f"{path}: unknown key; allowed here: {allowed}"
    else:
        words = first["msg"].removeprefix("Value error, ")
        line = f"{path}: {words}" if path and not words.startswith(f"{path}") else words
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return line + more


def find_allowed_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """List the keys that are allowed at a place of a model's data."""
    from pydantic import BaseModel

    from deployments.config.tier_config import KINDS

    here: Any = model
    for i, part in enumerate(loc):
        if part in KINDS and i == 2:
            here = KINDS[str(part)]
        elif isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            annotation = here.model_fields[str(part)].annotation  # such as `Timeouts | None`
            choices = [getattr(c, "__origin__", c) for c in (annotation, *getattr(annotation, "__args__", ()))]
            here = next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), annotation)
    return sorted(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []
