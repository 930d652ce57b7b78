"""Calls that may repeat: pollers wait for the world, pagers move through it.

A call is a poll by the configuration, by its name (`job_poll`, `scroll_down`), by what it does (a command that sleeps
or asks another system how it stands, wherever it runs; `action: poll`), or by its result, which says that something
still goes on or is locked, that one must come again later, or that nothing has come yet. A name that ends in `status`
alone is no poll, nor is what changes the world and answers with a state: `queued` says that it is done.

A tool that only takes a note (`is_thought`) is no step between two equal calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from reliability.loops.comparison.findings import Result, SeenCall
from reliability.loops.comparison.same_result import is_ongoing
from reliability.loops.comparison.shell_commands import Deed, read_deed
from reliability.loops.comparison.volatile_fields import (
    NAMES_MAX,
    ONGOING_WORDS,
    names_state,
    phrase_set,
    word_set,
    words_of,
)
from reliability.loops.leading_steps import ACTION_KEYS, COMMAND_KEYS, READS, is_generic_tool, read_fields, read_texts

_LAST = word_set("poll polling wait await sleep progress watch tail scroll clock now datetime")
_FIRST = word_set("poll wait await sleep watch scroll tail")
_PAIRS = phrase_set(
    "job status|task status|build status|run status|process status|command status|deployment status|deploy status"
    "|pipeline status|workflow status|read output|get output|bash output|task output|command output|process output"
    "|shell output|terminal output|get result|fetch result|await result|page down|page up|scroll down|scroll up"
    "|next page|previous page|prev page|load more|read more|fetch more|show more|current time|write stdin"
)
_WAITS = frozenset({"poll", "wait", "await", "sleep", "watch", "tail"})
_SLEEPS = re.compile(r"(?:^|[;&|(\s\"])sleep\s+\d", re.IGNORECASE)
#: Tools that look whether something has come.
_RECEIVERS = word_set(
    "inbox mail mails email emails message messages notification notifications queue event events update updates "
    "receive listen alerts feed"
)
_NOTHING_YET = re.compile(
    r"\W*(?:(?:there (?:are|is) )?(?:no|0|zero)(?: new| unread| more| pending| further){0,2} (?:e?mails?|messages?|"
    r"notifications?|events?|updates?|alerts?|replies|items? in (?:the )?queue)(?: yet| so far| available)?"
    r"|(?:nothing|none|no \w{1,20}|not \w{1,20})(?: new)? (?:yet|so far)|not (?:yet|ready|finished|done)"
    r"|0/[1-9]\d{0,5} (?:ready|running|available|done|complete)"
    r"|(?:inbox|queue) (?:is )?empty|still \w+.{0,40}|please wait.{0,40}|(?:try|check) again (?:later"
    r"|soon|in)\b.{0,40})\W*",
    re.IGNORECASE,
)
#: Verbs of tools that change the world, and what only such a tool carries: what it answers is no state to wait for.
_CHANGES = word_set(
    "send submit transfer post create pay purchase buy publish cancel delete remove add insert upload deploy start "
    "stop restart trigger reply invite approve merge charge refund withdraw deposit register subscribe notify email"
)
_CARRIED = word_set("body subject amount recipient recipients comment")
#: A result that is one of these says how a job stands, and nothing else.
_STANDS = ONGOING_WORDS | phrase_set("pending|accepted|scheduled|submitted|dispatched")
_LOCKED = re.compile(
    r"could not get lock|unable to acquire the \S{1,20} ?(?:frontend )?lock|blocking waiting for file lock"
    r"|error acquiring the state lock|waiting for (?:the )?(?:cache |file |state )?lock",
    re.IGNORECASE,
)
LOCK_CHARS = 2_000
_COME_AGAIN = re.compile(
    r"(?:^|http|status|code|error)\W{0,6}(?:429|503)\b|too many requests|rate[ _-]?limit|retry[ "
    r"_-]?after|temporarily unavailable|service unavailable"
    r"|quota exceeded|server is busy|overloaded|try again (?:later|in \d)",
    re.IGNORECASE,
)
COME_AGAIN_CHARS = 400
_THOUGHTS = word_set(
    "think thinking thought thoughts reflect reflection sequentialthinking ponder brainstorm scratchpad"
)
_NOTES = phrase_set(
    "update plan|update todo|update todos|write plan|write todo|write todos|set plan|set todo|set todos|manage plan"
    "|manage todo|manage todos|revise plan|revise todo|revise todos|todo write|todo update|todos write|todos update"
    "|plan write|plan update|report progress|task progress|task tracker"
)


def polls_by_name(name: str, declared: Iterable[str] = ()) -> bool:
    """Return whether the configuration or the name itself says that the tool waits, pages or tells the time."""
    if any(_matches(name, pattern) for pattern in declared):
        return True
    words = words_of(name)
    if not words:
        return False
    return words[-1] in _LAST or words[0] in _FIRST or not _PAIRS.isdisjoint(map(" ".join, pairwise(words)))


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def is_poll(call: SeenCall, result: Result | None, declared: Iterable[str] = ()) -> bool:
    """Return whether this call, with this result, waits for the world or pages through it."""
    if polls_by_name(call.name, declared):
        return True
    texts = read_texts(call)
    if _waits(call, texts):
        return True
    if result is None:
        return False
    goes_on = is_ongoing(result.text) or names_state(result.text, _STANDS)
    return (goes_on and not _changes(call, texts)) or _says_later(call, result.text)


def _changes(call: SeenCall, texts: dict[str, str]) -> bool:
    """Return whether the call changes the world: the verb of its name says so, what it carries, or its command."""
    words = words_of(call.name)
    named = not (_CHANGES.isdisjoint(words) and _CARRIED.isdisjoint(read_fields(call)))
    if named and READS.isdisjoint(words):
        return True
    return any(read_deed(command) is Deed.ACTS for command in _list_commands(call, texts))


def _waits(call: SeenCall, texts: dict[str, str]) -> bool:
    if any(texts.get(key, "").lower() in _WAITS for key in ACTION_KEYS):
        return True
    commands = _list_commands(call, texts)
    deeds = set(map(read_deed, commands))
    if Deed.ACTS in deeds:
        return False
    return (
        Deed.ASKS in deeds or any(map(_SLEEPS.search, commands)) or (bool(commands) and not "".join(commands).strip())
    )


def _list_commands(call: SeenCall, texts: dict[str, str]) -> list[str]:
    return [texts[key] for key in COMMAND_KEYS if key in texts] if is_generic_tool(call.name) else []


def _says_later(call: SeenCall, text: str) -> bool:
    """Return whether the result says that there is nothing yet, or that one must come again later."""
    said = text.strip()
    if len(said) <= LOCK_CHARS and _LOCKED.search(said):
        return True
    if len(said) > COME_AGAIN_CHARS:
        return False
    if _COME_AGAIN.search(said) or _NOTHING_YET.fullmatch(said):
        return True
    empty = not any(map(str.isalnum, said)) or bool(_EMPTY_FIELDS.fullmatch(said))
    return empty and not _RECEIVERS.isdisjoint(words_of(call.name))


_EMPTY_FIELDS = re.compile(r'\{(?:\s*"\w{1,40}"\s*:\s*(?:\[\s*\]|0|null|\{\s*\})\s*,?){1,8}\s*\}')


def is_thought(call: SeenCall) -> bool:
    """Return whether the call only takes a note of what the model thinks or plans."""
    return takes_notes(call.name)


@lru_cache(NAMES_MAX)
def takes_notes(name: str) -> bool:
    """Return whether a tool of this name only takes notes."""
    words = words_of(name)
    return not _THOUGHTS.isdisjoint(words) or not _NOTES.isdisjoint(map(" ".join, pairwise(words)))
