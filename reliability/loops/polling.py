"""Who may repeat itself: pollers wait for the world, pagers move through it.

Three things make a call a poll: the configuration says so; its name does (`job_poll`, `wait_for_ci`,
`scroll_down`); or the call itself does (a shell command that sleeps, an empty command that only reads on,
`action: poll`). A result that says `status: running` makes the call a poll as well. Pollers have limits of
their own, far higher ones, and their results are compared as they are: a second more on the clock of a job is
progress.

A name that ends in `status` alone is no poll: `get_flight_status` asked five times is a loop like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from reliability.loops.canonical import parse
from reliability.loops.findings import Call, Result
from reliability.loops.same_result import is_ongoing
from reliability.loops.volatile_fields import word_set, words_of

__all__ = ["is_generic_tool", "is_poll", "polls_by_name"]

_LAST = word_set("poll polling wait await sleep progress watch tail scroll clock now datetime")
_FIRST = word_set("poll wait await sleep watch scroll tail")
_JOBS = "job task build run process command deployment deploy pipeline workflow"
_PAIRS = frozenset(
    [
        *((job, "status") for job in _JOBS.split()),
        *((job, "output") for job in word_set("read get bash task command process shell terminal")),
        *((verb, "result") for verb in ("get", "fetch", "await")),
        *((verb, way) for verb in ("page", "scroll") for way in ("down", "up")),
        *((verb, "page") for verb in ("next", "previous", "prev")),
        *((verb, "more") for verb in ("load", "read", "fetch", "show")),
        ("current", "time"),
        ("write", "stdin"),
    ]
)
_GENERIC = word_set(
    "bash shell sh terminal exec execute run command cmd console powershell python ipython jupyter code repl "
    "browser computer"
)
_WAITS = frozenset({"poll", "wait", "await", "sleep", "watch", "tail"})
_SLEEPS = re.compile(r"(?:^|[;&|(\s\"])sleep\s+\d", re.IGNORECASE)
_COMMAND_KEYS = ("command", "cmd", "input", "chars", "keys")
_ACTION_KEYS = ("action", "operation", "op", "mode")


def polls_by_name(name: str, declared: Iterable[str] = ()) -> bool:
    """Return whether the configuration or the name itself says that the tool waits, pages or tells the time."""
    if any(_matches(name, pattern) for pattern in declared):
        return True
    words = words_of(name)
    if not words:
        return False
    return words[-1] in _LAST or words[0] in _FIRST or not _PAIRS.isdisjoint(pairwise(words))


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def is_poll(call: Call, result: Result | None, declared: Iterable[str] = ()) -> bool:
    """Return whether this call, with this result, waits for the world or pages through it."""
    if polls_by_name(call.name, declared) or _waits(call):
        return True
    return result is not None and is_ongoing(result.text)


def _waits(call: Call) -> bool:
    known, arguments = parse(call.arguments)
    if not known or not isinstance(arguments, dict):
        return False
    if any(str(arguments.get(key)).lower() in _WAITS for key in _ACTION_KEYS):
        return True
    commands = [arguments[key] for key in _COMMAND_KEYS if isinstance(arguments.get(key), str)]
    if not commands or not is_generic_tool(call.name):
        return False
    return any(_SLEEPS.search(command) for command in commands) or not "".join(commands).strip()


def is_generic_tool(name: str) -> bool:
    """Return whether it is a shell, a code runner or a browser: with other arguments another tool."""
    return not _GENERIC.isdisjoint(words_of(name))
