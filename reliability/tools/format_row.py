"""What a row of the table of call formats is made of. `formats.py` has the table, and says what its columns are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

__all__ = ["Format", "Place", "Reader", "Start", "Until"]


class Reader(Enum):
    """Who reads a format; `extract/scanner.py` has them."""

    ENVELOPE = "envelope"  # whatever notation stands in it
    ELEMENTS = "elements"  # <function=name><parameter=key>value</parameter></function>
    CHILDREN = "children"  # <name><key>value</key></name>
    SECTIONS = "sections"  # of special tokens: the name, then the arguments
    FLOWERS = "flowers"  # ✿FUNCTION✿: name, ✿ARGS✿: a JSON object
    ATTRIBUTES = "attributes"  # <tool name="name" key="value" />
    PAIRS = "pairs"  # name<arg_key>key</arg_key><arg_value>value</arg_value>
    NAMED = "named"  # a name, then a JSON object
    BRACES = "braces"  # call:name{key:<|"|>value<|"|>}
    PYTHON = "python"  # [name(key="value")]
    LINES = "lines"  # name(key="value"), and nothing else from there on
    JSON = "json"
    REACT = "react"  # Action: name, Action Input: a JSON object
    ANNOUNCED = "announced"  # Action: and JSON, in a fence or without
    CHANNEL = "channel"  # commentary to=functions.name, a JSON object
    MESSAGES = "messages"  # Harmony: an answer is a row of messages


class Place(IntEnum):
    """Where something may begin, from the narrowest: at the start of a line, there or behind the end of a sentence,
    anywhere."""

    LINE = 0
    SENTENCE = 1
    ANYWHERE = 2


class Until(Enum):
    """How long the gate holds what has begun before it asks what it is."""

    ASKED = "asked"  # until the text says it: asked at the ends of lines, tags and brackets
    FIRST_CLOSES = "first_closes"  # until the first bracket of the start is closed
    LAST_CLOSES = "last_closes"  # until its last one is


@dataclass(frozen=True, slots=True)
class Start:
    """What the gate holds: `head`; with a `tail`, a declared name and the tail behind it."""

    head: str
    tail: str | None = None
    until: Until = Until.ASKED
    place: Place = Place.ANYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One row of the table; `formats.py` says what its columns are."""

    family: str
    examples: tuple[str, ...]
    reader: Reader | None
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    holds: tuple[Start, ...] | None = None
    place: Place = Place.ANYWHERE
    named: bool = False
    explicit: bool = False
    endless: bool = False
    compared: tuple[str, ...] = ()
    writes: tuple[str, str] = ("", "")

    @property
    def starts(self) -> tuple[Start, ...]:
        """What the gate holds."""
        return tuple(Start(opener) for opener in self.opens) if self.holds is None else self.holds
