"""Numbers of what runs (`session_id`, `pid`) that nobody has told: a model that has lost its way writes to process 1.

Told is a number that the user or a result has named, but in the words that there is no such thing. A number of one or
two digits stands everywhere: it must stand behind the word for what it numbers. Names aren't looked at: a client may
leave it to the model to choose them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reliability.steps import Steps
from reliability.tool_calls import Flaws, Uncertainty, Violation, join
from reliability.tools.check.complaints import find_shell
from reliability.tools.check.placeholder_forms import split_words
from reliability.tools.check.placeholders import CHARS_A_STEP
from reliability.tools.schema.toolbox import Tool, ToolBox

_LINE_CHARS = 200  # read of a line, on both sides
_NUMBER_MAX = 10**15
_RUN = frozenset({"session", "process", "shell", "bash", "terminal", "pid"})
_STARTS = frozenset({"create", "start", "open", "new", "launch", "spawn", "begin", "connect", "register"})
_DIGITS = re.compile(r"[0-9]{1,15}")
_LABEL = r"(?:session|process|shell|bash|terminal|p?id|number|nr|no)\W{0,6}"
_DENIES = re.compile(
    r"\b(?:unknown|no such|invalid|no (?:running|active)|not (?:found|running|exist)|n't exist|failed)\b", re.IGNORECASE
)


def find_untold(
    arguments: Mapping[str, Any], tool: Tool, i: int, box: ToolBox, conversation: Sequence[str] | None, steps: Steps
) -> list[Violation]:
    """Find the required numbers of running things, in the i-th call's arguments, that the conversation hasn't told.
    Raises `OutOfSteps`, unless the steps are final: then they pass."""
    if conversation is None or not _STARTS.isdisjoint(split_words(tool.name)):
        return []
    found: list[Violation] = []
    for key, number in _list_numbers(arguments, tool):
        wanted = sum(map(len, conversation)) // CHARS_A_STEP
        if steps.final and steps.left < wanted:
            break
        steps.spend(wanted)
        told = list(_read_mentions(number, conversation))
        if True in told or re.search(rf"\b{number}\b", json.dumps((tool.parameters.get("properties") or {}).get(key))):
            continue
        shell = find_shell(box)
        hint = f"; to run a command, call {shell!r}" if shell not in (None, tool.name) else ""
        doubt = Uncertainty.PLAIN if told else Uncertainty.SUSPECTED
        words = f"{number} is the {key} of nothing that runs{hint}"
        found.append(Violation(Flaws.PLACEHOLDER, join(i, "arguments", key), words, tool.name, doubt))
    return found


def _list_numbers(arguments: Mapping[str, Any], tool: Tool) -> Iterator[tuple[str, str]]:
    for key in tool.required:
        words, value = split_words(key), arguments.get(key)
        if words[-1:] not in (("id",), ("pid",)) or _RUN.isdisjoint(words):
            continue
        if isinstance(value, (int, float)) and 0 <= value < _NUMBER_MAX and value == int(value):
            value = str(int(value)) if not isinstance(value, bool) else None
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            yield key, value


def _read_mentions(number: str, conversation: Sequence[str]) -> Iterator[bool]:
    """Yield of each place that names the number whether it says that there is such a thing."""
    label = rf"(?<![a-z]){_LABEL}" if len(number) < 3 else r"(?<![\w.])"
    mention = re.compile(rf"{label}{number}(?!\w|[.,]\d)", re.IGNORECASE)
    for text in conversation:
        for match in mention.finditer(text):
            before = text[max(0, match.start() - _LINE_CHARS) : match.start()].rpartition("\n")[2]
            behind = text[match.end() : match.end() + _LINE_CHARS].partition("\n")[0]
            yield _DENIES.search(before + match[0] + behind) is None
