"""What a session remembers of its own answers, for clients whose histories shrink.

    request ─▶ ShownHistory ─┬▶ join_turns, find_kept_loop: the kept answers, then the shown ones, by `find_loop`
                             └▶ with the answer to it, keep_answer: what is kept from now on

The two are joined where the newest answer that is shown was kept. A shown result goes before a kept one; one that no
request has shown is taken for the one that the same call had before. A request that is sent again takes back what it
was answered before, unless a text agent's equal requests were answered more than `_RETRIES_MAX` times.

Invariants: the user re-arms, and a summary is none of the user's. `KEPT_MAX` answers and `CHARS_MAX` characters are
kept, a long result as its two ends, a digest of each piece between, and the pictures there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any

from reliability.loops.comparison.findings import PART, Loop, SeenCall, Turn, call_key, canonical, digest
from reliability.loops.content import Who, classify_speaker, drop_elements, text_of
from reliability.loops.history import find_loop
from reliability.loops.thresholds import LoopConfig
from reliability.loops.transcript import answer_turn
from reliability.loops.unseen_answers import Looked, read_looked

KEPT_MAX = 40
_RETRIES_MAX = 4
CHARS_MAX = 24_000
_RESULT_CHARS = 1_600
_HEAD_CHARS, _TAIL_CHARS = 500, 300
_PIECES = 32
_ARGUMENT_CHARS = 1_000
_READ_CHARS, _SUMMARY_CHARS = 32_000, 4_000
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_SUMMARY = re.compile(
    r"\bsummar(?:y|i[sz]e[ds]?|i[sz]ing)\b|\bcompact(?:ed|ion)\b|\bcondensed\b|<state_snapshot>"
    r"|\bzusammen(?:fassung|gefasst)\b|摘要|总结|總結|要約|요약"
    r"|\bcontinued from (?:a|the) previous\b|\b(?:conversation|progress|history|work) so far\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer of a session, with what is known to have come of it. `request` names what it answered, `task` the
    first message of that; `key` is what equal answers share. `times`: how often that request was answered like this."""

    turn: Turn
    key: str
    request: str = ""
    task: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class ShownHistory:
    """What a request shows of its session. `request` is its name, `task` names its first message. `newest`: its newest
    answer and the marks behind it. `spoken`: the user has spoken since; None where it shows no answer at all. `folded`:
    it ends with a summary. `complete` counts the answers shown with their results. `tools`: it declares tools;
    `looked`: see `read_looked`."""

    request: str
    task: str = ""
    newest: tuple[Turn, ...] = ()
    spoken: bool | None = None
    folded: bool = False
    complete: int = 0
    tools: bool = False
    looked: tuple[Looked, ...] = ()


def is_summary(content: Any) -> bool:
    """Tell whether a message seems to sum up what came before, or asks for that."""
    return _SUMMARY.search(drop_elements(text_of(content)[:_READ_CHARS])[:_SUMMARY_CHARS]) is not None


def read_shown(
    messages: Sequence[Any],
    turns: Sequence[Turn],
    request: str,
    config: LoopConfig,
    *,
    tools: bool = False,
    shared: bool = False,
) -> ShownHistory:
    """Read what a request of this name shows; `turns` are what `read_turns` has read of it. `tools`: it has some;
    `shared`: its session may be of many tasks."""
    answers = [index for index, turn in enumerate(turns) if not turn.continued]
    first = next((m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"), None)
    history = any(isinstance(m, dict) and m.get("role") == "assistant" for m in messages)
    folded = _ends_folded(messages)
    whole = all(None not in turn.results for turn in turns)
    return ShownHistory(
        request=request,
        task=digest(text_of(first)),
        newest=tuple(_shorten_turn(turn, config) for turn in turns[answers[-1] :]) if answers else (),
        spoken=(not answers and not folded) if history else None,
        folded=folded,
        complete=len(answers) if whole else 0,
        tools=tools,
        looked=read_looked(messages) if tools and not shared else (),
    )


def _ends_folded(messages: Sequence[Any]) -> bool:
    """Tell whether the user's last message is a summary, and stands behind all answers but such as acknowledge it."""
    for message in reversed(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            return False
        if message.get("tool_calls"):
            return False
        if message["role"] == "user" and classify_speaker(message) is Who.SPEAKS:
            return is_summary(message.get("content"))
    return False


def keep_answer(kept: tuple[Kept, ...], shown: ShownHistory, answer: Turn, config: LoopConfig) -> tuple[Kept, ...]:
    """Keep an answer to the request that shows this."""
    before = _still_valid(kept, shown)
    if shown.newest and not (shown.complete == 1 and _is_foreword(shown.newest[0], before, shown, config)):
        newest = [Kept(turn, _key_of(turn, config)) for turn in shown.newest]
        at = next((index for index in reversed(range(len(before))) if before[index].key == newest[0].key), None)
        if at is None:
            before = tuple(newest)
        else:
            known = replace(before[at], turn=_merge_results(newest[0].turn, before[at].turn))
            before = (*before[:at], known, *newest[1:])
    # As a later request will show it: its text may be a call to its client.
    answer = answer if answer.calls else answer_turn({"role": "assistant", "content": answer.text})
    short = _shorten_turn(answer, config)
    made = Kept(short, _key_of(short, config), shown.request, shown.task)
    if (twin := _find_twin(kept, shown)) is not None and twin.key == made.key:
        made = replace(made, times=twin.times + 1)
    return _bound((*before, made)[-KEPT_MAX:])


def join_turns(
    kept: tuple[Kept, ...], shown: ShownHistory, turns: Sequence[Turn], config: LoopConfig
) -> tuple[Turn, ...] | None:
    """Join what is kept and what the request shows, oldest first; None where the request shows all that is known."""
    before = _still_valid(kept, shown)
    if turns and _is_foreword(turns[0], before, None if any(turn.calls for turn in turns) else shown, config):
        turns = list(dropwhile(lambda turn: turn.continued, turns[1:]))
    places = [index for index, turn in enumerate(turns) if not turn.continued]
    if not before or (turns and not places):
        return None
    short = [_shorten_turn(turn, config) for turn in turns]
    end = _align(before, [_key_of(short[index], config) for index in places])
    if end is None:
        return None
    held = [index for index in range(end) if not before[index].turn.continued]
    overlap = min(len(held), len(places))
    joined, known = list(short), held[len(held) - overlap :]
    for index, at in zip(places[len(places) - overlap :], known, strict=True):
        joined[index] = _merge_results(joined[index], before[at].turn)
    older = [each.turn for each in before[: known[0] if known else end]]
    unseen = places[len(places) - overlap] if overlap and not older else 0
    filled = _fill_unknown([*older, *joined[unseen:]])
    twin = _find_twin(kept, shown)
    same = twin is not None and twin.key == _key_of(shown.newest[0], config)
    more = twin.times - _RETRIES_MAX if twin is not None and same and not filled[-1].continued else 0
    return (*joined[:unseen], *filled, *[filled[-1]] * min(more, KEPT_MAX))


def find_kept_loop(turns: Sequence[Turn] | None, config: LoopConfig, candidate: Turn) -> Loop | None:
    """Find the loop that joined turns are in, and that the candidate would continue."""
    return None if turns is None else find_loop(turns, config, _shorten_turn(candidate, config))


def _still_valid(kept: tuple[Kept, ...], shown: ShownHistory) -> tuple[Kept, ...]:
    """Return what of it came before this request and since the user last spoke."""
    if shown.spoken or not kept:
        return ()
    if shown.spoken is None and not shown.folded and kept[-1].task != shown.task:
        return ()
    again = next((index for index, each in enumerate(kept) if each.request == shown.request), len(kept))
    return kept[:again]


def _is_foreword(turn: Turn, before: tuple[Kept, ...], shown: ShownHistory | None, config: LoopConfig) -> bool:
    """Return whether these words, the first that a request shows, are its client's: this server never said them. With
    `shown` they are all it shows: it must begin as the kept ones do, or with a summary."""
    if not before or turn.calls or turn.continued:
        return False
    key = _key_of(turn, config)
    if any(each.request and each.key == key for each in before):
        return False
    return shown is None or shown.folded or shown.task == before[-1].task


def _find_twin(kept: tuple[Kept, ...], shown: ShownHistory) -> Kept | None:
    """Find the newest answer where it was one to this very request: it may be what the request shows as its newest."""
    newest = kept[-1] if kept else None
    return newest if newest is not None and newest.request == shown.request and shown.newest else None


def _align(kept: tuple[Kept, ...], keys: Sequence[str]) -> int | None:
    """Find where the newest of these answers was kept, as far back as both go alike: the place behind it."""
    places = [index for index, each in enumerate(kept) if not each.turn.continued]
    if not keys:
        return len(kept)
    for last in range(len(places) - 1, -1, -1):
        overlap = min(len(keys), last + 1)
        held = [kept[index].key for index in places[last + 1 - overlap : last + 1]]
        if held == list(keys[len(keys) - overlap :]):
            return places[last] + 1
    return None


def _merge_results(shown: Turn, kept: Turn) -> Turn:
    """Take the results that are shown, and the kept ones where none is."""
    if None not in shown.results or len(shown.results) != len(kept.results):
        return shown
    return _fill(shown, dict(zip(kept.calls, kept.results, strict=True)))


def _fill(turn: Turn, known: Mapping[SeenCall, str | None], missing: str | None = None) -> Turn:
    """Give each unknown result of a turn the one that is known of its call."""
    pairs = zip(turn.calls, turn.results, strict=True)
    return replace(turn, results=tuple(known.get(call, missing) if said is None else said for call, said in pairs))


def _fill_unknown(turns: Sequence[Turn]) -> list[Turn]:
    """Give each unknown result the one that the same call had before, else none at all."""
    last: dict[SeenCall, str | None] = {}
    filled: list[Turn] = []
    for turn in turns:
        filled.append(_fill(turn, last, missing=""))
        last.update(zip(turn.calls, filled[-1].results, strict=True))
    return filled


def _shorten_turn(turn: Turn, config: LoopConfig) -> Turn:
    """Shorten a turn to what is kept of it. What is short already stays as it is."""
    calls = list(turn.calls)
    for at, call in enumerate(calls):
        if len(call.arguments) > _ARGUMENT_CHARS:
            calls[at] = SeenCall(call.name, digest(canonical(call.arguments, config.ignored_arguments)))
    results = tuple(None if r is None else _shorten_text(r) for r in turn.results)
    text = "" if calls and not turn.written else _shorten_text(turn.text)
    return replace(turn, calls=tuple(calls), results=results, text=text)


def _shorten_text(text: str) -> str:
    if len(text) <= _RESULT_CHARS:
        return text
    middle = text[_HEAD_CHARS : len(text) - _TAIL_CHARS]
    size = -(-len(middle) // _PIECES)
    # In letters: digits may be no difference.
    pieces = [digest(middle[at : at + size]).translate(_LETTERS) for at in range(0, len(middle), size)]
    return "\n".join([text[:_HEAD_CHARS], *pieces, *PART.findall(middle), text[-_TAIL_CHARS:]])


def _key_of(turn: Turn, config: LoopConfig) -> str:
    if turn.continued:
        return "go on"
    if turn.calls:
        return digest(*sorted({call_key(call, config.ignored_arguments) for call in turn.calls}))
    return "text " + digest(" ".join(turn.text.rpartition("</think>")[2].split()))


def count_kept_chars(kept: Iterable[Kept]) -> int:
    """Count the characters that are kept."""
    return sum(_count_turn(each.turn) for each in kept)


def _count_turn(turn: Turn) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in turn.calls)
    return calls + len(turn.text) + sum(len(result) for result in turn.results if result is not None)


def _bound(kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    left = CHARS_MAX
    for index in range(len(kept) - 1, -1, -1):
        left -= _count_turn(kept[index].turn)
        if left < 0:
            return kept[index + 1 :]
    return kept
