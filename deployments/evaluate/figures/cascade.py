"""The learned chain: which tiers, re-asked in which way, give the most right answers for the least. Pure.

Each candidate (part of the chain, way to re-ask, rule where `auto` starts) is played on the records of each tier alone,
with its price in seconds, and in dollars where known. Half of the cases fit the choice: the least price of a right
answer among candidates that are as right as the default and cost no more. It is proposed if the other half confirms it.
Invariants: no choice is judged by the cases that chose it; every candidate can be configured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.evaluate.figures.shares import describe_share

CASES_MIN = 8
CONFIGURED, GRAMMAR = "as configured", "grammar at once"
# Features of a request by which `auto` may start further behind, with the least value at which it does.
STARTS: tuple[tuple[str, int], ...] = (("tools", 2), ("messages", 2), ("prompt_bytes", 1_500), ("prompt_bytes", 3_000))
SHOWN_MAX = 60
# A rule of the configuration (`start_at`): the tier, and the least value of each feature that it names.
Rule = tuple[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """How one tier did on one case, alone: by the way in which it is asked again."""

    delivered: bool
    right: bool
    seconds: float
    tokens: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlayedCase:
    """One case: its features, and each tier's ways."""

    number: int
    features: Mapping[str, int]
    ways: Mapping[str, Mapping[str, _Ways]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A chain: its tiers in order, each with the way to ask it again. `start`: a feature, the least value, and the tier
    at which `auto` then starts; `configured`: the rules of the configuration, which what is configured starts by."""

    tiers: tuple[tuple[str, str], ...]
    start: tuple[str, int, str] | None = None
    configured: tuple[Rule, ...] = ()

    @property
    def words(self) -> str:
        parts = [" → ".join(name if way == CONFIGURED else f"{name} ({way})" for name, way in self.tiers)]
        for tier, rule in self.rules:
            parts.append(f"{' and '.join(f'{feature} from {least}' for feature, least in rule)} on start at {tier}")
        return "; ".join(parts)

    @property
    def rules(self) -> tuple[Rule, ...]:
        if self.start is None:
            return self.configured
        feature, least, tier = self.start
        return ((tier, ((feature, least),)),)

    def list_asked(self, features: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
        """List the tiers that a request with these features is tried on: from that of the first rule that fits it."""
        names = [name for name, _ in self.tiers]
        for tier, parts in self.rules:
            if tier in names and all(features[feature] >= least for feature, least in parts):
                return self.tiers[names.index(tier) :]
        return self.tiers


@dataclass(slots=True)
class _Played:
    right: int = 0
    delivered: int = 0
    runs: int = 0
    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    hits: list[bool] = field(default_factory=list)


def read_cases(cells: Mapping[str, Mapping[str, Any]], chain: Sequence[str]) -> list[_PlayedCase]:
    """Read the cases that every tier of the chain was asked."""
    found = []
    numbers = sorted({int(key.rsplit("/", 1)[1]) for key in cells if key.startswith("layers/call/")})
    for number in numbers:
        results = {tier: cells.get(f"layers/call/{tier}/{number}") for tier in chain}
        known = {tier: result for tier, result in results.items() if result is not None}
        if len(known) < len(chain):
            continue
        ways = {}
        for tier, result in known.items():
            ways[tier] = {CONFIGURED: _read_way(result)}
            if (hasty := cells.get(f"constrain/call/{tier}/{number}")) is not None:
                ways[tier][GRAMMAR] = _read_way(hasty)
        features = next(iter(known.values()))["features"]
        found.append(_PlayedCase(number=number, features=features, ways=ways))
    return found


def _read_way(result: Mapping[str, Any]) -> _Ways:
    return _Ways(
        delivered=not result["error"],  # prose too: the server delivers it, and the chain ends there
        right=result["right"],
        seconds=result["seconds"],
        tokens=result["tokens"],
        usd=result["cost_usd"] or 0.0,
    )


def play(candidate: _Candidate, cases: Sequence[_PlayedCase]) -> _Played:
    """Play a chain on the cases."""
    played = _Played()
    for case in cases:
        hit = False
        for name, way in candidate.list_asked(case.features):
            one = case.ways[name][way]
            played.seconds += one.seconds
            played.tokens += one.tokens
            played.usd += one.usd
            if one.delivered:
                played.delivered += 1
                hit = one.right
                break
        played.runs += 1
        played.right += hit
        played.hits.append(hit)
    return played


def list_candidates(chain: Sequence[str], cases: Sequence[_PlayedCase]) -> Iterator[_Candidate]:
    """List every chain that the server can be told."""
    ways = {
        tier: [way for way in (CONFIGURED, GRAMMAR) if all(way in case.ways[tier] for case in cases)] for tier in chain
    }
    for size in range(1, len(chain) + 1):
        for part in itertools.combinations(chain, size):
            for chosen in itertools.product(*(ways[tier] for tier in part)):
                tiers = tuple(zip(part, chosen, strict=True))
                yield _Candidate(tiers)
                for (feature, least), tier in itertools.product(STARTS, part[1:]):
                    yield _Candidate(tiers, (feature, least, tier))


def learn_chain(
    cells: Mapping[str, Mapping[str, Any]], chain: Sequence[str], start_at: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Choose a chain, and say what it is worth; `why` says why there is no choice. `start_at` is what the configuration
    has of it."""
    cases = read_cases(cells, chain)
    if len(cases) < CASES_MIN:
        why = f"{len(cases)} cases were run on every tier; {CASES_MIN} are needed"
        return {"proposal": None, "why": why, "cases": len(cases)}
    # By twos of three categories: both halves hold as many of each.
    fit = [case for case in cases if case.number // 3 % 2 == 0]
    held = [case for case in cases if case.number // 3 % 2 == 1]
    default = _Candidate(tuple((tier, CONFIGURED) for tier in chain), configured=tuple(map(_read_rule, start_at)))
    played = {one: play(one, fit) for one in (default, *list_candidates(chain, cases))}
    chosen = _choose(played, default)
    why = _find_objection(chosen, default, held)
    return {
        "proposal": None if why else _write_patch(chosen, chain, anew=bool(start_at)),
        "why": why,
        "cases": len(cases),
        "default": _compare(default, fit, held),
        "chosen": _compare(chosen, fit, held),
        "candidates": _list_shown(played, default, chosen),
    }


def _read_rule(rule: Mapping[str, Any]) -> Rule:
    parts = {feature: rule.get(f"{feature}_min") for feature in ("tools", "messages", "prompt_bytes")}
    return rule["tier"], tuple((feature, least) for feature, least in parts.items() if least is not None)


def _choose(played: Mapping[_Candidate, _Played], default: _Candidate) -> _Candidate:
    """Choose the least price of a right answer among those that are as right as the default for as much; where nothing
    of that price is right at all, among those that are right."""
    base = played[default]
    good = [one for one, now in played.items() if now.right >= base.right and _price(now) <= _price(base)]
    if not any(played[one].right for one in good):
        good = [one for one, now in played.items() if now.right] or good

    def rank(one: _Candidate) -> tuple[Any, ...]:
        now = played[one]
        usd, seconds = _price(now)
        most = now.right or 0.01
        # Of equals the one with more tiers: who is down needs somebody behind.
        return (usd / most, seconds / most, -len(one.tiers), one.start is not None, one != default)

    return min(good, key=rank)


def _find_objection(chosen: _Candidate, default: _Candidate, held: Sequence[_PlayedCase]) -> str:
    """Say why the choice isn't proposed: it is the default, or the held-out cases don't bear it out."""
    if chosen == default:
        return "none that is right as often costs less than what is configured"
    before, after = play(default, held), play(chosen, held)
    if after.right < before.right:
        return f"on held-out cases the best of the fit is right in {after.right}, what is configured in {before.right}"
    if not after.right:
        return "on held-out cases neither it nor what is configured is ever right"
    if _price_right(after) >= _price_right(before):
        return "on held-out cases a right answer of the best of the fit costs no less"
    return ""


def _price_right(played: _Played) -> tuple[float, float]:
    if not played.right:
        return math.inf, math.inf
    usd, seconds = _price(played)
    return usd / played.right, seconds / played.right


def _price(played: _Played) -> tuple[float, float]:
    """Dollars first, where any are spent; then seconds."""
    return round(played.usd, 9), round(played.seconds, 6)


def _compare(candidate: _Candidate, fit: Sequence[_PlayedCase], held: Sequence[_PlayedCase]) -> dict[str, Any]:
    halves = {"fit": _describe(play(candidate, fit)), "held_out": _describe(play(candidate, held))}
    return {"words": candidate.words} | halves


def _describe(played: _Played) -> dict[str, Any]:
    runs = played.runs or 1
    return {
        "right": describe_share(played.right, played.runs),
        "delivered": describe_share(played.delivered, played.runs),
        "seconds": played.seconds / runs,
        "tokens": played.tokens / runs,
        "usd": played.usd / runs,
    }


def _list_shown(played: Mapping[_Candidate, _Played], default: _Candidate, chosen: _Candidate) -> list[dict[str, Any]]:
    """List the candidates of the plot: those that no other one beats, and the cheapest of the rest."""
    ordered = sorted(played, key=lambda one: (_price(played[one]), -played[one].right))
    shown = [one for one in ordered if one in (default, chosen)]
    best = -1
    for one in ordered:
        if played[one].right > best:
            best = played[one].right
            shown.append(one)
    shown += ordered[:SHOWN_MAX]
    roles, found = {default: "default"} | {chosen: "chosen"}, []
    for one in dict.fromkeys(shown):
        now, runs = played[one], played[one].runs or 1
        figures = {"right": now.right / runs, "seconds": now.seconds / runs, "usd": now.usd / runs}
        found.append({"words": one.words, **figures, "role": roles.get(one, "")})
    return found


def _write_patch(chosen: _Candidate, chain: Sequence[str], *, anew: bool) -> dict[str, Any]:
    """Write the choice as a patch to `args`. `anew`: there are rules where to start that aren't its own."""
    escalation: dict[str, Any] = {}
    names = [name for name, _ in chosen.tiers]
    if names != list(chain):
        escalation["chain"] = names
    if chosen.start is not None:
        feature, least, tier = chosen.start
        escalation["start_at"] = [{"tier": tier, f"{feature}_min": least}]
    elif anew:
        escalation["start_at"] = []
    patch: dict[str, Any] = {}
    if escalation:
        patch["reliability"] = {"escalation": escalation}
    tiers = {name: {"retry_strategy": ["constrain"]} for name, way in chosen.tiers if way == GRAMMAR}
    if tiers:
        patch["tiers"] = tiers
    return patch
