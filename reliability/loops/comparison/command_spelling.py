"""The one spelling of a command: what agents change in it from lap to lap, although they mean the same, is left out.

- What tells of the run: a wait (`sleep 5`, `timeout 30`), an attempt (`RETRY=3`, `--retry 3`), a request's id, moment
  or cache-buster in a header, a query or a body, and what is only said (`echo attempt 3`).
- What says the same: quotes, `./`, `--`, the order of options, `2>&1`, `|| true`, filters at the end that only cut.
- The name of a log that the line itself writes and shows.

Invariants: a line that only says or waits is left as it is; a quoted word stays one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from reliability.loops.comparison.findings import dumps, parse
from reliability.loops.comparison.shell_commands import LINES_KEPT, Command, split_line, unquote
from reliability.loops.comparison.volatile_fields import MOMENT, word_set, words_of

_RUN = word_set("attempt attempts try retry retries tries iteration timeout wait delay ttl deadline maxtime")
#: A longer text is no waiting time.
RUN_CHARS = 16
_STAMPS = word_set("timestamp ts epoch now nonce")
_TRACED, _HANDLES = word_set("request req trace span correlation idempotency"), word_set("id uuid guid key")
#: Names of what a client adds to a request against caches and for traces; some only where the value is a moment.
_SENT = word_set("_ cb cachebuster nocache rand random bust traceparent tracestate")
_SENT_MOMENTS = word_set("t v r time date")

_LOG = "log"
_BRACKETS = word_set("( $( ) `")
_SAYS, _WAITS = word_set("echo printf"), word_set("true : clear sleep wait")
_CUTS, _PREFIXES = word_set("cat head tail less more"), word_set("command time nohup timeout")
#: What the shell reads otherwise inside of quotes.
_EXPANDED = re.compile(r"[$`*?~\\!]")
_OPTIONS = re.compile(r"-[a-zA-Z]{1,16}")
_LEFT_OUT = word_set("-- --no-pager . ./")
_NAME = re.compile(r"-{0,2}[a-zA-Z_][\w-]*")
_NUMBER = re.compile(r"-*[a-z]?\d+(?:\.\d+)?[a-z]?")
_HERE = re.compile(r"(?<![\w./])(?:(?:\.|\$PWD|\$\{PWD\})/)+(?=[\w.])")
_BIN = re.compile(r"(?:/usr)?(?:/local)?/s?bin/(?=\w)")
_LOG_NAME = re.compile(r"(?:/tmp|/var/tmp|/dev/shm|\$TMPDIR)/.+|.+\.(?:log|out|err)")
_FIELD = re.compile(r"(?<=[?&])([\w.-]+)=([^&\s#'\"]*)&?")
_HEADER = re.compile(r"([\w-]+): *(.*)")


def tells_run(name: str, value: Any) -> bool:
    """Return whether an argument or a variable of this name tells of the run: how long to wait, which attempt, request
    or moment it is."""
    words = words_of(name)
    if not _RUN.isdisjoint(words) or words == ("max", "time"):
        return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= RUN_CHARS)
    return not _STAMPS.isdisjoint(words) or (not _HANDLES.isdisjoint(words[-1:]) and not _TRACED.isdisjoint(words))


def tells_request(name: str, value: Any) -> bool:
    """Return whether a header or a field of a query tells of the run, or only makes the request unlike others."""
    plain = name.lower().replace("-", "").removeprefix("x").replace("_", "") or "_"
    moment = plain in _SENT_MOMENTS and MOMENT.fullmatch(str(value)[:80]) is not None
    return plain in _SENT or moment or tells_run(name, value)


def spell_query(text: str) -> str:
    """Leave out of an address what its query says of the run."""
    if "?" not in text:
        return text
    return _FIELD.sub(lambda field: "" if tells_request(field[1], field[2]) else field[0], text).rstrip("?&")


def spell_path(path: str) -> str:
    """Leave out of a path what says that it is in this folder, or that it is one."""
    return _HERE.sub("", path).rstrip("/") or path


def is_run_header(text: Any) -> bool:
    """Return whether the text is a header that tells of the run."""
    header = _HEADER.fullmatch(text) if isinstance(text, str) else None
    return header is not None and tells_request(header[1], header[2])


@lru_cache(LINES_KEPT)
def spell_command(line: str) -> str:
    """Return the one spelling of a line of commands."""
    commands = list(split_line(line))
    logs = _find_logs(line, commands)
    spelled: list[str] = []
    before = ""
    for command in commands:
        words = [_LOG if word.lstrip(">") in logs else word for word in _read_words(command)]
        if words and not _adds_nothing(words, before, command.end):
            spelled += [before] * bool(spelled and before) + _spell_words(words)
        before = ";" if command.end in ("&&", "\n") else command.end
        if before in _BRACKETS:
            spelled.append(before)
            before = ""
    return " ".join(spelled) or line


def _read_words(command: Command) -> list[str]:
    """Read a command's words, and behind them the files that it reads and (with `>`) writes."""
    words = [word if _EXPANDED.search(word) else unquote(word) for word in command.words]
    return [*words, *(file if sign == "<" else sign + file for sign, file in command.files if file != "/dev/null")]


def _find_logs(line: str, commands: Sequence[Command]) -> set[str]:
    """Find the logs that the line writes and shows; a file whose content stands in the line is none."""
    logs: set[str] = set()
    for command in commands:
        name = command.words[0] if command.words else "echo"
        shown = name == "tee"
        written = command.words[1:] if shown else [file for sign, file in command.files if ">" in sign]
        if name not in _SAYS | _CUTS:
            logs |= {file for file in written if _LOG_NAME.fullmatch(file) and (shown or line.count(file) > 1)}
    return logs


def _adds_nothing(words: list[str], before: str, end: str) -> bool:
    """Return whether a command only says something, waits, or cuts what it is fed."""
    name, arguments = words[0], words[1:]
    if name in _WAITS or words == ["cd", "."]:
        return True
    if end == "|" or end in _BRACKETS:
        return False
    if before == "|":
        cuts = name in _CUTS and all(word.startswith("-") or _NUMBER.fullmatch(word) for word in arguments)
        return cuts or (name == "tee" and arguments == [_LOG])
    return name in _SAYS and not any("$" in word or "`" in word or word.startswith(">") for word in arguments)


def _spell_words(words: list[str]) -> list[str]:
    while len(words) > 1 and (words[0] in _PREFIXES or _assigns_run(words[0])):
        words = words[1:]
        while len(words) > 1 and (words[0].startswith("-") or _NUMBER.fullmatch(words[0])):
            words = words[1:]
    spelled = [_BIN.sub("", words[0])]
    for word in _list_lasting(words):
        options = word[1:] if _OPTIONS.fullmatch(word) else ""
        if options and _OPTIONS.fullmatch(spelled[-1]):
            options += spelled.pop()[1:]
        spelled.append("-" + "".join(sorted(options)) if options else word)
    return [f"'{word}'" if any(map(str.isspace, word)) else word for word in spelled]


def _list_lasting(words: list[str]) -> Iterator[str]:
    """List the arguments of a command that don't tell of the run, nor are left out by some."""
    skipped = False
    for word, following in zip(words[1:], [*words[2:], ""], strict=False):
        header = word in ("-H", "--header") and is_run_header(following)
        option = word.startswith("--") and _NUMBER.fullmatch(following) is not None and tells_run(word, following)
        if skipped or header or option:
            skipped = header or option
        elif word not in _LEFT_OUT and not _assigns_run(word):
            yield _spell_word(word)


def _assigns_run(word: str) -> bool:
    name, given, value = word.partition("=")
    return bool(given) and _NAME.fullmatch(name) is not None and tells_run(name, value)


def _spell_word(word: str) -> str:
    known, body = parse(word) if word.startswith("{") else (False, None)
    if known and isinstance(body, dict):
        return dumps({key: value for key, value in body.items() if not tells_request(key, value)})
    return spell_query(word) if "://" in word else spell_path(word)
