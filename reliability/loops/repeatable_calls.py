"""Calls that may repeat: pollers wait for the world, pagers move through it, steps do something once more.

A call is a poll by the configuration, by its name (`job_poll`, `scroll_down`), by what it does (a command that sleeps
or asks another system how it stands; `action: poll`), or by its result, which says that something still goes on or is
locked, that one must come again later, or that nothing has come yet. What changes the world and answers with a state is
none: `queued` says that it is done. Where the result says that the job isn't there or has ended, nothing is waited for.

A step (six more in the cart, twelve lines down) is told from a repetition by its call, which names a step or anything
but reading, checking and editing a file (`acts`), and by its result, which is short, no failure and no refusal
(`leads_on`) or only says that it was done (`acknowledges`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from reliability.loops.comparison import tool_verbs as verbs
from reliability.loops.comparison.call_normalization import POINTS, names_place
from reliability.loops.comparison.findings import SeenCall, Turn, has_failed, is_number, parse, read_fields, refuses
from reliability.loops.comparison.same_result import UNDONE_FIELDS, is_ongoing
from reliability.loops.comparison.shell_commands import Deed, read_deed
from reliability.loops.comparison.volatile_fields import (
    MARKED,
    ONGOING_WORDS,
    names_state,
    phrase_set,
    word_set,
    words_of,
)
from reliability.loops.content import PersonsOrder
from reliability.loops.ended_jobs import has_stopped, tells_end
from reliability.loops.written import REPEATS, Copies

_WALKS = word_set("step next continue finish over into out n s c ni si fin stepi nexti")
_EDITS = word_set("edit editor replace write patch overwrite save apply rewrite str")
#: What is on stays on, and what was sent to a person was sent.
_SWITCHED = word_set("on off")
_ONCE = _SWITCHED | word_set("send reply email mail notify sms")
#: Where a shell or a terminal is told what to do.
_COMMAND_KEYS = ("command", "cmd", "input", "chars", "keys")
_TOLD_KEYS = frozenset({*_COMMAND_KEYS, "url"})
_CODE = re.compile(r"[\s(]")
_ACTION_KEYS = ("action", "operation", "op", "mode", "command", "cmd", "key", "type")
_ACTION_CHARS = 16  # a longer text is a command or a content, and names no step
#: A longer result shows a file or a page, and a figure in it is none of the call's doing.
_STEP_CHARS, _DONE_CHARS = 500, 80
#: Words that say no more than that it was done, and those that name the deed.
_DONE = word_set(
    "ok okay done success successful successfully succeeded true null none completed executed performed fertig "
    "erledigt hecho listo fait"
)
_DEEDS = word_set(
    "undone redone sent set put made drawn shown hit cut taken given thrown driven spun gone built sold bought eaten "
    "ran undid"
)
_NO_DEEDS = word_set(
    "need feed seed speed exceed proceed hundred limited expired crashed timed errored aborted disconnected "
    "interrupted terminated exhausted required expected exceeded prohibited completed executed performed succeeded "
    "queued enqueued accepted submitted scheduled dispatched"
)
_DEED = re.compile(r"[a-z]{3,20}ed")
#: Words beside it that tell of the log and not of the deed.
_LEVELS = word_set("info debug log notice result status output message")
_DONE_WORDS = 3
#: A step's report may be longer: the deed stands at its beginning, behind a subject or a heading, and code may follow.
_STEP_WORDS, _DEED_WITHIN = 10, 4
_SHOWN_CODE = re.compile(r"```.*?```", re.DOTALL)
#: Commands that are steps: a folder up, a touch of a phone's screen, a key.
_STEP_COMMAND = re.compile(
    r"\s*(?:(?:cd|pushd|popd)\b[ ./~-]*(?:&& ls)?"
    r"|(?:(?:adb (?:-s \S+ )?shell )?input|xdotool) (?:swipe|tap|key|keyevent|click)\b[^;&|\n]*)\s*"
)
#: So many rows are changed at once, until none is left.
_BATCH = re.compile(r"\s*(?:delete|update)\b.{1,2000}\blimit \d", re.IGNORECASE | re.DOTALL)
_ENTITY = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![a-z0-9])(?=\d{0,24}[a-f])(?=[a-f]{0,24}\d)[0-9a-f]{8,24}(?![a-z0-9])",
    re.IGNORECASE,
)
_ENTITY_LABEL_CHARS = 24


def is_generic_tool(call: SeenCall) -> bool:
    """Return whether it is a shell, a code runner or a browser: with other arguments another tool. Its name says
    nothing else (`run_command`, not `run_report`), or it is given a command, an address or code."""
    words = words_of(call.name)
    if verbs.GENERIC.isdisjoint(words) or verbs.find_verb(call.name) in verbs.LOOKS:
        return False
    texts = _read_texts(call)
    plain = (verbs.GENERIC | verbs.FILLERS).issuperset(verbs.split_tool(call.name))
    if plain or not texts.keys().isdisjoint(_TOLD_KEYS):
        return True
    return any(_CODE.search(texts.get(key, "")) for key in ("code", "script"))


def _read_texts(call: SeenCall) -> dict[str, str]:
    """Return the texts among a call's arguments, by name."""
    return {key: value for key, value in read_fields(call).items() if key and isinstance(value, str)}


def _name_actions(call: SeenCall, texts: dict[str, str]) -> set[str]:
    words = verbs.split_tool(call.name)
    verb, named = verbs.find_verb(call.name), {*words[:1], *(word for word in words[1:] if word not in verbs.SHELLS)}
    if verb in verbs.DOES:
        named -= verbs.READS | verbs.GENERIC | _EDITS | (_ONCE - _SWITCHED)
    named |= {verb} - {""}
    for key in _ACTION_KEYS:
        named.update(words_of(texts.get(key, "")) if len(texts.get(key, "")) <= _ACTION_CHARS else ())
    return named if named.isdisjoint(_SWITCHED) else named - {"turn"}


def acts(call: SeenCall) -> bool:
    """Return whether the call does something, of which a person may want more."""
    named = _name_actions(call, _read_texts(call))
    if not verbs.READS.isdisjoint(named):
        return "next" in named
    if not verbs.STEPS.isdisjoint(named):
        return True
    if not named.isdisjoint(verbs.SHELLS | _EDITS | _ONCE) or (is_generic_tool(call) and verbs.DOES.isdisjoint(named)):
        return False
    return bool(named) and not any(map(names_place, read_fields(call)))


def count_ordered(order: PersonsOrder, name: str, arguments: str = "") -> int:
    """Return how many equal calls of a tool within one answer the order asks for; 0: it doesn't say. "Press Tab 3
    times" orders as many of any tool, "Buy 4 tickets" as many of one that does something: to look three times within an
    answer gives the same three times."""
    return max(order.times, order.number) if acts(SeenCall(name, arguments)) else order.times


def limit_copies(order: PersonsOrder, tools: Iterable[str]) -> Copies:
    """Return how many equal calls of each of the tools are a loop under this order."""
    most = max(REPEATS, order.times + 1)
    more = max(most, order.number + 1)
    ordered = tuple(name for name in tools if acts(SeenCall(name))) if more > most else ()
    return Copies(most, more, ordered)


def walks(call: SeenCall) -> bool:
    """Return whether the call steps through a program in a debugger: in a loop of it the same lines come again."""
    named = words_of(call.name)
    if any(word.startswith("debug") for word in named) and not _WALKS.isdisjoint(named):
        return True
    texts = _read_texts(call)
    return any(texts[key].strip().lower() in _WALKS for key in (*_ACTION_KEYS, *_COMMAND_KEYS) if key in texts)


def leads_on(result: str | None) -> bool:
    """Return whether the result may be one of a step: short, no failure, no refusal."""
    if result is None or len(result) > _STEP_CHARS:
        return False
    return not has_failed(result) and not refuses(result)


def acknowledges(call: SeenCall, result: str) -> bool:
    """Return whether the call goes one step on, and its result says no more than that it was done."""
    texts = _read_texts(call)
    if not verbs.STEPS.isdisjoint(_name_actions(call, texts)):
        return len(result) <= _STEP_CHARS and _is_done(_SHOWN_CODE.sub("", result), _STEP_WORDS)
    if any(map(_BATCH.match, texts.values())):
        return leads_on(result) and re.search("[1-9]", result) is not None
    if not _is_done(result):
        return False
    if is_generic_tool(call):
        return any(_STEP_COMMAND.fullmatch(texts.get(key, "-")) for key in _COMMAND_KEYS)
    return acts(call) and any(map(_is_deed, words_of(result)))


def _is_done(result: str, words_max: int = _DONE_WORDS) -> bool:
    """Return whether a result says no more than that something was done, in so many words."""
    if len(result) > _DONE_CHARS:
        return False
    known, value = parse(result)
    items = value.values() if known and isinstance(value, dict) else [result]
    return all(item in (True, None, 0) or _says_done(item, words_max) for item in items)


def _says_done(text: Any, words_max: int) -> bool:
    if not isinstance(text, str):
        return False
    if not any(map(str.isalnum, text)):
        return True
    words = [word for word in words_of(text) if word not in _LEVELS]
    few = 0 < len(words) <= words_max and not refuses(text)
    return few and any(word in _DONE or _is_deed(word) for word in words[:_DEED_WITHIN])


def _is_deed(word: str) -> bool:
    """Return whether the word names what was done: `deleted`, `undone`."""
    return word in _DEEDS or (word not in _NO_DEEDS and bool(_DEED.fullmatch(word)))


def find_entities(text: str) -> frozenset[str]:
    """Find the random ids of what a step has made; one that names the request or the message is none."""
    found = _ENTITY.finditer(text[:_STEP_CHARS])
    labels = ((match[0], text[max(0, match.start() - _ENTITY_LABEL_CHARS) : match.start()]) for match in found)
    return frozenset(id for id, label in labels if MARKED.isdisjoint(words_of(label.rpartition(",")[2])))


_RESTS = frozenset({"wait", "await", "sleep"})
_WAITS = _RESTS | {"poll", "watch", "tail"}
_SIGHTS = verbs.READS | word_set("screenshot snapshot observe see context")
_SLEEPS = re.compile(r"(?:^|[;&|(\s\"])sleep\s+\d", re.IGNORECASE)
#: Tools that look whether something has come.
_RECEIVERS = word_set(
    "inbox mail mails email emails message messages notification notifications queue event events update updates "
    "receive listen alerts feed"
)
#: Verbs of tools that don't.
_SENDS = verbs.SETTLES - verbs.NOUNS - {"new"}
_NOTHING_YET = re.compile(
    r"\W*(?:(?:there (?:are|is) )?(?:no|0|zero)(?: new| unread| more| pending| further){0,2} (?:e?mails?|messages?|"
    r"notifications?|events?|updates?|alerts?|replies|items? in (?:the )?queue)"
    r"(?: yet| so far| available| found\b.{0,60}| match\w*.{0,60})?"
    r"|(?:nothing|none|no \w{1,20}|not \w{1,20})(?: new)? (?:yet|so far)|not (?:yet|ready|finished|done)"
    r"|0/[1-9]\d{0,5} (?:ready|running|available|done|complete)"
    r"|(?:inbox|queue) (?:is )?empty|still \w+.{0,40}|please wait.{0,40}|(?:try|check) again (?:later"
    r"|soon|in)\b.{0,40})\W*",
    re.IGNORECASE,
)
_EMPTY_FIELDS = re.compile(r'\{(?:\s*"\w{1,40}"\s*:\s*(?:\[\s*\]|0|null|\{\s*\})\s*,?){1,8}\s*\}')
#: How far a job is, and not yet all of it, and nothing else; the field that says so, and tools that ask for a job.
_PARTWAY = re.compile(
    r"(?P<named>\W*progress)?\W*(?:\d{1,2}(?:\.\d{1,9})? ?%|(?P<part>\d{1,9}) ?(?:/|(?:out )?of) ?(?P<whole>\d{1,9}))"
    r"(?P<done> (?:done|completed?|finished|ready|processed))?\W*",
    re.IGNORECASE,
)
_PARTWAY_KEY = re.compile(r"progress|completion|(?:percent|pct)(?:age)?_?(?:complete|done)", re.IGNORECASE)
_JOBS = word_set("status state job task build run deploy deployment download upload import export")
#: A query that writes rows.
_ROWS = re.compile(
    r"\s*(?:insert into \S+\s*(?:\(|(?:values|select|default)\b)|delete from \S+ where\b|update \S+ set\b)",
    re.IGNORECASE,
)
_CHANGES = verbs.CHANGES - verbs.NOUNS
#: What only a tool carries that changes the world: what it answers is no state to wait for.
_CARRIED = word_set("body subject amount recipient recipients comment")
#: A result that is one of these says how a job stands, and nothing else.
_STANDS = ONGOING_WORDS | phrase_set("pending|accepted|scheduled|submitted|dispatched")
_LOCKED = re.compile(
    r"could not get lock|unable to acquire the \S{1,20} ?(?:frontend )?lock|blocking waiting for file lock"
    r"|error acquiring the state lock|waiting for (?:the )?(?:cache |file |state )?lock",
    re.IGNORECASE,
)
_LOCK_CHARS, _COME_AGAIN_CHARS = 2_000, 400
_COME_AGAIN = re.compile(
    r"(?:^|http|status|code|error)\W{0,6}(?:429|503)\b|too many requests|rate[ _-]?limit|retry[ "
    r"_-]?after|temporarily unavailable|service unavailable"
    r"|quota exceeded|server is busy|overloaded|try again (?:later|in \d)",
    re.IGNORECASE,
)
_ASKS_STATE = word_set("poll output result status stdin")


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def is_poll(call: SeenCall, result: str | None, declared: Iterable[str] = ()) -> bool:
    """Return whether this call, with this result, waits for the world or pages through it."""
    if any(_matches(call.name, pattern) for pattern in declared):
        return True
    texts = _read_texts(call)
    waits = any(texts.get(key, "").lower() in _WAITS for key in _ACTION_KEYS)
    if verbs.polls_by_name(call.name) or (waits and verbs.find_verb(call.name) not in verbs.SETTLES):
        return result is None or not _is_over(call, texts, result)
    waits = _waits(call)
    if waits or result is None:
        return waits and not has_stopped(result or "")
    goes_on = is_ongoing(result) or names_state(result, _STANDS) or _is_partway(call, result)
    return (goes_on and not changes(call)) or _says_later(call, result)


def rests(call: SeenCall) -> bool:
    """Return whether the call lets time pass."""
    waits = not _RESTS.isdisjoint(_name_actions(call, _read_texts(call))) or _SLEEPS.search(call.arguments)
    return bool(waits) and is_poll(call, None)


def looks(call: SeenCall, result: str | None) -> bool:
    """Return whether the call only looks, and what it looks at is neither gone nor has ended."""
    texts = _read_texts(call)
    named = _name_actions(call, texts)
    sees = is_generic_tool(call) or not named.isdisjoint(_SIGHTS | verbs.SHELLS)
    if result is None or not sees or not named.isdisjoint(_EDITS | verbs.STEPS | POINTS) or changes(call):
        return False
    return not _is_over(call, texts, result, looked=True)


def _is_over(call: SeenCall, texts: dict[str, str], result: str, *, looked: bool = False) -> bool:
    """Return whether a poll's result says that what it asks for isn't there, or has ended."""
    if is_ongoing(result) or _says_later(call, result):
        return False
    return tells_end(result, by_state=looked or not _ASKS_STATE.isdisjoint(_name_actions(call, texts)))


def _is_partway(call: SeenCall, result: str) -> bool:
    """Return whether a tool that looks says how far something is, hardly anything else, and that it isn't done."""
    words = words_of(call.name)
    if verbs.find_verb(call.name) not in verbs.READS or len(result) > _DONE_CHARS:
        return False
    known, value = parse(result)
    if known and isinstance(value, dict):
        named = [item for key, item in value.items() if _PARTWAY_KEY.search(key)]
        return len(value) <= UNDONE_FIELDS and any(_says_partway(item, named=True) for item in named)
    return _says_partway(value if isinstance(value, str) else result, named=not _JOBS.isdisjoint(words))


def _says_partway(item: Any, *, named: bool) -> bool:
    if not isinstance(item, str):
        return is_number(item) and 0 <= item < 100 and item != 1
    found = _PARTWAY.fullmatch(item)
    if found is None or not (named or found["named"] or found["done"]):
        return False
    return found["part"] is None or int(found["part"]) < int(found["whole"])


def changes(call: SeenCall) -> bool:
    """Return whether the call changes the world: the verb of its name says so, what it carries, or its command."""
    verb = verbs.find_verb(call.name)
    if verb in verbs.CHANGES or (verb in verbs.DOES and not _CHANGES.isdisjoint(verbs.split_tool(call.name))):
        return True
    carries = verb not in verbs.READS and not _CARRIED.isdisjoint(read_fields(call))
    if carries or any(map(_ROWS.match, _read_texts(call).values())):
        return True
    return any(read_deed(command) is Deed.ACTS for command in list_commands(call))


def _waits(call: SeenCall) -> bool:
    """Return whether its command sleeps, asks another system how it stands, or says nothing to a terminal."""
    commands = list_commands(call)
    deeds = set(map(read_deed, commands))
    if Deed.ACTS in deeds:
        return False
    if Deed.ASKS in deeds or any(map(_SLEEPS.search, commands)):
        return True
    return bool(commands) and not "".join(commands).strip()


def list_commands(call: SeenCall) -> list[str]:
    """List the commands that a shell or a terminal is given; none of another tool."""
    fields = read_fields(call) if is_generic_tool(call) else {}
    found = (_read_command(fields[key]) for key in _COMMAND_KEYS if key in fields)
    return [command for command in found if command is not None]


def list_shell_commands(turn: Turn) -> list[str]:
    """List the commands of a turn that only tells a shell what to do."""
    commands = ["".join(list_commands(call)[:1]) for call in turn.calls]
    return commands if all(commands) else []


def _read_command(told: Any) -> str | None:
    if isinstance(told, list) and all(isinstance(word, str) for word in told):
        told = told[-1] if told[1:2] in (["-c"], ["-lc"]) else " ".join(told)
    return told.strip() if isinstance(told, str) else None


def _says_later(call: SeenCall, text: str) -> bool:
    """Return whether the result says that there is nothing yet, or that one must come again later."""
    said = text.strip()
    if len(said) > _COME_AGAIN_CHARS:
        return len(said) <= _LOCK_CHARS and _LOCKED.search(said) is not None
    if _LOCKED.search(said) or _COME_AGAIN.search(said) or _NOTHING_YET.fullmatch(said):
        return True
    empty = not any(map(str.isalnum, said)) or bool(_EMPTY_FIELDS.fullmatch(said))
    return empty and not _RECEIVERS.isdisjoint(words_of(call.name)) and verbs.find_verb(call.name) not in _SENDS
