"""Admission under any sequence of asks, settles, operators' hands and waits."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reliability.admission import events as replay
from reliability.admission.admit import AdmissionState
from reliability.admission.ledger import PROGRESS_TOKENS
from reliability.admission.request import ClosedGrant, Grant, Rejection
from reliability.memory.pressure import Level
from reliability.types import Usage, Verdict
from tests.support.admissions import CONFIG, S, ask


class AdmissionMachine(RuleBasedStateMachine):
    """Any asks, settles, losses, waits, operators and restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AdmissionState(epoch="a")
        self.now_ns = 10**18
        self.open: dict[str, Grant] = {}
        self.ids: set[str] = set()
        self.tokens = 0
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

    @rule(wait_ns=st.sampled_from([0, 1, S // 2, S, 9 * S, 31 * S, 4000 * S, -5 * S]))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        for each in self.happen(replay.Tick("expire")):
            assert each.known
            assert each.expired
            self.tokens += each.tokens
            del self.open[each.id]
            assert each.tokens == self.owed.pop(each.id)
            self.late[each.id] = each.tokens

    @rule(
        tier=st.sampled_from(["fast", "cloud"]),
        session=st.sampled_from("abcdefg"),
        extra=st.booleans(),
        hold_ns=st.sampled_from([None, S, 100 * S]),
        level=st.sampled_from(list(Level)),
        prompt=st.sampled_from([0, 50, 900, 9000]),
        local=st.booleans(),
    )
    def request(
        self, tier: str, session: str, extra: bool, hold_ns: int | None, level: Level, prompt: int, local: bool
    ) -> None:
        """One bar leaves everything else untouched; a grant carries all its parts under one new name."""
        self.wait(0)
        before = self.state
        wanted = ask(tier, session, extra=extra, hold_ns=hold_ns, level=level, prompt_tokens=prompt, local=local)
        answer = self.happen(replay.Admit(wanted))
        if isinstance(answer, Rejection):
            assert self.state is before
            return
        assert answer.id not in self.ids
        assert self.state.breakers[tier].permits
        self.ids.add(answer.id)
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
        self.tokens += answer.tokens
        after = self.state
        assert self.happen(replay.Settlement(grant_id, verdict, used)) == ClosedGrant(grant_id, known=False)
        assert self.state is after

    @rule(tier=st.sampled_from(["fast", "cloud"]), order=st.sampled_from(["isolate", "restore", "close"]))
    def operate(self, tier: str, order: Any) -> None:
        self.happen(replay.Order(tier, order))

    @rule(session=st.sampled_from("abcdefg"), tokens=st.sampled_from([0, 10, 10**6]))
    def charge(self, session: str, tokens: int) -> None:
        """What ran without a grant is spent, and no breaker and no retry budget hears of it."""
        self.wait(0)
        before = self.state
        self.happen(replay.Charge("k", session, tokens))
        now = self.state
        assert (now.breakers, now.retries, now.grants) == (before.breakers, before.retries, before.grants)
        now_ns = self.state.now_ns
        assert self.state.budget.hour.count(now_ns) == before.budget.hour.count(now_ns) + tokens

    @rule()
    def tidy(self) -> None:
        """Idle sessions leave, and a replay knows it: the room that they leave is used by what follows."""
        self.happen(replay.Tick("sweep"))

    @rule()
    def begin(self) -> None:
        """A new life that is written down: what it grants has the same names in every replay."""
        self.happen(replay.Begin(self.state.epoch + "b"))

    @rule(session=st.sampled_from("abc"))
    def forgive(self, session: str) -> None:
        self.happen(replay.Reset("k", session))

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
        assert self.state.budget.hour.reserved == sum(grant.tokens for grant in self.open.values())
        for tier, breaker in self.state.breakers.items():
            held = {g.id for g in self.open.values() if g.tier == tier}
            assert len(breaker.permits) <= len(held)


TestAdmissionMachine = AdmissionMachine.TestCase
