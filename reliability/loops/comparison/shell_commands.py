"""What a line of shell commands does: it asks how another system stands, it acts, or neither is known.

A line asks if one of its commands asks and every other only looks or prepares (`cd`, `export`, a filter). Variables,
keywords, and commands that run another one (`sudo`, `ssh host`, `docker exec`, `bash -c`) say nothing of what it does.

Invariant: a line beyond `LINE_CHARS`, or nested deeper than `DEPTH_MAX`, neither asks nor acts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from reliability.loops.comparison.volatile_fields import word_set

LINE_CHARS, DEPTH_MAX, LINES_KEPT = 4_000, 4, 1_024


class Deed(Enum):
    """What a command does."""

    ASKS = 1
    LOOKS = 2  # or prepares: it changes nothing outside of its shell
    ACTS = 3
    UNKNOWN = 4


class Command(NamedTuple):
    """One command of a line: its words as they are written, the files that it reads and writes, each behind its sign,
    and what ends it."""

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
    **dict.fromkeys(("nice", "watch"), ("n", 0)),
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
RUNNER_WORDS = max(len(name.split()) for name in _RUNNERS)
_LOOKS = word_set(
    "cd pushd popd export unset set source . echo printf true false : date clear test [ [[ ulimit mkdir shopt local "
    "declare for in done fi case esac break continue exit return cat head tail less grep egrep rg wc sort uniq cut tr "
    "jq yq awk column nl ls pwd which type hostname whoami id read sleep wait Set-Location "
    "tee df du free stat file ss netstat lsof dig nslookup"
)
_LOOKS_BY_VERB = re.compile(
    r"curl(?!.* (?:-[XdFT]|--request|--data|--form|--json|--upload)) "
    r"|git (?:status|log|diff|show|rev-parse)\b|sed (?!-i)",
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
    r"|git push\b|curl\b.* (?:-X|--request)[ =]?(?:POST|PUT|PATCH|DELETE)\b",
    re.DOTALL,
)


@lru_cache(LINES_KEPT)
def read_deed(line: str) -> Deed:
    """Return what a line of commands does."""
    deeds = list(_read_deeds(line, DEPTH_MAX)) if len(line) <= LINE_CHARS else [Deed.UNKNOWN]
    if Deed.ACTS in deeds:
        return Deed.ACTS
    if Deed.UNKNOWN in deeds:
        return Deed.UNKNOWN
    return Deed.ASKS if Deed.ASKS in deeds else Deed.LOOKS


def split_line(line: str) -> Iterator[Command]:
    """Split a line into its commands."""
    words: list[str] = []
    files: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(line):
        if token["end"]:
            yield Command(words, files, token["end"])
            words, files = [], []
        elif token["file"]:
            files.append((token["sign"], unquote(token["file"])))
        elif not token["none"]:
            words.append(token[0])
    yield Command(words, files, "")


def unquote(word: str) -> str:
    """Return a word without its quotes."""
    return _QUOTES.sub(lambda quoted: quoted[1] or quoted[2] or quoted[3] or "", word)


def _read_deeds(line: str, depth: int) -> Iterator[Deed]:
    if not depth:
        yield Deed.UNKNOWN
        return
    filters = False
    for words, _files, end in split_line(line):
        for word in words:
            for inner in _INNER.finditer(word) if '"' in word else ():
                yield from _read_deeds(inner[1] or inner[2] or "", depth - 1)
        deeds = list(_read_command([unquote(word) for word in words], depth))
        # What a pipe feeds only filters: it asks nobody.
        yield from (Deed.LOOKS if filters and deed is Deed.ASKS else deed for deed in deeds)
        filters = end == "|"


def _read_command(words: list[str], depth: int) -> Iterator[Deed]:
    start = 0
    while start < len(words) and (words[start] in _KEYWORDS or _ASSIGNS.match(words[start])):
        start += 1
    words = words[start:]
    if words and words[0].startswith("/"):
        words[0] = words[0].rpartition("/")[2]
    for size in range(RUNNER_WORDS, 0, -1):
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
        yield Deed.LOOKS if words[0] in _LOOKS or _LOOKS_BY_VERB.match(command) else Deed.UNKNOWN


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
