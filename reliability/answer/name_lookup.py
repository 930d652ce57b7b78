"""The declared names as the gate looks them up: at the beginning of a line in any spelling, behind a sentence ordinary
words to the letter only, so that prose isn't held for a word that is also a tool's name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reliability.tools.schema.tool_names import NAMESPACE_WORDS
from reliability.tools.schema.tool_names import ToolNames as DeclaredNames

__all__ = ["Lookup", "ToolNames", "fold_text"]

_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ-", "abcdefghijklmnopqrstuvwxyz_")
_NO_WORD = re.compile(r"(?:__|[./:])(?=[A-Za-z0-9])|(?<=[a-z0-9])[A-Z]")


@dataclass(frozen=True, slots=True)
class Lookup:
    """The declared names as they are looked up at one kind of place. `exact`: an ordinary word counts to the letter."""

    index: DeclaredNames
    known: frozenset[str]
    exact: bool

    def knows(self, name: str) -> bool:
        """Return whether this means a declared tool."""
        if self.exact and _NO_WORD.search(name) is None:
            return name in self.known
        return self.index.find(name) is not None

    def may_become(self, text: str) -> bool:
        """Return whether this may be the beginning of what means a declared tool."""
        if self.exact and _NO_WORD.search(text) is None:
            word = text.rstrip("./:_") or text
            return any(known.startswith(word) for known in (*self.known, *NAMESPACE_WORDS))
        return self.index.may_become(text)


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The declared names: as they may be spelled, and to the letter. `firsts` are what they and the words of the table
    begin with."""

    names: tuple[str, ...]
    folded: Lookup
    exact: Lookup
    firsts: frozenset[str]


def fold_text(text: str) -> str:
    """Return the text without case, and with `-` as `_`; as long as before."""
    return text.translate(_FOLD)
