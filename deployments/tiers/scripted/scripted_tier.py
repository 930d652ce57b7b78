"""The tier kind `scripted`: deterministic answers and faults from a file, as a stand-in for slow or broken
models.

A script is a list of rules, in YAML, JSON or JSONL (a rule per line). The first rule whose `when` holds
answers; where none does, the tier echoes the last user message.

    rules:
      - when: {last_user: weather, has_tools: true, turn: 1}   # substring; {regex: ...} also goes
        answer:
          - reasoning: The user wants the weather.
          - tool_call: {name: get_weather, arguments: {city: Paris}}
      - when: {tool_result: {regex: "[0-9]+ C"}}
        answer: "It is {{tool_result}}."                       # one text may stand alone
      - times: 2                                               # the next two requests only
        answer: {status: 429, retry_after_s: 3}
      - weight: 3                                              # drawn among all fitting rules with a weight
        token_delay_s: 0.02
        answer: [{text: "Slow and "}, {delay_s: 1, text: "steady."}]
      - weight: 1
        cut_after_tokens: 4
        answer: "This never arrives in full."

- `when`: `last_user`, `tool_result` (the last message, if a tool's), `transcript`, each a substring or
  `{contains, regex}`; `turn` (1 + assistant messages so far), `has_tools`, `tier`.
- `answer`: steps, each doing one thing: `text` (with `{{last_user}}`, `{{tool_result}}`, `{{turn}}`,
  `{{tier}}`), `raw` (verbatim), `reasoning`, `refusal`, `tool_call {name, arguments, id}` (`arguments` as a text
  leaves as it is), `status` (with `retry_after_s`, `message`, `code`, `param`), `cut`, `silence`, `unavailable:
  reason`, `loading`, `fault: name`. A fault as the first step comes before `Started`, as a status line
  would; later ones break a running answer.
- pace, per step, rule or script: `token_delay_s`, `chunk_tokens` or `chunk_chars`; per step `delay_s`; per
  rule `start_delay_s` (before `Started`).
- per rule: `times`, `weight`, `cut_after_tokens` (at the latest in place of the finish), `finish`, `usage
  {...}`, `no_usage`.
- per script: `unavailable: reason`, `loading: reason` (the state of the tier), `draw_by: content | order`.

A draw depends on the seed and the request's content, so the same request gets the same answer; with
`draw_by: order` on the seed and the number of the request. A script that is missing or wrong makes the tier
unavailable, with the reason. The only state is how often each rule was used; it belongs to the tier and
changes when a stream starts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from deployments.tiers.scripted.player import Facts, fits, play_rule
from deployments.tiers.scripted.script import Rule, Script, ScriptError, ScriptStep, load_script
from deployments.work.large_work import large
from reliability.escalation.refusals import figure
from reliability.types import ChatRequest, Event, Failed, Fault, Text, TierState, TierStatus

__all__ = ["ScriptedTier"]

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
        self._script, self._problem = _load(script)
        self._used = [0] * len(self._script.rules)
        self._requests = 0
        self._active = 0
        self._closed = False

    @property
    def active(self) -> int:
        """How many streams are running."""
        return self._active

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer as the script says."""
        facts, size = Facts(request, self._name), request.body_bytes
        refusal = await large(size, self._find_refusal, facts)
        if refusal is not None:
            yield [refusal]
            return
        self._active += 1
        unsaid = request.begun  # as a model goes on: what stands before the client isn't said again
        try:
            for script_event in play_rule(self._script, await large(size, self._choose, facts), facts):
                await asyncio.sleep(script_event.delay_s)  # also at 0: a long answer must not hold the loop
                if script_event.hangs:
                    await asyncio.get_running_loop().create_future()
                events, unsaid = _drop_said(script_event.events, unsaid)
                if events:
                    yield events
        finally:
            self._active -= 1

    async def status(self) -> TierStatus:
        """Return what the script says of the tier."""
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
            limit = figure(self._context_tokens)
            words = f"tier {self._name} can't hold a prompt of {figure(facts.prompt_tokens)} tokens (it holds {limit})"
            return Failed(fault=Fault.CONTEXT_LENGTH, message=words, param="messages")
        return None

    def _choose(self, facts: Facts) -> Rule:
        """Choose the rule that answers, and count it as used."""
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
            dice = random.Random(f"{self._seed}:{drawn_by}")
            chosen = dice.choices(list(weights), list(weights.values()))[0]
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


def _load(script: str | Path | list[dict[str, Any]] | Mapping[str, Any]) -> tuple[Script, str | None]:
    try:
        return load_script(script), None
    except ScriptError as error:
        return Script(), str(error)
