"""Answers that a repeated request is given again: kept for a minute, in memory only.

A record is known by its API key, the route, and the request's name. The Router that answers it has its `ticket`; a
repeat that takes it over (its client left, or its Router is silent for `_ALIVE_S`) gets another one. `story` names the
text: it changes where the answer begins anew. Above a bound, the API key that holds the most loses its oldest record.
Invariants: no answer goes to another key or another body; no piece comes twice, and none is missing between two; no
call of an incomplete answer is delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from reliability.key_shares import KeyShares
from reliability.types import CallDelta, Finish, Reasoning, Refusal, Text

_NS_PER_S = 1_000_000_000
_KEPT_S = 60.0
_ALIVE_S = 3.0
_RECORDS_MAX = 4_000
_BYTES_MAX = 32 * 1024 * 1024
_PIECE_BYTES = 128  # what a piece takes beside its characters
_TIDY_EVERY_S = 1.0

_LAST = CallDelta | Refusal  # they leave when the answer is complete
Piece = Text | Reasoning | Refusal | CallDelta


class KeptName(NamedTuple):
    """What a record is known by. `name`: of the request, for its client."""

    key: str
    route: str
    name: str


class Standing(StrEnum):
    """How a record stands, or what is to become of it."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    DROPPED = "dropped"


class RepeatKind(StrEnum):
    """What a repeat has found."""

    ANEW = "anew"  # nothing that helps: the record is its own now, and begins anew
    OTHER_BODY = "other_body"
    REPLAY = "replay"  # it is finished
    FOLLOW = "follow"  # it runs: ask again
    CONTINUE = "continue"  # it had stopped, and is its own now
    LOST = "lost"  # the story that it follows is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEnd:
    """How an answer ended. `request_id`: of the request that was answered."""

    finish: Finish
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptItem:
    """What a Router reports of a record. `digest`: of the body, where it begins anew. `at`: how many pieces came before
    these. `written`: the tokens of the answer that are counted so far."""

    name: KeptName
    ticket: str
    digest: str | None = None
    at: int = 0
    pieces: tuple[Piece, ...] = ()
    tier: str = ""
    session: str = ""
    written: int = 0
    standing: Standing = Standing.RUNNING
    end: KeptEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptQuestion:
    """What has become of a request of this name? `ticket` is the asker's, `client` its Router; it has had `at` pieces
    of `story`. `anew`: it ignores one that runs. `continues`: it can continue a text."""

    name: KeptName
    digest: str
    ticket: str
    client: str
    story: str = ""
    at: int = 0
    anew: bool = False
    continues: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReply:
    """What has become of it. `pieces`: those after the ones that the asker has; of a call only where the answer is
    finished. `heard_ns`: when its Router spoke last."""

    found: RepeatKind
    story: str = ""
    pieces: tuple[Piece, ...] = ()
    tier: str = ""
    session: str = ""
    written: int = 0
    heard_ns: int = 0
    end: KeptEnd | None = None


@dataclass(slots=True, kw_only=True)
class _Record:
    """One answer. Its first ticket is its story's name; `last` is what a Router has reported of it last."""

    digest: str
    ticket: str
    story: str
    client: str
    changed_ns: int
    last: KeptItem
    pieces: list[Piece] = field(default_factory=list)
    size: int = _PIECE_BYTES


class KeptAnswers:
    """See the module. All moments are of one clock and never run backwards."""

    def __init__(self, records_max: int = _RECORDS_MAX, bytes_max: int = _BYTES_MAX) -> None:
        self._records_max, self._bytes_max = records_max, bytes_max
        self._records: dict[KeptName, _Record] = {}
        self._shares: KeyShares[KeptName] = KeyShares()  # by their bytes
        self._heard: dict[str, int] = {}
        self._tidied_ns = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return self._shares.held.total()

    def hear(self, client: str, now_ns: int) -> None:
        """Hear that a Router is alive."""
        self._heard[client] = now_ns
        if now_ns - self._tidied_ns >= _TIDY_EVERY_S * _NS_PER_S:
            self._tidied_ns = now_ns
            for name in [name for name, record in self._records.items() if self._is_old(record, now_ns)]:
                self._drop(name)
            self._heard = {who: at for who, at in self._heard.items() if now_ns - at < _KEPT_S * _NS_PER_S}

    def take(self, item: KeptItem, client: str, now_ns: int) -> None:
        """Take what a Router reports. The same again, or under an older ticket, changes nothing."""
        record = self._records.get(item.name)
        if item.digest is not None and (record is None or record.ticket != item.ticket):
            record = self._begin(item.name, item.digest, item.ticket, client, now_ns)
        if record is None or record.ticket != item.ticket:
            return
        if item.standing is Standing.DROPPED or item.at > len(record.pieces):
            self._drop(item.name)  # what has a gap can't be told again
            return
        pieces = item.pieces[len(record.pieces) - item.at :]
        record.pieces += pieces
        record.size += sum(map(size_of, pieces))
        record.last = item
        self._touch(item.name, record, now_ns)

    def ask(self, question: KeptQuestion, now_ns: int) -> KeptReply:
        """Answer what has become of a request. A stopped or missing one is the asker's from now on."""
        self.hear(question.client, now_ns)
        record = self._records.get(question.name)
        if record is not None and self._is_old(record, now_ns):
            self._drop(question.name)
            record = None
        if question.story and (record is None or record.story != question.story):
            return KeptReply(found=RepeatKind.LOST)
        if record is not None and record.digest != question.digest:
            return KeptReply(found=RepeatKind.OTHER_BODY)
        if record is not None and record.last.standing is Standing.FINISHED:
            return self._tell(RepeatKind.REPLAY, record, record.pieces[question.at :])
        silent_ns = 0 if record is None else now_ns - self._read_heard_ns(record)
        alive = record is not None and record.last.standing is Standing.RUNNING and silent_ns < _ALIVE_S * _NS_PER_S
        if record is not None and alive and not question.anew:
            before_calls = list(takewhile(lambda piece: not isinstance(piece, _LAST), record.pieces))
            return self._tell(RepeatKind.FOLLOW, record, before_calls[question.at :])
        if record is None or alive or not (question.continues and _can_go_on(record.pieces)):
            self._begin(question.name, question.digest, question.ticket, question.client, now_ns)
            return KeptReply(found=RepeatKind.ANEW)
        record.ticket, record.client = question.ticket, question.client
        record.last = replace(record.last, standing=Standing.RUNNING)
        self._touch(question.name, record, now_ns)
        return self._tell(RepeatKind.CONTINUE, record, record.pieces[question.at :])

    def _tell(self, found: RepeatKind, record: _Record, pieces: Sequence[Piece]) -> KeptReply:
        return KeptReply(
            found=found,
            story=record.story,
            pieces=tuple(pieces),
            tier=record.last.tier,
            session=record.last.session,
            written=record.last.written,
            heard_ns=self._read_heard_ns(record),
            end=record.last.end,
        )

    def _begin(self, name: KeptName, digest: str, ticket: str, client: str, now_ns: int) -> _Record:
        self._drop(name)
        last = KeptItem(name=name, ticket=ticket)
        record = _Record(digest=digest, ticket=ticket, story=ticket, client=client, changed_ns=now_ns, last=last)
        self._records[name] = record
        self._touch(name, record, now_ns)
        return record

    def _touch(self, name: KeptName, record: _Record, now_ns: int) -> None:
        """Note a change: it is the last one to go now. A large one makes room for itself."""
        record.changed_ns = now_ns
        self._shares.put(name.key, name, record.size)
        while self.size > self._bytes_max:
            self._drop(self._shares.find_oldest(self._shares.held))
        while len(self._records) > self._records_max:
            self._drop(self._shares.find_oldest())

    def _drop(self, name: KeptName) -> None:
        self._records.pop(name, None)
        self._shares.drop(name.key, name)

    def _read_heard_ns(self, record: _Record) -> int:
        return max(record.changed_ns, self._heard.get(record.client, 0))

    def _is_old(self, record: _Record, now_ns: int) -> bool:
        last_ns = self._read_heard_ns(record) if record.last.standing is Standing.RUNNING else record.changed_ns
        return now_ns - last_ns >= _KEPT_S * _NS_PER_S


def size_of(piece: Piece) -> int:
    """Return about how many bytes a piece takes."""
    if isinstance(piece, CallDelta):
        return _PIECE_BYTES + len(piece.id or "") + len(piece.name or "") + len(piece.arguments)
    return _PIECE_BYTES + len(piece.text.encode("utf-8", "surrogatepass"))


def _can_go_on(pieces: Sequence[Piece]) -> bool:
    """Return whether it has text to continue from: calls or a refusal that had left may be incomplete."""
    ended = any(isinstance(piece, _LAST) for piece in pieces)
    return not ended and any(isinstance(piece, Text) and piece.text.strip() for piece in pieces)
