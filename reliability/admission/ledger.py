"""The ledger of the token budget: who has spent what and set what aside. Policies: `budget.py`.

Every open reservation stands in its session, in the hour of the server and in the hour of its API key;
`open_reservation` and `close_reservation` move all three at once. Spent tokens of an hour are kept in minutes, leave 60
to 61 minutes after they were charged, and are charged when the reservation closes: too much, never too little.

Invariants: no session or key leaves while it has a reservation open; no reservation is charged twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reliability.admission.persistent_map import SHARDS, Shards
from reliability.key_shares import find_fullest
from reliability.rolling import EMPTY, SECOND_NS, Rolling, Span

HOUR = Span(3600 * SECOND_NS, 60 * SECOND_NS)
PROGRESS_TOKENS = 32  # a running call reports what it has used each time that it has written so many more
_IDLE_LOOKED_AT = 64  # sessions at least, if there are so many, where one must go
_EXPIRED_MAX = 512  # closed reservations that a late settle may still add to


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much the ledger may remember."""

    session_ttl_ns: int = 24 * 3600 * SECOND_NS
    sessions_max: int = 10_000
    keys_max: int = 4096
    reservations_max: int = 4096


@dataclass(frozen=True, slots=True)
class Session:
    """One session's tokens. `open` counts its reservations."""

    spent: int = 0
    reserved: int = 0
    open: int = 0
    used_ns: int = 0

    def is_idle(self, bounds: Bounds, now_ns: int) -> bool:
        """Return whether the session was left for so long that it counts as new."""
        return self.open == 0 and now_ns - self.used_ns >= bounds.session_ttl_ns


@dataclass(frozen=True, slots=True)
class _Hour:
    """The tokens of a rolling hour."""

    spent: Rolling = EMPTY
    reserved: int = 0

    def count(self, now_ns: int) -> int:
        """Count what the hour holds, spent and reserved."""
        return self.spent.drop_expired(HOUR, now_ns).total + self.reserved

    def charge(self, reserved: int, charged: int, now_ns: int) -> _Hour:
        """Charge tokens, for which so many were reserved."""
        return _Hour(self.spent.add(HOUR, charged, now_ns), self.reserved - reserved)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens set aside for one call. `used`: what it has reported; `slack`: what it may have used beyond that."""

    key: str
    session: str
    tokens: int
    output_cap: int
    expires_ns: int
    slack: int = 0
    used: int | None = None

    @property
    def estimate(self) -> int:
        """What the call has cost for all that is known, else its prompt; and its slack, as far as it was reserved."""
        known = self.tokens - self.output_cap if self.used is None else self.used
        return max(known, min(self.tokens, known + self.slack))


@dataclass(frozen=True, slots=True)
class _Expired:
    """A reservation that was closed unsettled, and what it was charged."""

    key: str
    session: str
    charged: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The whole ledger; what changes nothing returns the same one. `wake_ns`: a lower bound of the next expiry.
    `expired`: the last reservations that nobody settled, by name, the oldest first."""

    sessions: Shards[Session] = field(default_factory=Shards)
    hour: _Hour = _Hour()
    keys: Shards[_Hour] = field(default_factory=Shards)
    open: Shards[Reservation] = field(default_factory=Shards)
    wake_ns: int | None = None
    expired: Mapping[str, _Expired] = field(default_factory=dict)

    def session_of(self, bounds: Bounds, key: str, session: str, now_ns: int) -> Session:
        """Return the session's tokens. One that was idle for too long counts as new, swept or not."""
        known = self.sessions.get(session_name(key, session))
        return Session() if known is None or known.is_idle(bounds, now_ns) else known

    def owners_of(self, session: str) -> set[str]:
        """Return the keys that have a session of this name. Looks at every session."""
        names = (name for name, _ in self.sessions.items() if name.endswith(session))
        return {key for name in names if session_name(key := _key_of(name), session) == name}

    def hour_of(self, key: str) -> _Hour:
        return self.keys.get(key) or _Hour()

    def count_running_tokens(self, key: str, session: str) -> int:
        """Count what a session's open calls have reported as used. Looks at every reservation."""
        return sum(held.used or 0 for _, held in self.open.items() if held.session == session and held.key == key)

    def note_progress(self, name: str, used: int) -> Budget:
        held = self.open.get(name)
        if held is None or held.used == used:
            return self
        return replace(self, open=self.open.put(name, replace(held, used=used)))

    def remember_expired(self, name: str, held: Reservation) -> Budget:
        """Keep in mind what a reservation that nobody settled was charged; the oldest of too many is let go."""
        expired = {**self.expired, name: _Expired(held.key, held.session, held.estimate)}
        while len(expired) > _EXPIRED_MAX:
            del expired[next(iter(expired))]
        return replace(self, expired=expired)

    def forget_expired(self, name: str) -> tuple[Budget, _Expired | None]:
        """Forget an expired reservation: who settles it late settles it once."""
        late = self.expired.get(name)
        if late is None:
            return self, None
        return replace(self, expired={n: each for n, each in self.expired.items() if n != name}), late

    def open_reservation(self, bounds: Bounds, name: str, taken: Reservation, now_ns: int) -> Budget:
        known = self.session_of(bounds, taken.key, taken.session, now_ns)
        session = Session(known.spent, known.reserved + taken.tokens, known.open + 1, now_ns)
        key = self.hour_of(taken.key)
        return replace(
            self,
            sessions=self.sessions.put(session_name(taken.key, taken.session), session),
            hour=replace(self.hour, reserved=self.hour.reserved + taken.tokens),
            keys=self.keys.put(taken.key, replace(key, reserved=key.reserved + taken.tokens)),
            open=self.open.put(name, taken),
            wake_ns=taken.expires_ns if self.wake_ns is None else min(self.wake_ns, taken.expires_ns),
        )

    def close_reservation(self, name: str, held: Reservation, charged: int, now_ns: int) -> Budget:
        """Close a reservation: `charged` tokens are spent, the rest returns."""
        at = session_name(held.key, held.session)
        known = self.sessions.get(at) or Session(0, held.tokens, 1)
        session = Session(known.spent + charged, known.reserved - held.tokens, known.open - 1, now_ns)
        return replace(
            self,
            sessions=self.sessions.put(at, session),
            hour=self.hour.charge(held.tokens, charged, now_ns),
            keys=self.keys.put(held.key, self.hour_of(held.key).charge(held.tokens, charged, now_ns)),
            open=self.open.drop(name),
        )

    def charge_unreserved(self, bounds: Bounds, key: str, session: str, tokens: int, now_ns: int) -> Budget:
        """Book tokens that nobody had reserved, in the server's hour, and where there is room under their names."""
        booked = replace(self, hour=self.hour.charge(0, tokens, now_ns))
        name = session_name(key, session)
        if (sessions := _make_session_room(self.sessions, bounds, name)) is not None:
            known = self.session_of(bounds, key, session, now_ns)
            spent = replace(known, spent=known.spent + tokens, used_ns=now_ns)
            booked = replace(booked, sessions=sessions.put(name, spent))
        if (keys := _make_key_room(self.keys, bounds, key, now_ns)) is not None:
            booked = replace(booked, keys=keys.put(key, self.hour_of(key).charge(0, tokens, now_ns)))
        return booked

    def reset_session(self, key: str, session: str) -> Budget:
        """Forget what a session has spent. What it has reserved stays."""
        name = session_name(key, session)
        known = self.sessions.get(name)
        return self if known is None else replace(self, sessions=self.sessions.put(name, replace(known, spent=0)))

    def sweep_sessions(self, bounds: Bounds, now_ns: int) -> Budget:
        idle = [name for name, session in self.sessions.items() if session.is_idle(bounds, now_ns)]
        return replace(self, sessions=self.sessions.without(idle)) if idle else self

    def make_room(self, bounds: Bounds, key: str, session: str, now_ns: int) -> Budget | None:
        """Make room for one more reservation of this session. None: all is in use."""
        if self.open.count >= bounds.reservations_max:
            return None
        sessions = _make_session_room(self.sessions, bounds, session_name(key, session))
        keys = _make_key_room(self.keys, bounds, key, now_ns)
        if sessions is None or keys is None:
            return None
        return replace(self, sessions=sessions, keys=keys)


def session_name(key: str, session: str) -> str:
    """Build a session's name under its key; the length keeps ("a", "bc") and ("ab", "c") apart."""
    return f"{len(key)}:{key}{session}"


def _key_of(name: str) -> str:
    size, _, rest = name.partition(":")
    return rest[: int(size)]


def _make_session_room(sessions: Shards[Session], bounds: Bounds, name: str) -> Shards[Session] | None:
    """Drop the longest idle session of the key that has the most, among those of a few shards from the name's own."""
    if sessions.count < bounds.sessions_max or sessions.get(name) is not None:
        return sessions
    start, found = sessions.place(name), 0
    idle: dict[str, list[tuple[int, str]]] = {}
    for step in range(SHARDS):
        for known, session in sessions.shards[(start + step) % SHARDS].items():
            if session.open == 0:
                idle.setdefault(_key_of(known), []).append((session.used_ns, known))
                found += 1
        if found >= _IDLE_LOOKED_AT:
            break
    if not idle:
        return None
    fullest = find_fullest({key: len(held) for key, held in idle.items()})
    return sessions.drop(min(idle[fullest])[1])


def _make_key_room(keys: Shards[_Hour], bounds: Bounds, key: str, now_ns: int) -> Shards[_Hour] | None:
    if keys.count < bounds.keys_max or keys.get(key) is not None:
        return keys
    keys = keys.without([name for name, hour in keys.items() if hour.count(now_ns) == 0])
    return keys if keys.count < bounds.keys_max else None
