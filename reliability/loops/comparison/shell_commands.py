"""A line of shell commands: what it does, and its one spelling.

It asks how another system stands, it acts, or neither is known (`read_deed`). A line asks if one of its commands asks
and every other only looks or prepares (`cd`, `export`, a filter). Variables, keywords, and commands that run another
one (`sudo`, `ssh host`, `docker exec`, `bash -c`) say nothing of what it does. What writes a file doesn't only look,
unless it keeps what another system was asked.

No place in its spelling (`spell_command`) has what tells of the run (a wait, an attempt, a request's id, moment or
cache-buster, and what is only said), what says the same (quotes, `./`, `--`, the order of options, `2>&1`, `|| true`,
filters at the end that only cut), and the name of a log that the line itself writes and shows.

Invariants: a line beyond `_LINE_CHARS`, or nested deeper than `_DEPTH_MAX`, neither asks nor acts. A line that only
says or waits is spelled as it is; a quoted word stays one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import dropwhile
from typing import Any, NamedTuple

from reliability.loops.comparison.findings import dumps, parse
from reliability.loops.comparison.volatile_fields import MOMENT, word_set, words_of

_LINE_CHARS, _DEPTH_MAX, _LINES_KEPT = 4_000, 4, 1_024


class Deed(Enum):
    """What a command does."""

    ASKS = 1
    LOOKS = 2  # or prepares: it changes nothing outside of its shell
    ACTS = 3
    UNKNOWN = 4


class _Command(NamedTuple):
    """One command of a line: its words as they are written, (sign, file) of its redirections, and what ends it."""

    words: list[str]
    files: list[tuple[str, str]]
    end: str


#: A word, what ends a command, a redirection, or none of them: white space, a comment, a copied handle.
_TOKEN = re.compile(
    r"(?P<none>[ \t\r]+|\\\n|(?<!\S)#[^\n]*|\d?[<>]{1,2}&\d)"
    r"|(?:\d|&)?(?P<sign>[<>]{1,2})[ \t]*(?P<file>'[^']*'|\"[^\"]*\"|[^\s<>();|&'\"]+)"
    r"|(?P<end>&&|\|\||\$?\(|[;\n|&()`])"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\$(?!\()|[^\s;&|()`'\"\\$<>])+)|(?P<other>.)",
    re.DOTALL,
)
_QUOTES = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
#: A command in the double quotes of another.
_INNER = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_ASSIGNS = re.compile(r"[A-Za-z_]\w{0,60}=")
_KEYWORDS = word_set("if then elif else while until do ! { }")
#: Commands that run another one: the options that take a value, and how many words stand before that command.
_RUNNERS = {
    **dict.fromkeys(("nohup", "command", "setsid", "unbuffer", "time"), ("", 0)),
    **dict.fromkeys(("sudo", "doas"), ("ugpChDRTUrt", 0)),
    **dict.fromkeys(("bash", "sh", "zsh", "dash", "ksh"), ("oO", 0)),
    **dict.fromkeys(("docker exec", "podman exec", "docker compose exec", "docker-compose exec"), ("euw", 1)),
    **dict.fromkeys(("kubectl exec", "oc exec"), ("nc", 1)),
    **dict.fromkeys(("lxc exec", "tsh ssh", "gcloud compute ssh", "chroot", "su"), ("", 1)),
    **dict.fromkeys(("vagrant ssh", "nix-shell", "poetry run", "uv run", "script"), ("", 0)),
    "env": ("uCS", 0),
    "nice": ("n", 0),
    "watch": ("n", 0),
    "ionice": ("cnp", 0),
    "stdbuf": ("ioe", 0),
    "exec": ("a", 0),
    "nsenter": ("tSG", 0),
    "wsl": ("due", 0),
    "sshpass": ("pfe", 0),
    "timeout": ("ks", 1),
    "ssh": ("bcDEeFIiJLlmOopQRSWw", 1),
    "xargs": ("nIPLd", 0),
    "tmux send-keys": ("t", 0),
}
_RUNNER_WORDS = max(len(name.split()) for name in _RUNNERS)
_LOOKS = word_set(
    "cd pushd popd export unset set source . echo printf true false : date clear test [ [[ ulimit mkdir shopt local "
    "declare for in done fi case esac break continue exit return cat head tail less grep egrep rg wc sort uniq cut tr "
    "jq yq awk column nl ls pwd which type hostname whoami id read sleep wait Set-Location "
    "tee df du free stat file ss netstat lsof dig nslookup"
)
_LOOKS_BY_VERB = re.compile(r"(?:curl|sed|git (?:status|log|diff|show|rev-parse))\b")
#: Where a redirection writes no file.
_SINK = re.compile(r"/dev/(?:null|std(?:out|err)|tty|fd/\d)|nul|\$null", re.IGNORECASE)
#: A command that looks, told to write a file or to send something.
_WRITES = re.compile(
    rf"tee\b(?: -\S+)* (?!-|(?:{_SINK.pattern})(?!\S))|(?:sed|yq)\b.* (?:-[a-zA-Z]*i|--in-place)"
    r"|sort\b.* -[a-zA-Z]*o|(?:sort|curl|git)\b.* --output(?![= ](?:/dev/null|-)|-)"
    r"|awk\b.*\bprint[^;}]*(?:>|\| ?\")|curl\b.* (?:(?!-[a-zA-Z]{0,6}X ?(?:GET|HEAD)\b)-[a-zA-Z]*[XdFTO]"
    r"|-[a-zA-Z]*o(?! ?(?:/dev/null|-))|--(?:request(?![= ](?:GET|HEAD)\b)|data|form|json|upload|remote-name)"
    r"|\S+[?&][\w.]+=(?:on|off|toggle)\b)",
    re.DOTALL,
)
_OPTIONS = r"(?: --?[\w-]+(?:[= ](?!-)\S+)?){0,4}"
#: Commands that ask how another system stands; the word that says so stands where the command's verb stands.
_ASKS = re.compile(
    rf"(?:(?:kubectl|oc){_OPTIONS} (?:get|describe|rollout (?:status|history)|logs|top|wait|events)"
    rf"|helm{_OPTIONS} (?:status|list|ls|history)"
    rf"|gh{_OPTIONS} (?:run|pr|workflow|issue|release) (?:view|list|checks|status|watch)"
    r"|gh api(?!.* (?:-[XfF]|--method|--field|--raw-field|--input))"
    r"|glab (?:ci|mr|pipeline) (?:view|list|status|get|trace)"
    rf"|docker(?:[ -]compose)?{_OPTIONS}(?: compose{_OPTIONS})? (?:ps|logs|inspect|stats|top)"
    rf"|podman{_OPTIONS} (?:ps|logs|inspect|stats|top)"
    r"|squeue|sacct|qstat|bjobs|condor_q|jobs|ps|pgrep|nvidia-smi|top -b|uptime"
    rf"|systemctl{_OPTIONS} (?:status|is-active|is-failed|show|list-units)|service \S+ status|journalctl"
    rf"|aws{_OPTIONS} \S+{_OPTIONS} (?:describe|get|list|ls|wait)"
    r"|gcloud(?: (?!create|delete|update|deploy|start|stop|add|remove|set|reset|submit|patch)[\w=-]+){1,6}?"
    r" (?:describe|list|read)"
    rf"|az{_OPTIONS}(?: [a-z][\w-]*){{1,4}} (?:show|list)(?= -|$)"
    rf"|terraform{_OPTIONS} (?:show|state (?:list|show))|argocd app (?:get|wait|list)"
    r"|pg_isready|redis-cli ping|nc -z|ping|tail)(?![\w.])",
    re.IGNORECASE | re.DOTALL,
)
#: Commands each of which is known: what doesn't ask there acts.
_ACTS = re.compile(
    r"(?:kubectl|oc|helm|gh|glab|aws|gcloud|az|terraform|argocd|systemctl) (?!--?(?:help|version))"
    r"|git push\b|curl\b.* (?:-[a-zA-Z]*X|--request)[ =]?(?:POST|PUT|PATCH|DELETE)\b",
    re.DOTALL,
)


def read_deed(line: str) -> Deed:
    """Return what a line of commands does."""
    return _read_deed(line) if len(line) <= _LINE_CHARS else Deed.UNKNOWN


@lru_cache(_LINES_KEPT)
def _read_deed(line: str) -> Deed:
    deeds = set(_read_deeds(line, _DEPTH_MAX))
    return next((deed for deed in (Deed.ACTS, Deed.UNKNOWN, Deed.ASKS) if deed in deeds), Deed.LOOKS)


def _split_line(line: str) -> Iterator[_Command]:
    words: list[str] = []
    files: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(line):
        if token["end"]:
            yield _Command(words, files, token["end"])
            words, files = [], []
        elif token["file"]:
            files.append((token["sign"], _unquote(token["file"])))
        elif not token["none"]:
            words.append(token[0])
    yield _Command(words, files, "")


def _unquote(word: str) -> str:
    return _QUOTES.sub(lambda quoted: quoted[1] or quoted[2] or quoted[3] or "", word)


def _read_deeds(line: str, depth: int) -> Iterator[Deed]:
    if not depth:
        yield Deed.UNKNOWN
        return
    fed = asked = False
    for words, files, end in _split_line(line):
        for word in words:
            for inner in _INNER.finditer(word) if '"' in word else ():
                yield from _read_deeds(inner[1] or inner[2] or "", depth - 1)
        deeds = list(_read_command([_unquote(word) for word in words], depth))
        asked = asked if fed else Deed.ASKS in deeds
        if not asked and any(">" in sign and not _SINK.fullmatch(file) for sign, file in files):
            yield Deed.UNKNOWN
        # What a pipe feeds only filters, or keeps what it is fed: it asks nobody.
        kept = Deed.ASKS if not asked or words[:1] != ["tee"] else Deed.UNKNOWN
        yield from (Deed.LOOKS if fed and deed is kept else deed for deed in deeds)
        fed = end == "|"


def _read_command(words: list[str], depth: int) -> Iterator[Deed]:
    words = list(dropwhile(lambda word: word in _KEYWORDS or _ASSIGNS.match(word), words))
    if words and words[0].startswith("/"):
        words[0] = words[0].rpartition("/")[2]
    for size in range(_RUNNER_WORDS, 0, -1):
        runner = _RUNNERS.get(" ".join(words[:size])) if len(words) >= size else None
        if runner is not None:
            rest = _skip_options(words[size:], *runner)
            if not rest or not depth:
                yield Deed.UNKNOWN
            elif any(map(str.isspace, rest[0])):
                yield from _read_deeds(" ".join(rest), depth - 1)
            else:
                yield from _read_command(rest, depth - 1)
            return
    command = " ".join(words)
    if _ASKS.match(command):
        yield Deed.ASKS
    elif _ACTS.match(command):
        yield Deed.ACTS
    elif words:
        looks = words[0] in _LOOKS or _LOOKS_BY_VERB.match(command)
        yield Deed.LOOKS if looks and not _WRITES.match(command) else Deed.UNKNOWN


def _skip_options(words: list[str], valued: str, before: int) -> list[str]:
    """Return the words of the command that a runner runs, from behind the runner's own options and words."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--" and not before:
            return words[at:]
        if word.startswith("-"):
            takes = word[1:2] != "-" and word[-1] in valued
            if not takes and (word in {"--command", "--run"} or re.fullmatch(r"-\w*c", word)):
                return words[at : at + 1]
            at += takes and len(word) < 4
        elif before and word != "--":
            before -= 1
        else:
            return words[at - (word != "--") :]
    return []


_RUN = word_set("attempt attempts try retry retries tries iteration timeout wait delay ttl deadline maxtime")
_RUN_CHARS = 16  # a longer text is no waiting time
_STAMPS = word_set("timestamp ts epoch now nonce")
_TRACED, _HANDLES = word_set("request req trace span correlation idempotency"), word_set("id uuid guid key")
#: Names of what a client adds to a request against caches and for traces; some only where the value is a moment.
_SENT = word_set("_ cb cachebust cachebuster nocache rand random rnd bust traceparent tracestate")
_SENT_MOMENTS = word_set("t v r time date")

_LOG = "log"
_BRACKETS = word_set("( $( ) `")
_SAYS, _WAITS = word_set("echo printf"), word_set("true : clear sleep wait")
_CUTS, _PREFIXES = word_set("cat head tail less more"), word_set("command time nohup timeout")
#: What the shell reads otherwise inside of quotes.
_EXPANDED = re.compile(r"[$`*?~\\!]")
_FLAGS = re.compile(r"-[a-zA-Z]{1,16}")
_LEFT_OUT = word_set("-- --no-pager . ./")
_NAME = re.compile(r"-{0,2}[a-zA-Z_][\w-]*")
_NUMBER = re.compile(r"-*[a-z]?\d+(?:\.\d+)?[a-z]?")
_HERE = re.compile(r"(?<![\w./])(?:(?:\.|\$PWD|\$\{PWD\})/)+(?=[\w.])")
_STEPS = re.compile(r"(?<=/)(?:\.?/)+|(?:(?<=/)|^)(?!\.\.?/)[^/\s]+/\.\./")
_ANCHOR = re.compile(r"/?(?:#[\w-]{0,80})?$")
_BIN = re.compile(r"(?:/usr)?(?:/local)?/s?bin/(?=\w)")
_LOG_NAME = re.compile(r"(?:/tmp|/var/tmp|/dev/shm|\$TMPDIR)/.+|.+\.(?:log|out|err)")
_FIELD = re.compile(r"(?<=[?&])([\w.-]+)=([^&\s#'\"]*)&?")
_HEADER = re.compile(r"([\w-]+): *(.*)")


def tells_run(name: str, value: Any) -> bool:
    """Return whether an argument of this name tells of the run: a wait, an attempt, a request's id, a moment."""
    words = words_of(name)
    if not _RUN.isdisjoint(words) or words == ("max", "time"):
        return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _RUN_CHARS)
    return not _STAMPS.isdisjoint(words) or (not _HANDLES.isdisjoint(words[-1:]) and not _TRACED.isdisjoint(words))


def tells_request(name: str, value: Any) -> bool:
    """Return whether a header or a field of a query tells of the run, or only makes the request unlike others."""
    plain = name.lower().removeprefix("x-").replace("-", "").replace("_", "") or "_"
    moment = plain in _SENT_MOMENTS and MOMENT.fullmatch(str(value)[:80]) is not None
    return plain in _SENT or moment or tells_run(name, value)


def spell_query(text: str) -> str:
    """Leave out of an address what its query says of the run, a slash at its end, and the place on the page."""
    text = _ANCHOR.sub("", text, count=1)
    if "?" not in text:
        return text
    return _FIELD.sub(lambda field: "" if tells_request(field[1], field[2]) else field[0], text).rstrip("?&")


def spell_path(path: str) -> str:
    """Leave out of a path what says that it is in this folder, or that it is one."""
    return _STEPS.sub("", _HERE.sub("", path)).rstrip("/") or path


def is_run_header(text: Any) -> bool:
    """Return whether the text is a header that tells of the run."""
    header = _HEADER.fullmatch(text) if isinstance(text, str) else None
    return header is not None and tells_request(header[1], header[2])


@lru_cache(_LINES_KEPT)
def spell_command(line: str) -> str:
    """Return the one spelling of a line of commands."""
    commands = list(_split_line(line))
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


def _read_words(command: _Command) -> list[str]:
    """Read a command's words, and behind them the files that it reads and (with `>`) writes."""
    words = [word if _EXPANDED.search(word) else _unquote(word) for word in command.words]
    return [*words, *(file if sign == "<" else sign + file for sign, file in command.files if file != "/dev/null")]


def _find_logs(line: str, commands: Sequence[_Command]) -> set[str]:
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
        options = word[1:] if _FLAGS.fullmatch(word) else ""
        if options and _FLAGS.fullmatch(spelled[-1]):
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
