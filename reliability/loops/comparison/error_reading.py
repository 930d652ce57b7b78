"""What the calls of a turn have failed with, as far as it says the same about other arguments (ERRORS).

What an error only repeats of its call is masked. An edit that fails changes nothing, so the figures of its error (a
line, how alike the text is) are masked, too, and so are its words read that no marker of a failure begins.

A shell that refuses everything answers ever other commands with the same words. A command says what only it can say,
and each fails for its own reason. So where programs as unlike as `npm` and `git` fail in the same words, and with them
one that never fails by itself (`pwd`, a bare `ls`), the shell is broken, or nobody has granted it. An exit code alone,
an empty result and words of success say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from reliability.loops.comparison import findings
from reliability.loops.comparison.call_normalization import ECHO, mask_echoes, says_done
from reliability.loops.comparison.findings import SeenCall, Turn, has_failed, refuses
from reliability.loops.comparison.near import mask_figures
from reliability.loops.comparison.tool_verbs import names_look, split_tool
from reliability.loops.comparison.volatile_fields import word_set

_ERROR_CHARS, _FIRST_CHARS = 2_000, 400
_ERROR_CHARS_MIN = 8  # an error shorter than this ("error") says too little to be the same error
LOOKUP = re.compile(
    r"\bnot (?:be )?found\b|\bno (?:such|(?:[\w-]+ ){0,2}match|results?)\b|\bdoes(?:n't| not) exist\b|\b(?:404|410)\b"
    r"|\bnot[ _]resolved?\b|\benotfound\b",
    re.IGNORECASE,
)
_EDITS = word_set("edit edits editor multiedit patch replace rewrite overwrite")
_APPLIES = frozenset({"apply", "diff"})
_TAG = re.compile(r"\s*<\w{1,40}>\s*")
_EDITED = re.compile(
    r"\b(?:edited|accepted|made|changed|modified|replaced|wrote|patched|inserted|formatted)\b", re.IGNORECASE
)


class Failure(NamedTuple):
    """The error of one tool, as it stands and masked."""

    tool: str
    text: str
    masked: str


def read_failure(turn: Turn) -> Failure | None:
    """Return what all calls of the turn failed with, where it is one tool and one error."""
    names = {call.name for call in turn.calls}
    if len(names) != 1:
        return None
    call, known = turn.calls[0], [result for result in turn.results if result is not None]
    edits = is_edit(call)
    failed = [result for result in known if has_failed(result) or (edits and _refuses_edit(call, result))]
    texts = {findings.error_text(result) for result in failed}
    if len(texts) != 1 or len(failed) < len(turn.results):
        return None
    text = texts.pop()
    if len(text) < _ERROR_CHARS_MIN:
        return None
    masked = mask_echoes(call, text)[:_ERROR_CHARS]
    masked = " ".join(masked.split()) if edits else masked
    return Failure(names.pop(), text[:_ERROR_CHARS], mask_figures(masked).replace(ECHO, "0") if edits else masked)


def is_edit(call: SeenCall) -> bool:
    """Return whether the call changes a part of a text: its name says so, and its action isn't to look."""
    words = set(split_tool(call.name))
    named = not _EDITS.isdisjoint(words) or words >= _APPLIES
    action = findings.read_fields(call).get("command") if named else ""
    return named and not any(names_look(name) for name in (call.name, action) if isinstance(name, str))


def _refuses_edit(call: SeenCall, result: str) -> bool:
    """Return whether the result of an edit begins with a refusal and doesn't say that anything was done."""
    text = mask_echoes(call, result.strip())[:_FIRST_CHARS]
    first = _TAG.sub("", text, count=1).partition("\n")[0]
    return (refuses(first) or bool(LOOKUP.search(first))) and not (says_done(text) or _EDITED.search(text))


#: Commands that answer in each system, where they are told no place and write to none.
_ANSWERS = re.compile(
    r"\s*(?:echo(?: [^<>|$`]*)?|(?:pwd|date|whoami|id|uname|hostname|uptime|env|printenv|df|ls|dir|ps|free|history)"
    r"(?: +(?:-[\w-]+|\.))*) *"
)
_COMMAND_CHARS = 200  # a longer one is a script
_PROGRAMS_MIN = 3
_STOPPED = re.compile(
    r"\b(?:time[ds]?[ -]?out|unavailable|no space|killed|closed|disabled|not granted)\b", re.IGNORECASE
)
#: Words that every failed command has in some shells.
_BARE = re.compile(
    r"\"?\b(?:the|shell|command|process|program|tool|execution|call|terminal|failed|error|with|return(?:ed)?|non-?zero"
    r"|exit(?:ed)?|code|status|exit_?code|output|std(?:out|err)|is_?error|success|true|false|null|no|empty)\b\"?",
    re.IGNORECASE,
)
_LETTERS_MIN = 6


def says_refusal(result: str) -> bool:
    """Return whether a shell's result says that it was no more than refused, or has failed, and in which words."""
    text = result[:_ERROR_CHARS]
    failed = has_failed(result) or refuses(text) or _STOPPED.search(text) is not None
    return failed and sum(map(str.isalpha, _BARE.sub("", text))) >= _LETTERS_MIN


def are_unlike(commands: Collection[str], least: int) -> bool:
    """Return whether so many commands are different ones, of different programs, one of which never fails by itself."""
    programs = {command.split()[0] for command in commands if command.strip()}
    enough = len(set(commands)) >= least and len(programs) >= _PROGRAMS_MIN
    return enough and any(map(_always_answers, commands))


def _always_answers(command: str) -> bool:
    return len(command) <= _COMMAND_CHARS and all(map(_ANSWERS.fullmatch, re.split("&&|;", command)))
