"""The token budget under any sequence of calls, settles, charges and waits."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reliability.admission.budget import charge, expire, loads, output_cap, reserve, settle
from reliability.admission.ledger import Budget, session_name
from reliability.admission.request import AdmissionRequest, BudgetWindow, ClosedGrant, Grant, Rejection
from tests.support.budgets import BOUNDS, CONFIG, HOUR_S, S, ask


class BudgetMachine(RuleBasedStateMachine):
    """Reserve, settle, lose, charge, wait, in any order; usage within what was reserved. Only calls that ran without a
    reservation may carry a window past its limit."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget()
        self.now_ns = 0
        self.count = 0
        self.open: dict[str, tuple[AdmissionRequest, Grant]] = {}
        self.log: list[tuple[int, str, str, int]] = []
        self.charged = 0

    @rule(wait_s=st.sampled_from([0, 1, 30, 59, 60, 61, 1800, 3600]))
    def wait(self, wait_s: int) -> None:
        self.now_ns += wait_s * S
        self.budget, closed = expire(self.budget, self.now_ns)
        for each in closed:
            self.close(each, expired=True)

    @rule(
        prompt=st.integers(-5, 400),
        output=st.sampled_from([None, 0, 1, 100, 5000]),
        session=st.sampled_from("abcdef"),
        key=st.sampled_from("kl"),
    )
    def take(self, prompt: int, output: int | None, session: str, key: str) -> None:
        """A refusal changes nothing; an admission reserves prompt and cap."""
        before, wanted = self.budget, ask(prompt, output, session=session, key=key)
        name = f"r{self.count}"
        self.count += 1
        self.budget, answer = reserve(before, CONFIG, name, wanted, self.now_ns)
        if isinstance(answer, Rejection):
            assert self.budget is before
            return
        assert answer.output_cap == output_cap(CONFIG, output)
        assert answer.tokens == max(0, prompt) + answer.output_cap
        self.open[name] = wanted, answer

    @rule(data=st.data(), share=st.sampled_from([0, 0.5, 1, None]))
    def give_back(self, data: st.DataObject, share: float | None) -> None:
        """Settling charges what was used and returns the rest, once."""
        if not self.open:
            return
        name = data.draw(st.sampled_from(sorted(self.open)))
        held = self.open[name][1].tokens
        used = None if share is None else int(held * share)
        self.budget, closed = settle(self.budget, CONFIG, name, used, self.now_ns)
        assert closed is not None
        assert closed.tokens == (held if used is None else used)
        self.close(closed, expired=False)
        assert settle(self.budget, CONFIG, name, used, self.now_ns) == (self.budget, None)

    def close(self, closed: ClosedGrant, *, expired: bool) -> None:
        wanted, held = self.open.pop(closed.id)
        assert closed.expired is expired
        assert not expired or closed.tokens == max(0, wanted.prompt_tokens)
        assert not expired or closed.tokens <= held.tokens
        self.log.append((self.now_ns, wanted.key, wanted.session, closed.tokens))

    @rule(tokens=st.sampled_from([-5, 0, 1, 90, 5000]), session=st.sampled_from("abcdef"), key=st.sampled_from("kl"))
    def charge(self, tokens: int, session: str, key: str) -> None:
        """A charge is spent in the hour at once, whatever the limits, and in its session where there is room."""
        before = self.budget
        known = before.session_of(BOUNDS, key, session, self.now_ns)
        self.budget = charge(before, CONFIG, key, session, tokens, self.now_ns)
        spent = max(0, tokens)
        assert self.budget.hour.count(self.now_ns) == before.hour.count(self.now_ns) + spent
        after = self.budget.session_of(BOUNDS, key, session, self.now_ns)
        full = before.sessions.count >= BOUNDS.sessions_max and before.sessions.get(session_name(key, session)) is None
        if not full:
            assert (after.spent, after.reserved, after.open) == (known.spent + spent, known.reserved, known.open)
        self.charged += spent
        self.log.append((self.now_ns, key, session, spent))

    @invariant()
    def never_beyond_the_limit(self) -> None:
        """Spent and reserved never exceed a limit, and are never less than what they really are."""
        for key in "kl":
            for session in "abcdef":
                for load in loads(self.budget, CONFIG, key, session, self.now_ns):
                    assert load.tokens <= load.tokens_max + self.charged
        recent = [(k, n) for at, k, _, n in self.log if at + HOUR_S * S > self.now_ns]
        held = [(wanted.key, r.tokens) for wanted, r in self.open.values()]
        by_window = {load.window: load.tokens for load in loads(self.budget, CONFIG, "k", "a", self.now_ns)}
        assert by_window[BudgetWindow.HOUR] >= sum(n for _, n in recent + held)
        assert by_window[BudgetWindow.KEY_HOUR] >= sum(n for k, n in recent + held if k == "k")

    @invariant()
    def books_agree(self) -> None:
        """What the hour, the keys and the sessions have reserved is what the open reservations hold."""
        held = sum(answer.tokens for _, answer in self.open.values())
        assert self.budget.hour.reserved == held
        assert sum(hour.reserved for _, hour in self.budget.keys.items()) == held
        assert sum(session.reserved for _, session in self.budget.sessions.items()) == held
        assert self.budget.open.count == len(self.open)

    @invariant()
    def memory_is_bounded(self) -> None:
        """No more is remembered than allowed, and what is in use is."""
        assert self.budget.sessions.count <= BOUNDS.sessions_max
        assert self.budget.keys.count <= BOUNDS.keys_max
        assert self.budget.open.count <= BOUNDS.reservations_max
        for wanted, _ in self.open.values():
            assert self.budget.sessions.get(session_name(wanted.key, wanted.session)) is not None


TestBudgetMachine = BudgetMachine.TestCase
