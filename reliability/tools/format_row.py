"""What a row of the table of call formats (`formats.py`) is made of, and the parts that several rows share: what a name
is, and a call of `search` with {"query": "x"} in its plainest forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}+"
# Between the `<` of a tag and its name, and behind its name: `minimax:`, `longcat_`, `ifm|`, `｜DSML｜` of DeepSeek and
# `｜GCML｜` of GigaChat 3.5; `:opensource`.
DSML = r" ?[|｜]{1,2} ?[A-Z]{2}ML ?[|｜]{1,2} ?"
SPACES_OF_TAGS = ("", r"\w{1,32}[:_]", r"\w{1,16}\|", DSML)
SUFFIX_OF_TAGS = r":\w{1,10}"
# Kimi K3 may lose marks between the first one of its tools and its call: `<|open|>toolscall tool=`.
K3_CALL = r"<\|open\|>[a-z<>|/ \n]{0,24}call tool="
# MiniMax M3 writes this token before each of its tags.
M3_TOKEN = r"\]<\]minimax\[>\["
JSON_CALL = '{"name": "search", "arguments": {"query": "x"}}'
PARAMETERS_CALL = '{"name": "search", "parameters": {"query": "x"}}'
ELEMENTS_CALL = "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>"
INVOKE_CALL = '<invoke name="search">\n<parameter name="query">x</parameter>\n</invoke>'
GEMMA_CALL = 'call:search{query:<|"|>x<|"|>}'
DSML_CALL = (
    '<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">x</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>"
)
M3_CALL = ']<]minimax[>[<invoke name="search">\n]<]minimax[>[<query>x]<]minimax[>[</query>\n]<]minimax[>[</invoke>'


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
    """Where something may begin: at the start of a line, there or behind the end of a sentence, anywhere."""

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
