"""Whose request is this? The conversations that are known, followed by what they were answered.

    request ─▶ find ─┬▶ shows an answer of ours          the conversation that was given it
                     ├▶ shows no answer, but a summary   the conversation that waits, or whose words are quoted
                     ├▶ shows none, but has grown        the conversation that began with the beginning of its prompt
                     ├▶ begins as one that got no answer that one: a retry (a first request: for `_RETRY_NS` only)
                     └▶ else                             a new one
    outcome ─▶ answer: what left, or that nothing did

An answer is known by several digests (`trail`), and the strongest one that is known decides; weak ones count only where
a conversation stands at that answer and waits. Of runs that are equal to the letter a request goes to the one that
nobody has gone on from, to which it adds the fewest messages; so each goes on once.

Invariants: one thread; what is asked twice under one ticket is answered the same. At most `conversations_max`,
`_DIGESTS_MAX` over all, `_NODES_MAX` answers of each, `_TWINS_MAX` conversations of a digest; over a bound the key that
holds the most loses the one that was idle longest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain

from reliability.key_shares import KeyShares
from reliability.sessions.trail import Answered, Before, Trail, digest_parts

_NODES_MAX = 8
_OPEN_MAX = 16
_TWINS_MAX = 256
_DIGESTS_MAX = 100_000
_RETRY_NS = 600 * 10**9


class _Way(IntEnum):
    FIRST = 0  # nobody has yet
    RETRY = 1  # as one did that got no answer
    AGAIN = 2  # as another one did
    LEFT = 3  # otherwise than one that got no answer, and nobody has since
    FORK = 4  # otherwise than another one did


@dataclass(slots=True, eq=False)
class _Node:
    """A place that a request may go on from: an answer, or the beginning. `gone`: the name of the request that went on
    from it; `lost`: that got no answer; `size`: the messages of the request that it answers."""

    digests: tuple[bytes, ...] = ()
    gone: bytes = b""
    lost: bool = False
    size: int = 0


@dataclass(slots=True, eq=False)
class _Conversation:
    name: str
    key: str
    begun_ns: int
    used_ns: int
    persona: bytes = b""
    system: bytes = b""
    start: bytes = b""
    begin: _Node = field(default_factory=_Node)
    nodes: deque[_Node] = field(default_factory=deque)
    open: OrderedDict[str, tuple[Trail, _Node]] = field(default_factory=OrderedDict)

    @property
    def newest(self) -> _Node:
        """The place that it stands at."""
        return self.nodes[-1] if self.nodes else self.begin


_Found = tuple[_Conversation, _Node]
# How a request would go on, how unlike its system prompt and its beginning are, how many messages it would add, whether
# another one has begun alike since this one was last at work, its turn among equals.
_Rank = tuple[_Way, int, int, bool, int]
_STRANGE = 6  # all is unlike but the date of the system prompt
_SHRUNK = 1_000_000  # where a request adds no message: more than any adds


class Conversations:
    """All conversations of all keys. Times are nanoseconds of one clock that never goes back."""

    def __init__(self, conversations_max: int, ttl_ns: int) -> None:
        self._max, self._ttl_ns = max(1, conversations_max), ttl_ns
        self._known: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()
        # Names in the order in which they were given the digest: a dict, since one is taken out of the middle.
        self._index: dict[bytes, dict[tuple[str, str], None]] = {}
        self._tickets: dict[tuple[str, str], str] = {}  # of what is being answered
        self._shares: KeyShares[tuple[str, str]] = KeyShares()
        self._held: Counter[str] = Counter()  # places in the index by key

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str, trail: Trail, ticket: str, now_ns: int) -> str:
        """Name the conversation of a request, and note that it is being answered. `ticket` names this one sending."""
        while self._known and self._known[oldest := next(iter(self._known))].used_ns + self._ttl_ns <= now_ns:
            self._forget(oldest)
        name = "c-" + digest_parts(b"name", key.encode("utf-8", "surrogatepass"), ticket.encode()).hex()
        known = self._tickets.get((key, ticket), name)
        if (key, known) in self._known:
            return known
        found = self._search(_scope(key, trail), trail, now_ns)
        conversation, node = found or self._begin(key, name, trail, now_ns)
        node.gone, node.lost = trail.whole, False
        conversation.open[ticket] = (trail, node)
        self._tickets[key, ticket] = conversation.name
        while len(conversation.open) > _OPEN_MAX:
            del self._tickets[key, conversation.open.popitem(last=False)[0]]
        conversation.persona, conversation.system, conversation.used_ns = trail.persona, trail.system, now_ns
        self._use(conversation)
        return conversation.name

    def answer(self, key: str, name: str, ticket: str, answered: Answered | None, now_ns: int) -> None:
        """Note what left for the request of this ticket; None: nothing did, or not all of it."""
        conversation = self._known.get((key, name))
        opened = conversation.open.pop(ticket, None) if conversation is not None else None
        if conversation is None or opened is None:
            return
        del self._tickets[key, ticket]
        trail, node = opened
        conversation.used_ns = now_ns
        if answered is None:
            node.lost = node.gone == trail.whole
            return
        scope, place = _scope(key, trail), trail.place
        quotes = (digest_parts(scope, b"quote", line) for line in answered.quotes)
        known_by = (*_list_strong(scope, place, answered), *_list_weak(scope, place, answered), *quotes)
        conversation.nodes.append(_Node(digests=known_by, size=trail.size))
        self._hold(conversation, known_by)
        if len(conversation.nodes) > _NODES_MAX:
            gone = conversation.nodes.popleft()
            kept = {digest for left in conversation.nodes for digest in left.digests}
            self._let_go(conversation, (digest for digest in gone.digests if digest not in kept))
        self._use(conversation)
        while len(self._index) > _DIGESTS_MAX and len(self._known) > 1:
            self._forget(self._shares.find_oldest(self._held))

    # -- the search --------------------------------------------------------------------------------------------

    def _search(self, scope: bytes, trail: Trail, now_ns: int) -> _Found | None:
        for place, answer in trail.seen:
            for digest in _list_strong(scope, place, answer):
                if ways := self._collect(digest, trail):
                    return min(ways, key=lambda way: way[0])[1]
            found = self._search_waiting(scope, trail, place, answer)
            if found is not None:
                return found
        if trail.folded and (found := self._search_summary(scope, trail, now_ns)) is not None:
            return found
        begun = (digest_parts(scope, b"whole", name) for name in reversed(trail.grown))
        grown = next(filter(None, (self._collect_waiting(digest, trail) for digest in begun)), None)
        grown = grown or self._collect_filled(scope, trail)
        return grown[-1] if grown else self._search_lost(scope, trail, now_ns)

    def _search_waiting(self, scope: bytes, trail: Trail, place: Before, answer: Answered) -> _Found | None:
        """Find by a weak proof who waits for a request like this one. Other ids, or another system prompt and
        beginning, count against it unless one waits alone. Of several that got no answer to another request none is
        chosen, unless all that was said is the same."""
        exact = list(_list_front(scope, place, answer))
        newest = answer is trail.seen[0][1]
        for digest in _list_weak(scope, place, answer) if newest else exact:
            ways = [way for way in self._collect(digest, trail) if _waits(*way)]
            strange = bool(answer.calls) or all(rank[1] >= _STRANGE for rank, _ in ways)
            if not ways or (len(ways) > 1 and strange):
                continue
            rank, found = min(ways, key=lambda way: way[0])
            if len(ways) == 1 or rank[0] is not _Way.LEFT or digest in exact:
                return found
        return None

    def _collect(self, digest: bytes, trail: Trail) -> list[tuple[_Rank, _Found]]:
        holders = self._list_holders(digest)
        begun_ns: dict[bytes, int] = {}
        for each in holders:
            begun_ns[each.start] = max(each.begun_ns, begun_ns.get(each.start, 0))
        ways: list[tuple[_Rank, _Found]] = []
        for place, conversation in enumerate(holders):
            node = next((node for node in reversed(conversation.nodes) if digest in node.digests), None)
            if node is not None:
                rank = _rank(conversation, node, trail, place, begun_ns[conversation.start])
                ways.append((rank, (conversation, node)))
        return ways

    def _search_summary(self, scope: bytes, trail: Trail, now_ns: int) -> _Found | None:
        """Find who was folded into a summary: whose words are quoted, else the only one that opened alike and waits."""
        for line in reversed(trail.quotes):
            if waiting := self._collect_waiting(digest_parts(scope, b"quote", line), trail):
                return waiting[-1]
        if not trail.opening:
            return None
        waiting = self._collect_waiting(digest_parts(scope, b"opening", trail.opening), trail)
        fresh = [found for found in waiting if found[0].used_ns + _RETRY_NS > now_ns]
        return fresh[0] if len(fresh) == 1 else None

    def _collect_waiting(self, digest: bytes, trail: Trail) -> list[_Found]:
        waiting = (c for c in self._list_holders(digest) if c.nodes)
        return [(c, c.newest) for c in waiting if _way_on(c, c.newest, trail) is not _Way.FORK]

    def _collect_filled(self, scope: bytes, trail: Trail) -> list[_Found]:
        """Collect who began with this prompt but for what was written into it, and is quoted there."""
        quotes = {digest_parts(scope, b"quote", line) for line in trail.quotes}
        ways = chain.from_iterable(
            self._collect_waiting(digest_parts(scope, b"whole", name), trail) for name in trail.filled
        )
        return [way for way in ways if not quotes.isdisjoint(way[1].digests)]

    def _search_lost(self, scope: bytes, trail: Trail, now_ns: int) -> _Found | None:
        lost = [
            conversation
            for conversation in self._list_holders(digest_parts(scope, b"whole", trail.whole))
            if not conversation.nodes and conversation.used_ns + _RETRY_NS > now_ns
            if conversation.begin.lost and conversation.begin.gone == trail.whole
        ]
        newest = max(lost, key=lambda each: each.used_ns, default=None)
        return None if newest is None else (newest, newest.begin)

    # -- what is known -----------------------------------------------------------------------------------------

    def _begin(self, key: str, name: str, trail: Trail, now_ns: int) -> _Found:
        made = _Conversation(name=name, key=key, begun_ns=now_ns, used_ns=now_ns, start=trail.start)
        scope = _scope(key, trail)
        made.begin.digests = (
            digest_parts(scope, b"whole", trail.whole),
            digest_parts(scope, b"opening", trail.opening),
        )
        self._known[key, name] = made
        self._hold(made, made.begin.digests)
        self._use(made)
        while len(self._known) > self._max:
            self._forget(self._shares.find_oldest())
        return made, made.begin

    def _use(self, conversation: _Conversation) -> None:
        at = (conversation.key, conversation.name)
        self._known.move_to_end(at)
        self._shares.put(conversation.key, at)

    def _list_holders(self, digest: bytes) -> list[_Conversation]:
        return [self._known[at] for at in self._index.get(digest, ())]

    def _hold(self, conversation: _Conversation, digests: Iterable[bytes]) -> None:
        at = (conversation.key, conversation.name)
        for digest in digests:
            holders = self._index.setdefault(digest, {})
            self._take_out(holders, at)
            holders[at] = None
            self._held[conversation.key] += 1
            if len(holders) > _TWINS_MAX:
                self._take_out(holders, next(iter(holders)))

    def _let_go(self, conversation: _Conversation, digests: Iterable[bytes]) -> None:
        for digest in digests:
            holders = self._index.get(digest)
            if holders is not None:
                self._take_out(holders, (conversation.key, conversation.name))
                if not holders:
                    del self._index[digest]

    def _take_out(self, holders: dict[tuple[str, str], None], at: tuple[str, str]) -> None:
        if at in holders:
            del holders[at]
            self._held[at[0]] -= 1

    def _forget(self, at: tuple[str, str]) -> None:
        conversation = self._known.pop(at)
        for ticket in conversation.open:
            del self._tickets[conversation.key, ticket]
        for node in (conversation.begin, *conversation.nodes):
            self._let_go(conversation, node.digests)
        self._shares.drop(conversation.key, at)
        if not self._held[conversation.key]:
            del self._held[conversation.key]


def _way_on(conversation: _Conversation, node: _Node, trail: Trail) -> _Way:
    if node.gone == trail.whole:
        return _Way.RETRY if node.lost else _Way.AGAIN
    if node is not conversation.newest or (node.gone and not node.lost):
        return _Way.FORK
    return _Way.LEFT if node.gone else _Way.FIRST


def _rank(conversation: _Conversation, node: _Node, trail: Trail, place: int, begun_ns: int) -> _Rank:
    """Rank who holds a digest. Of those who wait the one that the request adds least to comes first, since runs that
    go round in circles hold the same digest lap after lap; who was left before another one began so comes last."""
    way = _way_on(conversation, node, trail)
    strange = 1 * (conversation.system != trail.system) + 2 * (conversation.start != trail.start)
    strange += 4 * (conversation.persona != trail.persona)
    if way is not _Way.FIRST:
        return way, strange, 0, False, -conversation.used_ns if way is _Way.RETRY else -place
    added = trail.size - node.size
    return way, strange, added if added > 0 else _SHRUNK, conversation.used_ns < begun_ns, place


def _waits(rank: _Rank, found: _Found) -> bool:
    """Tell whether the conversation stands at this answer, and a request that goes on like this one may be its next."""
    return found[1] is found[0].newest and rank[0] is not _Way.FORK


def _scope(key: str, trail: Trail) -> bytes:
    """Name whose conversations these are: two keys never meet, nor two credentials where nobody checks them."""
    return digest_parts(key.encode("utf-8", "surrogatepass"), trail.owner)


def _list_strong(scope: bytes, place: Before, answer: Answered) -> Iterator[bytes]:
    """List what an answer at this place is surely known by, the strongest digest first."""
    yield from (digest_parts(scope, b"call", call) for call in answer.calls)
    if not place.context:
        return
    for words in (answer.said, answer.words):
        yield digest_parts(scope, b"deep", place.deep, words)
        yield digest_parts(scope, b"context", place.context, words)
    if answer.lead:
        yield digest_parts(scope, b"lead", place.context, answer.lead)
    if not answer.weak:
        yield digest_parts(scope, b"before", place.before, answer.words)


def _list_weak(scope: bytes, place: Before, answer: Answered) -> Iterator[bytes]:
    """List what proves that it is this answer only for a conversation that waits."""
    if place.context:
        yield digest_parts(scope, b"before", place.before, answer.words)
    yield from _list_front(scope, place, answer)
    if place.context:
        yield digest_parts(scope, b"asked", place.context)
    if not answer.weak:
        yield digest_parts(scope, b"words", answer.said)
        yield digest_parts(scope, b"words", answer.words)


def _list_front(scope: bytes, place: Before, answer: Answered) -> Iterator[bytes]:
    """List what proves little of an older answer, where the newer ones may be the client's own: all that it says
    behind a message that began so. Of a text its calls alone prove nothing: many runs write the same ones."""
    if place.front and not answer.weak:
        yield digest_parts(scope, b"front", place.front, answer.said)
