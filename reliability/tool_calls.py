"""The nouns of tool calling: what came in, what was changed, what is wrong.

    RawCall     what a model wrote, native or as text: nothing is promised about it
    Checked     the verdict on all calls of one answer
    ToolCall    (`reliability.types`) a complete and valid call, the only one that may be delivered

A `Repair` is a change that loses nothing, a `Violation` a reason to refuse. Both say where, as JSON pointers that begin
with the index of the call: `/0/arguments/city`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from reliability.surrogates import join_surrogates
from reliability.types import ToolCall

UNDECLARED, HIDDEN = "is no declared tool", "a call of a declared tool stands under keys that no call has"
SHOWN, LOOSE = "it stands behind words that show it as an example", "a declared tool and its arguments, but no call"


class RepairKind(StrEnum):
    """What was changed. The value stands in reports and metrics."""

    FENCE = "fence"  # a code fence around the JSON was taken off
    EXTRA_TEXT = "extra_text"  # prose before or after one complete JSON value was taken off
    LITERAL = "literal"  # a Python or JavaScript literal was read as the JSON it spells
    ESCAPE = "escape"  # a raw control character, or a lone backslash, inside a string
    SURROGATE = "surrogate"  # half a character (a lone surrogate) became U+FFFD
    LAYOUT = "layout"  # line breaks or indentation between a parameter's tags and its text were taken off
    # An opening or closing tag, or the wrapper's own last brace, was missing; or the tags or the text of a native call
    # were left in the content.
    ENVELOPE = "envelope"
    EMPTY = "empty"  # "" or null as the arguments of a tool that requires none
    OBJECT = "object"  # the arguments came as an object instead of its JSON text
    DOUBLE_ENCODING = "double_encoding"  # JSON text where the schema wants an object, an array or a boolean
    BOOLEAN = "boolean"  # "true" or "false" where the schema wants a boolean
    NULL = "null"  # "null" where the schema takes null, and not this text
    ENUM_CASE = "enum_case"
    NULL_DROPPED = "null_dropped"  # null on an optional field that takes none
    DEFAULT = "default"  # a required argument that was left out and has a default in the schema
    NAME = "name"  # the tool's name was spelled in another way, or stood in a namespace
    ID = "id"  # a call's id was used before


class Flaws(StrEnum):
    """Why a call is refused. The value stands in reports and metrics."""

    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    SCHEMA = "schema"
    EMPTY = "empty"
    PLACEHOLDER = "placeholder"
    TOOL_CHOICE = "tool_choice"
    PARALLEL = "parallel"
    FORM = "form"  # the text isn't the JSON that `response_format` asks for


class Uncertainty(StrEnum):
    """How sure it is that a violation is one."""

    SUSPECTED = "suspected"  # it may as well be right: the model is believed that says it again
    PLAIN = "plain"  # it hardly is right: another model is believed, or one where there is no other


@dataclass(frozen=True, slots=True)
class Repair:
    """One lossless change."""

    kind: RepairKind
    path: str


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason to refuse, with its place. `message` is bounded and fit for a model. `doubt`: None where it is
    certain. What a model wrote as JSON may hold half a surrogate pair, and its words are quoted here: no half stays, so
    that a violation can always be shown, in an answer, a re-ask or a report."""

    kind: Flaws
    path: str
    message: str
    tool: str | None = None
    doubt: Uncertainty | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("path", "message", "tool"):
            text = getattr(self, name)
            if text:
                object.__setattr__(self, name, join_surrogates(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call as the model wrote it. `arguments` is JSON text (native calls) or a value already read from the text. The
    paths of `repairs` are relative to the call, since its index isn't known yet: `/arguments`."""

    name: str
    arguments: Any
    id: str | None = None
    format: str = "native"
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A piece of text that is a call by its looks and can't be read without loss."""

    raw: str
    reason: str
    format: str

    @property
    def doubt(self) -> Uncertainty | None:
        """How sure it is that this isn't the answer itself: what is shown, or stands in the open in no call's form."""
        if self.reason in (SHOWN, LOOSE):
            return Uncertainty.SUSPECTED
        return Uncertainty.PLAIN if self.reason.endswith((UNDECLARED, HIDDEN)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What one answer's text holds. `before` is the prose in front of the first call, `text` is all prose that is left.
    `behind` counts the calls behind the end of the answer's turn: they are dropped. `dropped`: so were marks that hold
    nothing. `unended`: a list of calls lacks its end, as the text does. Every character of the input is in `text`, in
    `reasoning`, in a call, in a `Malformed`, is framing of a known format, or stands behind the end of the answer's
    turn."""

    text: str
    before: str = ""
    reasoning: str = ""
    calls: tuple[RawCall, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    behind: int = 0
    dropped: bool = False
    unended: bool = False

    def refuse_list(self) -> Extraction:
        """Return this with its list of calls as cut off: others may have been to come."""
        cut = Malformed(raw="", reason="the list of calls was cut off", format=self.calls[-1].format)
        return replace(self, malformed=(*self.malformed, cut))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The verdict on all calls of one answer. `calls` is empty while any violation stands: all of them or none.
    `doubted`: the calls, where all that is said against them is that a value may not be meant."""

    calls: tuple[ToolCall, ...] = ()
    doubted: tuple[ToolCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def ok(self) -> bool:
        """True where everything may be delivered."""
        return not self.violations


def join(*parts: object) -> str:
    """Build a JSON pointer from its parts."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
