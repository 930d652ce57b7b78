"""The tier kind `scripted`: deterministic answers and faults from a file, for tests and demonstrations
(docs/scripted.md).

A draw depends on the seed and the request's content, with `draw_by: order` on the number of the request. A script that
is missing or wrong makes the tier unavailable, with the reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from deployments.tiers.scripted.player import Facts, Player, fits
from deployments.tiers.scripted.script import Rule, Script, ScriptError, ScriptStep, load_script
from deployments.work.large_work import large
from reliability.escalation.refusals import figure
from reliability.types import ChatRequest, Event, Failed, Fault, Text, TierState, TierStatus

_ECHO = Rule(answer=[ScriptStep(text="[{{tier}}] You said: {{last_user}}")])


class ScriptedTier:
    """A tier that says what its script says."""

    def __init__(
        self,
        *,
        name: str,
        script: str | Path | list[dict[str, Any]] | Mapping[str, Any],
        seed: int = 0,
        context_tokens: int | None = None,
    ) -> None:
        self._name = name
        self._seed = seed
        self._context_tokens = context_tokens
        self._source = Path(script).name if isinstance(script, str | Path) else "rules"
        self._script, self._problem = Script(), ""
        try:
            self._script = load_script(script)
        except ScriptError as error:
            self._problem = str(error)
        self._used = [0] * len(self._script.rules)
        self._requests = 0
        self.active = 0
        self._closed = False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        facts, size = Facts(request, self._name), request.body_bytes
        refusal = await large(size, self._find_refusal, facts)
        if refusal is not None:
            yield [refusal]
            return
        self.active += 1
        unsaid = request.begun  # as a model goes on: what stands before the client isn't said again
        try:
            for script_event in Player(self._script, await large(size, self._choose, facts), facts).play():
                await asyncio.sleep(script_event.delay_s)  # also at 0: a long answer must not hold the loop
                if script_event.hangs:
                    await asyncio.get_running_loop().create_future()
                events, unsaid = _drop_said(script_event.events, unsaid)
                if events:
                    yield events
        finally:
            self.active -= 1

    async def status(self) -> TierStatus:
        state, reason = self._find_state()
        return TierStatus(
            name=self._name,
            kind="scripted",
            state=state,
            reason=reason,
            model=f"scripted/{self._name}",
            source=self._source,
            context_tokens=self._context_tokens,
        )

    async def close(self) -> None:
        """Take no more requests; those that run may end."""
        self._closed = True

    def _find_state(self) -> tuple[TierState, str]:
        problem = "it is closed" if self._closed else self._problem or self._script.unavailable
        if problem is not None:
            return TierState.UNAVAILABLE, problem
        if self._script.loading is not None:
            return TierState.LOADING, self._script.loading
        return TierState.READY, ""

    def _find_refusal(self, facts: Facts) -> Failed | None:
        state, reason = self._find_state()
        if state is not TierState.READY:
            fault = Fault.LOADING if state is TierState.LOADING else Fault.UNAVAILABLE
            return Failed(fault=fault, message=f"tier {self._name} is {state.value}: {reason}")
        if self._context_tokens is not None and facts.prompt_tokens >= self._context_tokens:
            asked, limit = figure(facts.prompt_tokens), figure(self._context_tokens)
            words = f"tier {self._name} can't hold a prompt of {asked} tokens (it holds {limit})"
            return Failed(fault=Fault.CONTEXT_LENGTH, message=words, param="messages")
        return None

    def _choose(self, facts: Facts) -> Rule:
        rules = self._script.rules
        self._requests += 1
        open_rules = [i for i, rule in enumerate(rules) if rule.times is None or self._used[i] < rule.times]
        fitting = [i for i in open_rules if fits(rules[i].when, facts)]
        if not fitting:
            return _ECHO
        chosen = fitting[0]
        if rules[chosen].weight is not None:
            drawn_by = facts.digest if self._script.draw_by == "content" else self._requests
            weights = {i: weight for i in fitting if (weight := rules[i].weight) is not None}
            [chosen] = random.Random(f"{self._seed}:{drawn_by}").choices([*weights], [*weights.values()])
        self._used[chosen] += 1
        return rules[chosen]


def _drop_said(events: list[Event], unsaid: str) -> tuple[list[Event], str]:
    """Drop what stands already; a script that says otherwise doesn't go on with it."""
    out: list[Event] = []
    for event in events:
        if not unsaid or not isinstance(event, Text):
            out.append(event)
            continue
        shared = min(len(event.text), len(unsaid))
        if event.text[:shared] != unsaid[:shared]:
            return [*out, Failed(fault=Fault.SEAM, message="the script says something else")], unsaid
        unsaid = unsaid[shared:]
        out += [Text(event.text[shared:])] if len(event.text) > shared else []
    return out, unsaid
