"""Arguments that satisfy the schema and still say nothing: empty ones, and words that only stand in for a
value.

Both checks are made to err on the side of the model, since a false alarm costs a good answer.

Empty: only a call whose required strings are all blank, and that says nothing else. One blank string among
others is common and right (an edit that deletes its text, a search from the root).

Placeholders are patterns for the whole value, in which `*` stands for anything and `{name}` for the
parameter's own name. Patterns with brackets (`<your_*>`) are never meant. A plain word (`TODO`, `string`,
`example.com`) may be, so it only counts where the conversation is known and nobody in it said that word.
What the schema itself mentions (enum, default, examples, description) is never a placeholder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from reliability.steps import Steps
from reliability.tool_calls import Flaws
from reliability.tools.schema.toolbox import Tool
from reliability.tools.schema.types_allowed import property_schema

__all__ = ["PLACEHOLDERS", "find_implausible"]

PLACEHOLDERS: tuple[str, ...] = (
    "<your_*>",
    "<your *>",
    "<your-*>",
    "<insert*>",
    "<enter *>",
    "<replace*>",
    "<placeholder*>",
    "<{name}>",
    "<the_{name}>",
    "{{{name}}}",
    "[your *]",
    "[insert *]",
    "string",
    "TODO",
    "example.com",
)
PLACEHOLDER_CHARS_MAX = 120
STEPS_A_WORD = 8
CHARS_A_STEP = 1_000  # of the conversation, searched for a word
FOUND_MAX = 100
_BRACKETS = frozenset("<[{")
_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:www\.)?|/\Z")

Path = tuple[str | int, ...]


def find_implausible(
    arguments: Mapping[str, Any],
    tool: Tool,
    placeholders: Sequence[str],
    conversation: Sequence[str] | None,
    steps: Steps,
) -> list[tuple[Flaws, Path, str]]:
    """Find what stands in the arguments without saying anything, at most `FOUND_MAX` things. Raises
    `OutOfSteps`, unless the steps are final: then what hasn't been looked at passes, since it
    satisfies the schema."""
    blanks = _find_blank(arguments, tool)
    found: list[tuple[Flaws, Path, str]] = [
        (Flaws.EMPTY, (key,), "is empty, and nothing else is given") for key in blanks
    ]
    match = _build_matcher(tuple(placeholders))
    conversation_chars = sum(map(len, conversation or ()))
    for path, text in _list_strings(arguments):
        if (steps.final and steps.left < STEPS_A_WORD + conversation_chars // CHARS_A_STEP) or len(found) >= FOUND_MAX:
            break
        steps.spend(1)
        if len(text) > PLACEHOLDER_CHARS_MAX:
            continue
        steps.spend(STEPS_A_WORD)
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        word = match(text, name)
        if word is not None:
            steps.spend(conversation_chars // CHARS_A_STEP)
        if word is not None and _stands_in(text, word, path, tool, conversation):
            found.append((Flaws.PLACEHOLDER, path, f"{text!r} only stands in for a value"))
    return found


def _find_blank(arguments: Mapping[str, Any], tool: Tool) -> list[str]:
    """Find the required strings, where all of them are blank and nothing else is given."""
    if not tool.required or any(not _is_blank(value) for value in arguments.values()):
        return []
    keys = [key for key in tool.required if isinstance(arguments.get(key), str)]
    return [
        key
        for key in keys
        if '""' not in json.dumps(_find_schema(key, tool)) and "empty" not in str(_find_schema(key, tool)).casefold()
    ]


def _is_blank(value: Any) -> bool:
    return value is None or value in ([], {}) or (isinstance(value, str) and not value.strip())


def _find_schema(key: str, tool: Tool) -> Any:
    return property_schema(tool.parameters, tool.parameters, key)


def _list_strings(value: Any) -> Iterator[tuple[Path, str]]:
    stack: list[tuple[Path, Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, Mapping):
            stack += [((*path, k), v) for k, v in reversed(list(item.items()))]
        elif isinstance(item, list):
            stack += [((*path, i), v) for i, v in reversed([*enumerate(item)])]


@lru_cache(maxsize=64)
def _build_matcher(placeholders: tuple[str, ...]) -> Any:
    """Build a function that says which placeholder a text is, if it is one."""
    patterns = [(word, _compile_word(word)) for word in placeholders]

    def match(text: str, name: str) -> str | None:
        plain = text.strip().casefold()
        bare = _ADDRESS.sub("", plain) if "example" in plain else plain
        for word, pattern in patterns:
            found = pattern.fullmatch(bare if word[0] not in _BRACKETS else plain)
            if found is not None and ("name" not in found.groupdict() or found["name"] == name.casefold()):
                return word
        return None

    return match


def _compile_word(word: str) -> re.Pattern[str]:
    escaped = re.escape(word.casefold())
    return re.compile(escaped.replace(re.escape("{name}"), r"(?P<name>[\w-]+)", 1).replace(r"\*", ".*"), re.DOTALL)


def _stands_in(text: str, word: str, path: Path, tool: Tool, conversation: Sequence[str] | None) -> bool:
    """Return whether a text only stands in for a value: nobody said this, nor may have."""
    plain = text.strip().casefold()
    if isinstance(path[0], str):
        schema = json.dumps(_find_schema(path[0], tool), ensure_ascii=False).casefold()
        if plain in schema.replace('"type": "string"', ""):
            return False
    if conversation is None:
        return word[0] in _BRACKETS
    short = plain if word[0] in _BRACKETS else word.casefold()
    return not any(short in message.casefold() for message in conversation)
