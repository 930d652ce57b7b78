"""The learned chain: which tiers, re-asked in which way, give the most right answers for the least. Pure.

Each candidate (part of the chain, way to re-ask, rule where `auto` starts, how likely a call has to be right) is played
on the records of each tier alone, with its price in seconds, and in dollars where known. Half of the cases fit the
choice: the least price among candidates that are at least as right as the default and nearly as right as the best of
them, for no more dollars. It is proposed if the other half confirms it.
Invariants: no choice is judged by the cases that chose it; every candidate can be configured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.evaluate.calls.call_cases import CATEGORIES
from deployments.evaluate.figures.confidence import estimate_calls
from deployments.evaluate.figures.tables import Cells, describe_share, select_cells
from reliability.config import StartRule

CASES_MIN = 8
CONFIGURED, GRAMMAR = "as configured", "grammar at once"
# Features of a request by which `auto` may start further behind, with the least value at which it does.
STARTS: tuple[tuple[str, int], ...] = (("tools", 2), ("messages", 2), ("prompt_bytes", 1_500), ("prompt_bytes", 3_000))
# How likely a call has to be right to end the chain; 0: any valid one does.
LEASTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NEARLY = 0.97
_SHOWN_MAX = 60

# What a tier alone made of a case, and how likely its calls were thought to be right; None where nothing tells.
_Answer = tuple[Mapping[str, Any], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlayedCase:
    """One case: its features, and each tier's answers, by the way in which it is asked again. `fitted`: the tiers
    whose calibration is a fit on these cases, which no server has yet."""

    number: int
    features: Mapping[str, int]
    ways: Mapping[str, Mapping[str, _Answer]]
    fitted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A chain: its tiers, each with its way to re-ask. `rules`: where `auto` starts; `least`: confidence that ends
    it; `fitted`: also that of the calibrations that are fitted here."""

    tiers: tuple[tuple[str, str], ...]
    rules: tuple[StartRule, ...] = ()
    least: float = 0.0
    fitted: bool = False

    @property
    def words(self) -> str:
        parts = [" → ".join(name if way == CONFIGURED else f"{name} ({way})" for name, way in self.tiers)]
        for rule in self.rules:
            least = rule.model_dump(exclude={"tier"}, exclude_none=True)
            named = [f"{name.removesuffix('_min')} from {value}" for name, value in least.items()]
            parts.append(f"{' and '.join(named)} on start at {rule.tier}")
        if self.least:
            by = ", by calibrations of this report" if self.fitted else ""
            parts.append(f"calls that are right with less than {self.least:.0%} go on{by}")
        return "; ".join(parts)

    def list_asked(self, features: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
        """List the tiers that a request with these features is tried on: from that of the first rule that fits it."""
        names = [name for name, _ in self.tiers]
        for rule in self.rules:
            if rule.tier in names and rule.fits(**features):
                return self.tiers[names.index(rule.tier) :]
        return self.tiers


@dataclass(slots=True)
class _Played:
    right: int = 0
    delivered: int = 0
    runs: int = 0
    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0


def _read_cases(cells: Cells, chain: Sequence[str]) -> list[_PlayedCase]:
    """Read the cases that every tier of the chain was asked."""
    found = []
    alone, hasty = select_cells(cells, "layers", "call"), select_cells(cells, "constrain", "call")
    likely = {tier: estimate_calls(cells, tier, _is_fitted) for tier in chain}
    fitted = frozenset(tier for tier in chain if likely[tier] and not estimate_calls(cells, tier, lambda _: False))
    for name in sorted(set.intersection(*(set(alone.get(tier, {})) for tier in chain)), key=int):
        ways: dict[str, dict[str, _Answer]] = {}
        for tier in chain:
            result, told = alone[tier][name], likely[tier].get(int(name))
            ways[tier] = {CONFIGURED: (result, told)}
            if again := hasty.get(tier, {}).get(name):
                # Of an answer that was another one nothing is known.
                ways[tier][GRAMMAR] = again, told if again["calls"] == result["calls"] else None
        features = alone[chain[0]][name]["features"]
        found.append(_PlayedCase(number=int(name), features=features, ways=ways, fitted=fitted))
    return found


def _play(candidate: _Candidate, cases: Sequence[_PlayedCase]) -> _Played:
    played = _Played()
    for case in cases:
        answer = _play_case(candidate, case, played)
        played.runs += 1
        played.delivered += answer is not None
        played.right += answer is not None and answer["right"]
    return played


def _play_case(candidate: _Candidate, case: _PlayedCase, played: _Played) -> Mapping[str, Any] | None:
    """Ask the tiers in turn, as `reliability.escalation.policies` does; return the answer that is delivered."""
    asked = candidate.list_asked(case.features)
    doubted: list[tuple[float, int, Mapping[str, Any]]] = []
    for at, (name, way) in enumerate(asked, 1):
        answer, likely = case.ways[name][way]
        played.seconds += answer["seconds"]
        played.tokens += answer["tokens"]
        played.usd += answer["cost_usd"] or 0.0
        if answer["error"]:  # prose is none: the server delivers it, and the chain ends there
            continue
        likely = None if name in case.fitted and not candidate.fitted else likely
        if likely is None or likely >= candidate.least or (at == len(asked) and not doubted):
            return answer
        doubted.append((likely, at, answer))
    return max(doubted)[-1] if doubted else None


def _list_candidates(chain: Sequence[str], cases: Sequence[_PlayedCase], least: float = 0.0) -> Iterator[_Candidate]:
    """List every chain that the server can be told; `least` is what is configured."""
    ways = {
        tier: [way for way in (CONFIGURED, GRAMMAR) if all(way in case.ways[tier] for case in cases)] for tier in chain
    }
    rules = {tier: [StartRule(tier=tier, **{f"{feature}_min": value}) for feature, value in STARTS] for tier in chain}
    for size in range(1, len(chain) + 1):
        for part in itertools.combinations(chain, size):
            told = (told for case in cases for tier in part[:-1] for _, told in case.ways[tier].values())
            tells = any(one is not None for one in told)
            for chosen in itertools.product(*(ways[tier] for tier in part)):
                tiers = tuple(zip(part, chosen, strict=True))
                for bound in LEASTS if tells else (least,):
                    fitted = tells and bound > 0 and not cases[0].fitted.isdisjoint(part)
                    yield _Candidate(tiers, least=bound, fitted=fitted)
                    for at, tier in itertools.product(range(len(STARTS)), part[1:]):
                        yield _Candidate(tiers, (rules[tier][at],), least=bound, fitted=fitted)


def learn_chain(
    cells: Cells, chain: Sequence[str], start_at: Sequence[StartRule] = (), least: float = 0.0
) -> dict[str, Any]:
    """Choose a chain, and say what it is worth, or `why` there is none. `start_at`, `least`: as configured."""
    cases = _read_cases(cells, chain)
    if len(cases) < CASES_MIN:
        why = f"{len(cases)} cases were run on every tier; {CASES_MIN} are needed"
        return {"proposal": None, "why": why, "cases": len(cases)}
    fit = [case for case in cases if _is_fitted(case.number)]
    held = [case for case in cases if not _is_fitted(case.number)]
    default = _Candidate(tuple((tier, CONFIGURED) for tier in chain), tuple(start_at), least)
    played = {one: _play(one, fit) for one in (default, *_list_candidates(chain, cases, least))}
    chosen = _choose(played, default)
    why = _find_objection(chosen, default, held)
    return {
        "proposal": None if why else _write_patch(chosen, default),
        "why": why,
        "cases": len(cases),
        "default": _compare(default, fit, held),
        "chosen": _compare(chosen, fit, held),
        "candidates": _list_shown(played, default, chosen),
    }


def _is_fitted(number: int) -> bool:
    """Tell whether a case is one of the half that fits: by groups of all categories, so both halves hold as many."""
    return number // len(CATEGORIES) % 2 == 0


def _choose(played: Mapping[_Candidate, _Played], default: _Candidate) -> _Candidate:
    """Choose the least price among those that are as right as the default, cost no more dollars, and are nearly as
    right as the best. (By the price of a right answer one tier alone is always the cheapest.)"""
    base = played[default]
    good = {one: now for one, now in played.items() if now.right >= base.right and _price(now)[0] <= _price(base)[0]}
    most = max(now.right for now in good.values())
    good = {one: now for one, now in good.items() if now.right >= NEARLY * most}

    def rank(one: _Candidate) -> tuple[Any, ...]:
        # Of equals the one with more tiers: who is down needs somebody behind.
        return (*_price(good[one]), -len(one.tiers), bool(one.rules) and one != default, one.least, one != default)

    return min(good, key=rank)


def _find_objection(chosen: _Candidate, default: _Candidate, held: Sequence[_PlayedCase]) -> str:
    """Say why the choice isn't proposed: it is the default, or the held-out cases don't bear it out."""
    if chosen == default:
        return "none is right more often, and none that is right as often costs less than what is configured"
    before, after = _play(default, held), _play(chosen, held)
    if after.right < before.right:
        return f"on held-out cases the best of the fit is right in {after.right}, what is configured in {before.right}"
    if not after.right:
        return "on held-out cases neither it nor what is configured is ever right"
    if after.right == before.right and _price(after) >= _price(before):
        return "on held-out cases the best of the fit is as right and costs no less"
    return ""


def _price(played: _Played) -> tuple[float, float]:
    """Dollars first, where any are spent; then seconds."""
    return round(played.usd, 9), round(played.seconds, 6)


def _compare(candidate: _Candidate, fit: Sequence[_PlayedCase], held: Sequence[_PlayedCase]) -> dict[str, Any]:
    halves = {"fit": _describe(_play(candidate, fit)), "held_out": _describe(_play(candidate, held))}
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
    shown += ordered[:_SHOWN_MAX]
    roles, found = {default: "default", chosen: "chosen"}, []
    for one in dict.fromkeys(shown):
        now, runs = played[one], played[one].runs or 1
        figures = {"right": now.right / runs, "seconds": now.seconds / runs, "usd": now.usd / runs}
        found.append({"words": one.words, **figures, "role": roles.get(one, "")})
    return found


def _write_patch(chosen: _Candidate, default: _Candidate) -> dict[str, Any]:
    escalation: dict[str, Any] = {}
    names, before = ([name for name, _ in one.tiers] for one in (chosen, default))
    if names != before:
        escalation["chain"] = names
    if chosen.least != default.least or chosen.fitted:
        escalation["confidence"] = {"min": chosen.least}
    if chosen.rules != default.rules:
        escalation["start_at"] = [rule.model_dump(exclude_none=True) for rule in chosen.rules]
    tiers = {name: {"retry_strategy": ["constrain"]} for name, way in chosen.tiers if way == GRAMMAR}
    patch: dict[str, Any] = {"reliability": {"escalation": escalation}} if escalation else {}
    return patch | ({"tiers": tiers} if tiers else {})
