"""Which declared tool a name means. A model may spell a name in another way than the client; it may not be guessed at.

The first way in which any declared name answers decides; where more than one answers, none is meant:

    way      what may differ                                                  `get_weather` is meant by
    exact    nothing, but for a namespace that says nothing of the tool
    folded   case, `-` against `_`, a `functions.` before it                  Get-Weather, functions.get_weather
    spelled  what stands between its words: `.`, `__`, `:`, `/`, a capital    get.weather, get__weather, getWeather
    bare     a namespace that says nothing of the tool: `tools.`,             default_api.get_weather,
             `default_api.`, `mcp__server__`                                  mcp__server__get_weather
    inner    the namespaces that the client put before it: the declared       get_weather, weather.get
             `mcp__weather__get` is meant by `weather.get` and by `get`, but not next to `account_get`
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

NAME_CHARS_MAX = 256
_INDEXES_KEPT_MAX = 32

_PREFIX = "functions."
_BETWEEN = re.compile(r"(?<=[A-Za-z0-9])[._:/-]+(?=[A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAMESPACE_END = re.compile(r"(?<=[A-Za-z0-9])(?:__|[.:/]+)(?=[A-Za-z0-9])")
_SAYS_NOTHING = re.compile(
    r"(?:(?:functions?|tools?|default_api|multi_tool_use)(?:__|[.:/]+)|functions_)", re.IGNORECASE
)
_MCP = re.compile(r"(?<![A-Za-z0-9])mcp(?:__|[.:/_-])(?=[A-Za-z0-9])", re.IGNORECASE)
_SERVER_NAMES = (
    re.compile(r"[A-Za-z0-9_-]+?(?:__|[.:/]+)(?=[A-Za-z0-9])"),
    re.compile(r"[A-Za-z0-9-]+_(?=[A-Za-z0-9])"),
)
# What a model, or an upstream that reads its calls, leaves on a name: a special token, an index, a pair of brackets,
# the `.call` of the tools that Llama 3 knows by itself.
_LEFT_ON = re.compile(r"<[|｜].*|:\d{1,6}\Z|\(\s*\)\Z|\.call\Z", re.DOTALL)
# What is no ordinary word where a sentence begins: a name with a sign or a capital inside it.
_NO_WORD = re.compile(r"(?:__|[./:])(?=[A-Za-z0-9])|(?<=[a-z0-9])[A-Z]")
_WORDS_BEFORE = ("functions", "function", "tools", "tool", "default_api", "multi_tool_use", "mcp")


def fold(name: str) -> str:
    """Strip a name of what models get wrong and mean the same by."""
    return name.strip().removeprefix(_PREFIX).replace("-", "_").casefold()


def _spell(name: str) -> str:
    return _BETWEEN.sub("_", name.strip()).casefold()


def _list_inner(name: str) -> list[str]:
    """List what is left of a name, spelled, without its first namespace, its first two, and so on."""
    parts = [_spell(part) for part in _NAMESPACE_END.split(name)]
    return ["_".join(parts[at:]) for at in range(1, len(parts))]


def _list_tails(name: str) -> list[str]:
    """List the last words of a name without a namespace, whose first words may be one."""
    words = [] if _NAMESPACE_END.search(name) else _spell(name).split("_")
    return ["_".join(words[at:]) for at in range(1, len(words))]


def _strip_silent(name: str) -> list[str]:
    """Return the name as it is, then without the words before it that say nothing of the tool."""
    found = [name]
    for silent in (_SAYS_NOTHING, _MCP):
        match = silent.match(found[-1])
        if match is not None:
            found.append(found[-1][match.end() :])
    return found


def _strip_server(name: str, bare: str) -> list[str]:
    """Return what is left of `mcp__server__name` without its server; `bare` is the name without `mcp__`."""
    if _MCP.search(name) is None:
        return []
    return [bare[match.end() :] for pattern in _SERVER_NAMES if (match := pattern.match(bare)) is not None]


def clean_name(name: str) -> str:
    """Take off what belongs to no name: quotes, a special token behind it, the index of a call."""
    bare = _LEFT_ON.sub("", name[:NAME_CHARS_MAX].strip(" \t\r\n\"'`")).strip(" \t\r\n\"'`")
    return re.sub(r"\\(?=_)", "", bare).replace(" ", "_")


class ToolNames:
    """The declared names of one request, ready to be looked up."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.exact = frozenset(names)
        self._folded = _group((fold(name), name) for name in names)
        self._spelled = _group((_spell(name), name) for name in names)
        self._inner = _group((inner, name) for name in names for inner in _list_inner(name))
        self._tails = _group((tail, name) for name in names for tail in _list_tails(name))
        self._in_order = sorted({*self._folded, *self._spelled, *self._inner})
        self.firsts = frozenset(key[0] for key in (*self._in_order, *_WORDS_BEFORE) if names and key)

    def find(self, name: str) -> str | None:
        """Find the one declared name that a name means; None where there is none, or more than one."""
        found = self.list_meant(name)
        return found[0] if len(found) == 1 else None

    def list_meant(self, name: str) -> tuple[str, ...]:
        """List the declared names that a name may mean: those that answer in the first way in which any does."""
        if name in self.exact:
            return (name,)
        if len(name) > NAME_CHARS_MAX:
            return ()
        bare = _strip_silent(name)
        own = [*bare, *_strip_server(name, bare[-1])]
        return (
            next(((one,) for one in bare if one in self.exact), ())
            or self._folded.get(fold(name))
            or next((self._spelled[key] for key in map(_spell, own) if key in self._spelled), None)
            or next((self._inner[k] + self._tails.get(k, ()) for k in map(_spell, bare) if k in self._inner), ())
        )

    def may_become(self, text: str) -> bool:
        """Return whether a text may be the beginning of a name that means a declared one."""
        plain = text.casefold()
        if any(word.startswith(plain) for word in _WORDS_BEFORE) or plain.startswith("mcp"):
            return True
        silent = _SAYS_NOTHING.match(text)
        rest = text[silent.end() :] if silent else text
        # Where a word of capitals ends is known one letter later: `HTTPG` may become `HTTPGet`.
        keys = {fold(text), _spell(rest), _spell(rest[:-1] or rest), _spell(rest.rstrip("_.:/-"))}
        return any(map(self._begins, keys))

    def _begins(self, beginning: str) -> bool:
        at = bisect_left(self._in_order, beginning)
        return at < len(self._in_order) and self._in_order[at].startswith(beginning)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The declared names as they are looked up at one kind of place. `exact`: an ordinary word counts to the letter."""

    index: ToolNames
    exact: bool

    def knows(self, name: str) -> bool:
        if self.exact and _NO_WORD.search(name) is None:
            return name in self.index.exact
        return self.index.find(name) is not None

    def may_become(self, text: str) -> bool:
        """Return whether this may be the beginning of what means a declared tool."""
        if self.exact and _NO_WORD.search(text) is None:
            word = text.rstrip("./:_")
            return any(known.startswith(word) for known in (*self.index.exact, *_WORDS_BEFORE))
        return self.index.may_become(text)


def _group(pairs: Iterator[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for key, name in pairs:
        found.setdefault(key, {})[name] = None
    return {key: tuple(names) for key, names in found.items()}


@lru_cache(maxsize=_INDEXES_KEPT_MAX)
def prepare_tool_names(names: tuple[str, ...]) -> ToolNames:
    """Make declared names ready; the same names are made ready once."""
    return ToolNames(names)
