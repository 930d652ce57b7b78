"""Admission under any sequence of asks, settles, operators' hands and waits."""

import json
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reliability.admission import events as replay
from reliability.admission.admit import AdmissionState
from reliability.admission.budget import Limit, loads, output_cap
from reliability.admission.ledger import HOUR, PROGRESS_TOKENS, session_name
from reliability.admission.request import AdmissionRequest, BudgetWindow, ClosedGrant, Grant, Rejection
from reliability.memory.pressure import Level
from reliability.types import Usage, Verdict
from tests.support.admissions import CONFIG as SMALL
from tests.support.admissions import S, ask

KEYS, SESSIONS = "kl", "abcdefg"
BOUNDS = replace(SMALL.budget.bounds, keys_max=len(KEYS))
HOURS = dict.fromkeys(KEYS, Limit(tokens_max=4000))
CONFIG = replace(SMALL, budget=replace(SMALL.budget, key_hours=HOURS, output_tokens_max=200, bounds=BOUNDS))


class AdmissionMachine(RuleBasedStateMachine):
    """Any asks, settles, losses, waits, operators and restarts, in any order. Only what is charged beyond its
    reservation, or without one, may carry a window past its limit."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AdmissionState(epoch="a")
        self.now_ns = 10**18
        self.open: dict[str, Grant] = {}
        self.asked: dict[str, AdmissionRequest] = {}
        self.spent: list[tuple[int, str, int]] = []  # when, by which key, how much
        self.beyond: list[tuple[int, int]] = []  # when, and how much of it was never reserved
        self.used: dict[str, int] = {}  # what was said of open grants
        self.owed: dict[str, int] = {}  # what is charged where nothing more comes
        self.late: dict[str, int] = {}  # what expired grants were charged, until somebody settles them after all
        self.journal: list[tuple[int, replay.Event]] = []
        self.snapshot = self.state

    def happen(self, event: replay.Event) -> Any:
        """One event, written down and applied."""
        plain = json.loads(json.dumps(replay.event_to_plain(event)))
        assert replay.event_from_plain(plain) == event
        self.journal.append((self.now_ns, event))
        self.state, answer = replay.reduce(self.state, CONFIG, event, self.now_ns)
        return answer

    @rule(wait_ns=st.sampled_from([0, 1, S // 2, S, 9 * S, 31 * S, 1800 * S, 3600 * S, -5 * S]))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        for each in self.happen(replay.Tick("expire")):
            assert each.known
            assert each.expired
            self.book(self.asked[each.id].key, each.tokens, self.open.pop(each.id).tokens)
            assert each.tokens == self.owed.pop(each.id)
            self.late[each.id] = each.tokens

    def book(self, key: str, tokens: int, reserved: int) -> None:
        self.spent.append((self.state.now_ns, key, tokens))
        self.beyond.append((self.state.now_ns, max(0, tokens - reserved)))

    @rule(
        tier=st.sampled_from(["fast", "cloud"]),
        key=st.sampled_from(KEYS),
        session=st.sampled_from(SESSIONS),
        extra=st.booleans(),
        hold_ns=st.sampled_from([None, S, 100 * S]),
        level=st.sampled_from(list(Level)),
        prompt_tokens=st.sampled_from([-5, 0, 50, 900, 9000]),
        output_tokens=st.sampled_from([None, 0, 1, 100, 5000]),
        local=st.booleans(),
    )
    def request(self, tier: str, session: str, prompt_tokens: int, local: bool, **more: Any) -> None:
        """One bar leaves everything else untouched; a grant carries all its parts under one new name."""
        self.wait(0)
        before = self.state
        wanted = ask(tier, session, prompt_tokens=prompt_tokens, local=local, **more)
        answer = self.happen(replay.Admit(wanted))
        if isinstance(answer, Rejection):
            assert self.state is before
            return
        assert answer.id not in self.asked
        assert self.state.breakers[tier].permits
        prompt = max(0, prompt_tokens)
        assert answer.output_cap == output_cap(CONFIG.budget, wanted.output_tokens)
        assert answer.tokens == prompt + answer.output_cap
        self.asked[answer.id] = wanted
        self.open[answer.id] = answer
        self.owed[answer.id] = min(answer.tokens, prompt + (0 if local else PROGRESS_TOKENS))
        self.used[answer.id] = 0 if local else PROGRESS_TOKENS

    @rule(data=st.data(), tokens=st.sampled_from([0, 30, 60, 99, 100, 10**6]))
    def go_on(self, data: st.DataObject, tokens: int) -> None:
        """What a running call has used is noted and not charged; of a grant that isn't open it says nothing."""
        before = self.state
        self.happen(replay.Progress("never", tokens))
        assert self.state is before
        if not self.open:
            return
        grant_id = data.draw(st.sampled_from(sorted(self.open)))
        self.happen(replay.Progress(grant_id, tokens))
        assert self.state.breakers == before.breakers
        assert (self.state.budget.sessions, self.state.budget.hour) == (before.budget.sessions, before.budget.hour)
        self.owed[grant_id] = max(tokens, min(self.open[grant_id].tokens, tokens + self.used[grant_id]))

    @rule(data=st.data(), tokens=st.sampled_from([None, 0, 60, 200, 10**6]))
    def settle_late(self, data: st.DataObject, tokens: int | None) -> None:
        """A grant that has expired is charged what it used beyond, once."""
        if not self.late:
            return
        grant_id = data.draw(st.sampled_from(sorted(self.late)))
        more = max(0, (tokens or 0) - self.late.pop(grant_id))
        before, now_ns = self.state, max(self.now_ns, self.state.now_ns)
        event = replay.Settlement(grant_id, Verdict.FAILURE, None if tokens is None else Usage(prompt_tokens=tokens))
        assert self.happen(event) == ClosedGrant(grant_id, known=False)
        assert self.state.budget.hour.count(now_ns) == before.budget.hour.count(now_ns) + more
        assert self.state.breakers == before.breakers
        self.book(self.asked[grant_id].key, more, 0)
        after = self.state
        self.happen(event)
        assert self.state is after

    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)), usage=st.sampled_from([None, 0, 10, 10**6]))
    def give_back(self, data: st.DataObject, verdict: Verdict, usage: int | None) -> None:
        """A grant is closed once; a second settle changes nothing."""
        if not self.open:
            return
        grant_id = data.draw(st.sampled_from(sorted(self.open)))
        held, owed = self.open.pop(grant_id), self.owed.pop(grant_id)
        used = None if usage is None else Usage(prompt_tokens=usage)
        answer = self.happen(replay.Settlement(grant_id, verdict, used, retry_after_ns=S))
        assert answer.known
        if answer.expired:
            assert answer.tokens == max(owed, usage or 0)
        else:
            assert answer.tokens == (held.tokens if used is None else usage)
        self.book(self.asked[grant_id].key, answer.tokens, held.tokens)
        after = self.state
        assert self.happen(replay.Settlement(grant_id, verdict, used)) == ClosedGrant(grant_id, known=False)
        assert self.state is after

    @rule(tier=st.sampled_from(["fast", "cloud"]), order=st.sampled_from(["isolate", "restore", "close"]))
    def operate(self, tier: str, order: Any) -> None:
        self.happen(replay.Order(tier, order))

    @rule(
        key=st.sampled_from(KEYS), session=st.sampled_from(SESSIONS), tokens=st.sampled_from([-5, 0, 10, 5000, 10**6])
    )
    def charge(self, key: str, session: str, tokens: int) -> None:
        """What ran without a grant is spent, in its session where there is room, and no breaker and no retry budget
        hears of it."""
        self.wait(0)
        before, spent = self.state, max(0, tokens)
        self.happen(replay.Charge(key, session, tokens))
        self.book(key, spent, 0)
        now = self.state
        assert (now.breakers, now.retries, now.grants) == (before.breakers, before.retries, before.grants)
        now_ns = self.state.now_ns
        assert now.budget.hour.count(now_ns) == before.budget.hour.count(now_ns) + spent
        known, after = (one.budget.session_of(BOUNDS, key, session, now_ns) for one in (before, now))
        if before.budget.sessions.count < BOUNDS.sessions_max or known.spent or known.open:
            assert (after.spent, after.reserved, after.open) == (known.spent + spent, known.reserved, known.open)

    @rule()
    def tidy(self) -> None:
        """Idle sessions leave, and a replay knows it: the room that they leave is used by what follows."""
        self.happen(replay.Tick("sweep"))

    @rule()
    def begin(self) -> None:
        """A new life that is written down: what it grants has the same names in every replay."""
        self.happen(replay.Begin(self.state.epoch + "b"))

    @rule(key=st.sampled_from(KEYS), session=st.sampled_from("abc"))
    def forgive(self, key: str, session: str) -> None:
        self.happen(replay.Reset(key, session))

    @rule()
    def save(self) -> None:
        """A state survives being written down as JSON."""
        self.snapshot = replay.from_plain(json.loads(json.dumps(replay.to_plain(self.state))))
        self.journal = []
        assert self.snapshot == self.state

    @rule()
    def crash(self) -> None:
        """A snapshot and the events since give the very state that was lost; a new life gives new names."""
        assert replay.replay(self.snapshot, CONFIG, self.journal) == self.state
        self.state = replace(self.state, epoch=self.state.epoch + "b")
        self.save()

    @invariant()
    def granted_is_settled_or_open(self) -> None:
        """Permits, reservations and grants are open together and closed together."""
        assert {name for name, _ in self.state.grants.items()} == set(self.open)
        assert {name for name, _ in self.state.budget.open.items()} == set(self.open)
        held = sum(grant.tokens for grant in self.open.values())
        assert self.state.budget.hour.reserved == held
        assert sum(hour.reserved for _, hour in self.state.budget.keys.items()) == held
        assert sum(session.reserved for _, session in self.state.budget.sessions.items()) == held
        for tier, breaker in self.state.breakers.items():
            assert len(breaker.permits) <= sum(g.tier == tier for g in self.open.values())

    @invariant()
    def never_beyond_the_limit(self) -> None:
        """Spent and reserved never exceed a limit, and are never less than what they really are."""
        budget, now_ns = self.state.budget, self.state.now_ns
        for key, session in product(KEYS, SESSIONS):
            for load in loads(budget, CONFIG.budget, key, session, now_ns):
                since_ns = 0 if load.window is BudgetWindow.SESSION else now_ns - HOUR.window_ns - HOUR.bucket_ns
                assert load.tokens <= load.tokens_max + sum(more for at, more in self.beyond if at >= since_ns)
        recent = [(key, tokens) for at, key, tokens in self.spent if at + HOUR.window_ns > now_ns]
        recent += [(self.asked[name].key, grant.tokens) for name, grant in self.open.items()]
        by_window = {load.window: load.tokens for load in loads(budget, CONFIG.budget, "k", "a", now_ns)}
        assert by_window[BudgetWindow.HOUR] >= sum(tokens for _, tokens in recent)
        assert by_window[BudgetWindow.KEY_HOUR] >= sum(tokens for key, tokens in recent if key == "k")

    @invariant()
    def memory_is_bounded(self) -> None:
        """No more is remembered than allowed, and what is in use is."""
        budget = self.state.budget
        assert budget.sessions.count <= BOUNDS.sessions_max
        assert budget.keys.count <= BOUNDS.keys_max
        assert budget.open.count <= BOUNDS.reservations_max
        for wanted in (self.asked[name] for name in self.open):
            assert budget.sessions.get(session_name(wanted.key, wanted.session)) is not None


TestAdmissionMachine = AdmissionMachine.TestCase
