"""The copied answer: a weak model gives one request after the other the answer in words that an earlier one got.

    user: read part_11.txt …   assistant: The owner's name is Mira-433.
    user: read part_12.txt …   assistant: The owner's name is Mira-433.
    user: read part_13.txt …   -> "The owner's name is Mira-433." is a copy

No rule of the history sees it, since each request of the user's re-arms them. A copy is no more than nudged, since the
words may be right: the model must call a tool that only looks.

Invariants: the requests differ, and the newest names a place (a file, an address) that neither those before it nor the
answer names: what is thanked for, and what brings its own data (a price, a reading, a ticket), is answered alike. The
conversation is an agent's: it has called tools, or a harness has added its elements. One of its tools only looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from reliability.loops.comparison.findings import Kind, Loop, Stage, Turn, digest, summary
from reliability.loops.content import Who, classify_speaker, drop_elements, read_own_text
from reliability.loops.thresholds import LoopConfig
from reliability.tools.turns import HARNESS_TAGS

_MESSAGES_MAX = 64
_ANSWER_CHARS_MIN, _ANSWER_CHARS_MAX = 24, 4_000  # a shorter answer ("Done.", "Yes.") is right often.
_REQUEST_CHARS_MAX = 4_000
_WORD = re.compile(r"[\w./-]*\w")
_PLACE = re.compile(r"(?=[\d./_-]*[^\W\d_]).*\w[./_]\w")


def read_copied(messages: Sequence[Any], config: LoopConfig) -> str:
    """Return the answer that the requests before this one got, word for word and without a call, so many that this is
    the `duplicate_threshold`-th; "" where they got none such, or this one may be answered alike."""
    threshold = config.duplicate_threshold
    if threshold < 2 or not messages or messages[-1].get("role") != "user" or not _is_of_an_agent(messages):
        return ""
    rounds = list(_walk_rounds(messages, threshold))
    if len(rounds) < threshold:
        return ""
    (newest, _), *older = rounds
    answers = {answer for _, answer in older}
    answer = answers.pop()
    requests = [request for request, _ in older]
    if answers or not _ANSWER_CHARS_MIN <= len(answer) <= _ANSWER_CHARS_MAX or len({newest, *requests}) < threshold:
        return ""
    known = set().union(*map(_list_places, (answer, *requests)))
    return answer if _list_places(newest) - known else ""


def find_copy(copied: str, candidate: Turn, config: LoopConfig) -> Loop | None:
    """Find the loop that an answer is in which is the one in `copied` again."""
    if not copied or candidate.calls or _squeeze(candidate.text) != copied:
        return None
    kind, count, evidence = Kind.COPIES, config.duplicate_threshold, summary(copied)
    return Loop(kind=kind, stage=Stage.WARN, repetitions=count, evidence=evidence, key=digest(kind, evidence))


def _is_of_an_agent(messages: Sequence[Any]) -> bool:
    if any(message.get("tool_calls") or message.get("role") == "tool" for message in messages):
        return True
    said = "\n".join(read_own_text(message) for message in messages if message.get("role") == "user")
    return any(f"<{tag}>" in said for tag in HARNESS_TAGS)


def _walk_rounds(messages: Sequence[Any], most: int) -> Iterator[tuple[str, str]]:
    """Yield the newest rounds without a call: (what is asked, the answer in words); the first has no answer yet."""
    said: list[str] = []
    answer = ""
    for message in reversed(messages[-_MESSAGES_MAX:]):
        role = message.get("role")
        if role == "assistant":
            if said:
                yield "\n".join(said), answer
                most, said = most - 1, []
            elif answer:
                return
            answer = _squeeze(read_own_text(message))
            if most == 0 or message.get("tool_calls") or not answer:
                return
        elif role == "user" and classify_speaker(message) is Who.SPEAKS:
            said.insert(0, drop_elements(read_own_text(message)).strip()[:_REQUEST_CHARS_MAX])
        elif role == "tool":
            return
    if said:
        yield "\n".join(said), answer


def _list_places(text: str) -> set[str]:
    return {word for word in _WORD.findall(text) if _PLACE.match(word)}


def _squeeze(text: str) -> str:
    return " ".join(text.split())
