"""One seeded world: tiers, admission, clients; run it, check every request, heal it, and see it recover.

Everything is drawn from one seed, so the same seed gives the same trace, byte for byte. Swarm: a world switches most
faults off and gives the rest weights of its own, so that rare mixtures come up. A failure prints its seed.
"""

import asyncio
import hashlib
import json
import random
import re
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from deployments.config.tier_config import Timeouts
from deployments.request.drive import drive
from deployments.request.interfaces import Ports
from deployments.request.run_record import Run
from reliability.admission import admit as reducer
from reliability.admission.admit import AdmissionConfig, AdmissionState
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.events import Progress, reduce
from reliability.admission.ledger import PROGRESS_TOKENS
from reliability.admission.request import AdmissionRequest, Grant, Policy, Rejection
from reliability.answer.estimate import text_bytes, tokens_min
from reliability.answer.judgement import expect
from reliability.escalation.decisions import Limits
from reliability.loops import LoopConfig
from reliability.memory.pressure import Level
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import CallDelta, ChatRequest, Event, Flaw, Hold, Reason, Reasoning, Text, Usage, Verdict
from tests.sim.clock import VirtualClock, run
from tests.sim.tiers import BAD, TOOLS, SimTier

NAMES = ("fast", "standard", "longctx", "premium")
# Which call wrote a text: a whole mark has a blank behind it, a text that was cut may end in half of one.
MARK = re.compile(rf"(?:{'|'.join(NAMES)})\d+(?= )")
REQUESTS = 20
HEALED_REQUESTS = 6
HEALED_AFTER_S = 1200.0  # longer than any breaker stays open
CLIENT_S = 300.0


class Broken(AssertionError):
    """A law that doesn't hold in this world."""


class SimAdmission:
    """The reducer behind a wire that may go dead, with a memory level that spikes. Every grant is remembered."""

    def __init__(self, rng: random.Random, clock: VirtualClock, config: AdmissionConfig) -> None:
        self.rng, self.clock, self.config = rng, clock, config
        self.state = AdmissionState()
        self.granted: dict[str, Grant] = {}
        self.settled: Counter[str] = Counter()
        self.spent: dict[str, int] = {}
        self.silence = 0.0
        self.level = Level.NORMAL

    window = session = None
    trouble = ""

    def expire(self) -> None:
        """Close what nobody has settled, and keep what it was charged."""
        self.state, closed = reducer.expire(self.state, self.config, self.clock.now_ns())
        self.spent |= {each.id: each.tokens for each in closed}

    async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
        self.expire()
        if self.rng.random() < self.silence:
            await asyncio.sleep(30.0)
        sustained_ns = 90 * 10**9 if self.level is not Level.NORMAL else 0
        request = replace(request, level=self.level, sustained_ns=sustained_ns)
        self.state, answer = reducer.admit(self.state, self.config, request, self.clock.now_ns())
        if isinstance(answer, Grant):
            self.granted[answer.id] = answer
        return answer

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        self.settled[grant.id] += 1
        self.state, settled = reducer.settle(
            self.state, self.config, grant.id, verdict, usage, self.clock.now_ns(), int((retry_after_s or 0) * 1e9)
        )
        if settled.known:
            self.spent[grant.id] = settled.tokens

    def progress(self, grant: Grant, usage: Usage) -> None:
        self.state, _ = reduce(self.state, self.config, Progress(grant.id, usage.total_tokens), self.clock.now_ns())

    def charge(self, usage: Usage) -> None:
        now_ns = self.clock.now_ns()
        self.state = reducer.charge(self.state, self.config, "", "silent", usage.total_tokens, now_ns)


class Router:
    """One request's way to the admission, through a Router that may be killed: from then on it says nothing."""

    def __init__(self, admission: SimAdmission) -> None:
        self.admission = admission
        self.dead = False
        self.grant: Grant | None = None

    async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
        answer = await self.admission.admit(request)
        self.grant = answer if isinstance(answer, Grant) else None
        return answer

    def settle(self, *what: Any) -> None:
        if not self.dead:
            self.grant = None
            self.admission.settle(*what)

    def __getattr__(self, name: str) -> Any:
        silent = self.dead and name in ("progress", "charge")
        return (lambda *_: None) if silent else getattr(self.admission, name)


@dataclass
class Outcome:
    """What one client saw. `lost`: the grant that its Router held when it was killed."""

    run: Run
    stream: bool
    left: bool = False
    lost: Grant | None = None
    events: list[Event] = field(default_factory=list)
    took_s: float = 0.0


@dataclass
class World:
    """A seed, played."""

    seed: int
    rng: random.Random = field(init=False)
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def play(self) -> str:
        """Play everything; return the trace's digest. Raises `Broken`."""
        try:
            run(self._play())
        except Broken as broken:
            raise Broken(f"seed {self.seed}: {broken}") from broken
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def note(self, words: str) -> None:
        self.trace.append(f"{asyncio.get_running_loop().time():.6f} {words}")

    async def _play(self) -> None:
        clock = VirtualClock()
        chain = NAMES[: self.rng.randint(1, 4)]
        tiers = {name: self._tier(name) for name in chain}
        admission = SimAdmission(random.Random(self.rng.random()), clock, self._admission_config())
        admission.silence = self.rng.choice((0.0, 0.0, 0.2))
        ports = Ports(
            tiers=tiers,
            timeouts=dict.fromkeys(tiers, Timeouts(connect_s=3, first_token_s=20, idle_s=15, total_s=120)),
            admission=admission,
            clock=clock,
            jitter=self.rng.random,
            cloud=frozenset({"premium"}),
        )
        clients = [asyncio.create_task(self._client(i, chain, ports, faults=True)) for i in range(REQUESTS)]
        spikes = asyncio.create_task(self._spikes(admission))
        outcomes = [await client for client in clients]
        spikes.cancel()
        for outcome in outcomes:
            self._check(outcome, chain)
        await self._check_all(admission, tiers)
        for outcome in outcomes:
            self._check_books(outcome, admission)
        await self._heal(admission, tiers, chain, ports)

    def _tier(self, name: str) -> SimTier:
        share = self.rng.choice((0.0, 0.2, 0.5, 0.9))
        chosen = self.rng.sample(BAD, self.rng.randint(1, 6))
        parts = [self.rng.random() for _ in chosen]
        weights = {act: share * part / sum(parts) for act, part in zip(chosen, parts, strict=True)}
        return SimTier(name, random.Random(self.rng.random()), weights, trace=self.note)

    def _admission_config(self) -> AdmissionConfig:
        tokens_max = self.rng.choice((None, None, 3_000))
        policy = self.rng.choice(tuple(Policy))
        return AdmissionConfig(budget=BudgetConfig(hour=Limit(tokens_max=tokens_max, policy=policy)))

    async def _spikes(self, admission: SimAdmission) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 20)
            admission.level = self.rng.choice((Level.NORMAL, Level.NORMAL, Level.WARN, Level.CRITICAL, Level.UNKNOWN))

    async def _client(self, number: int, chain: tuple[str, ...], ports: Ports, *, faults: bool) -> Outcome:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.rng.random() * 30)
        began = loop.time()
        outcome = Outcome(self._request(number, chain, ports.clock.now_ns()), stream=self.rng.random() < 0.6)
        outcome.run.hold = Hold.TOOL_CALLS if outcome.stream else Hold.ALL
        stays_s = self.rng.random() * 10 if faults and self.rng.random() < 0.15 else CLIENT_S
        router, dies = Router(ports.admission), faults and self.rng.random() < 0.1
        dies_after = self.rng.randint(1, 4) if dies else 0
        try:
            walk = drive(outcome.run, replace(ports, admission=router))
            async with asyncio.timeout(stays_s), aclosing(walk) as batches:
                async for batch in batches:
                    outcome.events += batch
                    dies_after -= 1
                    if dies_after == 0:
                        # Killed: nothing that is done on the way out is heard of.
                        router.dead, outcome.left, outcome.lost = True, True, router.grant
                        break
        except TimeoutError:
            outcome.left = True
        outcome.took_s = loop.time() - began
        self.note(f"request {number} {self._words(outcome)}")
        return outcome

    def _request(self, number: int, chain: tuple[str, ...], now_ns: int) -> Run:
        tools = TOOLS if self.rng.random() < 0.7 else ()
        messages = self._messages(bool(tools))
        request = ChatRequest(
            request_id=f"r{self.seed}-{number}",
            session_id=f"s{number % 3}",
            messages=messages,
            max_tokens=self.rng.choice((64, 512, 5000)),
            timeout_s=240.0,
            tools=tools,
            body_bytes=self.rng.choice((400, 40_000)),
        )
        start = self.rng.randrange(len(chain))
        reasons = frozenset(Reason) if self.rng.random() < 0.8 else frozenset({Reason.TIMEOUT})
        return Run(
            request=request,
            expected=expect(
                messages, build_toolbox(tools), id_seed=request.request_id, checks=CheckConfig(), loops=LoopConfig()
            ),
            chain=chain[start:],
            limits=Limits(
                retries_max=self.rng.randint(0, 3),
                reasks_max=self.rng.randint(0, 3),
                attempts_max=self.rng.randint(1, 10),
                escalate_on=reasons,
            ),
            deadline_ns=now_ns + 240 * 10**9,
        )

    def _messages(self, tools: bool) -> tuple[dict[str, Any], ...]:
        """A conversation; some agents have gone round in circles already."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather?"}]
        laps = self.rng.choice((0, 0, 1, 2, 4)) if tools else 0
        for lap in range(laps):
            call = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
            calls = [{"id": f"c{lap}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": f"c{lap}", "content": "It rains."})
        return tuple(messages)

    def _check(self, outcome: Outcome, chain: tuple[str, ...]) -> None:
        run = outcome.run
        who = run.request.request_id
        ended = (run.finish is not None) + (run.refusal is not None)
        law(outcome.left or ended == 1, f"{who} ends in an answer or one refusal")
        law(outcome.took_s <= 241, f"{who} ends in time, not after {outcome.took_s:.0f} s")
        law(len(run.attempts) <= run.limits.attempts_max, f"{who} keeps to its attempts")
        self._check_text(outcome, who)
        self._check_calls(outcome, who)
        self._check_walk(run, who)

    def _check_text(self, outcome: Outcome, who: str) -> None:
        text = "".join(event.text for event in outcome.events if isinstance(event, Text))
        marks = set(MARK.findall(text))
        law(len(marks) <= 1, f"{who} has the text of one attempt, not {marks}")
        run = outcome.run
        law(outcome.stream or run.refusal is None or not text, f"{who} doesn't stream, and sees nothing of a failure")
        left = any(attempt.text_out for attempt in run.attempts)
        law(run.refusal is None or not text or left, f"{who} sees nothing of what is refused before a commit point")
        law(not run.request.tools or "<tool_call>" not in text, f"{who} never sees a call as text")

    def _check_calls(self, outcome: Outcome, who: str) -> None:
        deltas = [event for event in outcome.events if isinstance(event, CallDelta)]
        first = next((i for i, event in enumerate(outcome.events) if isinstance(event, CallDelta)), None)
        tail = outcome.events[first:] if first is not None else []
        law(all(isinstance(event, CallDelta) for event in tail), f"{who} gets nothing after its calls")
        law(not deltas or outcome.left or outcome.run.finish is not None, f"{who} gets no calls with a refusal")
        for delta in deltas:
            arguments = json.loads(delta.arguments)
            valid = isinstance(arguments.get("city"), str) and set(arguments) <= {"city", "days"}
            law(delta.name == "get_weather" and valid and delta.id, f"{who} gets valid calls, not {delta}")
        law(len({delta.id for delta in deltas}) == len(deltas), f"{who} gets unique ids")
        cities = {json.loads(delta.arguments)["city"] for delta in deltas}
        law(len(cities) <= 1, f"{who} has the calls of one attempt, not {cities}")

    def _check_walk(self, run: Run, who: str) -> None:
        places = [run.chain.index(attempt.tier) for attempt in run.attempts]
        law(places == sorted(places), f"{who} never goes back down the chain")
        for i, attempt in enumerate(run.attempts[:-1]):
            law(not attempt.good, f"{who} calls nobody after a good answer ({i})")
        law(sum(attempt.calls_out for attempt in run.attempts) <= 1, f"{who} has the calls of one attempt")
        if run.finish is not None:
            number = next(i for i, judged in enumerate(run.judgements) if judged is run.judged)
            accepted = run.attempts[number]
            marked = accepted.flaw in (Flaw.LOOP, Flaw.CYCLE)
            law(accepted.good or marked, f"{who} accepts only good answers and marked loops, not {accepted.flaw}")
        else:
            self._check_nudged(run, who)

    def _check_nudged(self, run: Run, who: str) -> None:
        """What a loop was nudged for can be delivered behind any text, but a broken one."""
        flaws = {attempt.flaw for attempt in run.attempts}
        held = any(attempt.flaw is Flaw.LOOP and attempt.calls_held for attempt in run.attempts)
        whole = any(a.text_out for a in run.attempts) and not any(a.text_out and a.fault for a in run.attempts)
        stopped = run.refusal is not None and held and whole and Flaw.CIRCUIT_BREAK not in flaws
        law(not stopped, f"{who} is not stopped by a nudge: {run.refusal}")

    def _check_books(self, outcome: Outcome, admission: SimAdmission) -> None:
        """A call whose Router died is charged its prompt, and its words but for less than two steps of them."""
        who, grant = outcome.run.request.request_id, outcome.lost
        if grant is None:
            return
        charged = admission.spent.get(grant.id, -1)
        law(charged >= grant.tokens - grant.output_cap, f"{who} was killed, and its call is in the books")
        if len(outcome.run.attempts) == 1:
            size = sum(text_bytes(event.text) for event in outcome.events if isinstance(event, Text | Reasoning))
            law(charged >= tokens_min(size) - 2 * PROGRESS_TOKENS, f"{who} left {size} bytes and is charged {charged}")

    async def _check_all(self, admission: SimAdmission, tiers: dict[str, SimTier]) -> None:
        law(not any(tier.active for tier in tiers.values()), "no tier works for nobody")
        await asyncio.sleep(2000)  # what was granted to a call whose answer was lost expires
        admission.expire()
        law(admission.state.grants.count == 0, "every grant is closed")
        law(max(admission.settled.values(), default=1) == 1, "a grant is settled once")
        called = sum(tier.calls for tier in tiers.values())
        law(called >= len(admission.settled), "a settled grant belongs to a call")

    async def _heal(
        self, admission: SimAdmission, tiers: dict[str, SimTier], chain: tuple[str, ...], ports: Ports
    ) -> None:
        """Without faults, and once breakers and budgets have had their time, everybody is answered."""
        for tier in tiers.values():
            tier.healed = True
        admission.silence, admission.level = 0.0, Level.NORMAL
        admission.config = replace(admission.config, budget=BudgetConfig())
        await asyncio.sleep(HEALED_AFTER_S)
        began = len(self.trace)
        for number in range(HEALED_REQUESTS):
            outcome = await self._client(REQUESTS + number, chain, ports, faults=False)
            self._check(outcome, chain)
            law(outcome.run.finish is not None, f"a healed world answers: {outcome.run.refusal}")
        states = {name: reducer.phase_of(admission.state, name, VirtualClock().now_ns()) for name in chain}
        used = {a for a in chain if any(f"{a} call" in line for line in self.trace[began:])}
        law(all(states[name] == "closed" for name in used), f"a tier that is used again is trusted again: {states}")

    def _words(self, outcome: Outcome) -> str:
        run = outcome.run
        walk = " ".join(f"{a.tier}:{a.fault or a.flaw or 'good'}" for a in run.attempts)
        end = "left" if outcome.left else run.refusal.code.value if run.refusal else "answered"
        return f"{end} [{walk}]"


def law(holds: object, words: str) -> None:
    """A checker's one statement."""
    if not holds:
        raise Broken(words)
