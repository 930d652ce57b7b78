"""A shell that refuses everything: ever other commands are answered with the same words of a failure.

A command says what only it can say, and each fails for its own reason. So where programs as unlike as `npm` and `git`
fail in the same words, and with them one that never fails by itself (`pwd`, a bare `ls`), the shell is broken, or
nobody has granted it. The nudge comes with the fourth such answer, the break at twice the threshold.

Invariant: an exit code alone, an empty result and words of success say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from reliability.loops.comparison.findings import has_failed, refuses

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
_LETTERS_MIN, _RESULT_CHARS = 6, 2_000


def says_refusal(result: str) -> bool:
    """Return whether a shell's result says that it was no more than refused, or has failed, and in which words."""
    text = result[:_RESULT_CHARS]
    failed = has_failed(result) or refuses(text) or _STOPPED.search(text) is not None
    return failed and sum(map(str.isalpha, _BARE.sub("", text))) >= _LETTERS_MIN


def are_unlike(commands: Collection[str], least: int) -> bool:
    """Return whether so many commands are different ones, of different programs, one of which never fails by itself."""
    programs = {command.split()[0] for command in commands if command.strip()}
    enough = len(set(commands)) >= least and len(programs) >= _PROGRAMS_MIN
    return enough and any(map(_always_answers, commands))


def _always_answers(command: str) -> bool:
    return len(command) <= _COMMAND_CHARS and all(map(_ANSWERS.fullmatch, re.split("&&|;", command)))
