"""How well a small model's calls tell of themselves whether they are right, and what a chain gains by it.

    python -m loadtests.confidence answers --model small --cases 500    greedy answers of a model, one row each
    python -m loadtests.confidence figures [--write]                    what they tell, and the chains they make

The cases are recorded ones (BFCL), drawn evenly from the kinds below with a fixed seed, and behind them steps of
conversations of several turns (`scoreboard/drivers/bfcl_steps.py`). Rows are kept in `confidence.jsonl`, each with the
answer as the model wrote it; a run goes on where the last one stopped. Every estimate is that of a fit without the
call. A chain is played by `reliability.escalation.policies.decide` on the first answers of its tiers. `--write` fits
the calibrations of the package on all rows, and draws their plot.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from deployments.evaluate.calls.call_run import are_right
from deployments.evaluate.figures.confidence import (
    Point,
    are_enough,
    estimate_unseen,
    fit_calibration,
    judge_confidence,
)
from deployments.evaluate.pages.plots import draw_confidence
from deployments.models.calibrations import FILE as CALIBRATIONS
from deployments.models.sources import CODER_LARGE, CODER_SMALL, DEFAULT_SOURCE
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.bfcl import CASE_S, TOKENS_MAX, build_case_toolbox, build_request, collect_events
from loadtests.real_agents.agents import CACHE
from loadtests.scoreboard.suites import install_suite
from reliability.answer.answer_calls import collapse_calls
from reliability.attempt import Attempt, Confidence
from reliability.confidence import Calibration, Gauge, ModelCalibration, read_signs
from reliability.escalation.decisions import Accept, Call, Limits, Situation
from reliability.escalation.policies import decide
from reliability.tools import RawCall, check_calls, extract_calls, id_source
from reliability.types import CallDelta, Finish, Flaw, Reason, Text
from tests.evals.tool_cases import records

ROWS = Path(__file__).with_name("confidence.jsonl")
MODELS = {"tiny": DEFAULT_SOURCE, "small": CODER_SMALL, "large": CODER_LARGE}
NAMES = {"tiny": "SmolLM2-135M", "small": "Qwen2.5-Coder-0.5B", "large": "Qwen2.5-Coder-1.5B"}
# By itself it makes one valid call in 126 answers; what it is asked for at last is an answer under the grammar.
CONSTRAINED = {"tiny"}
SEED = 20261126
KINDS = {
    "simple_python": 80,
    "multiple": 80,
    "live_simple": 80,
    "live_multiple": 120,
    "parallel": 60,
    "parallel_multiple": 60,
    "irrelevance": 100,
    "live_irrelevance": 120,
    "simple_java": 20,
    "simple_javascript": 15,
    "live_parallel": 9,
    "live_parallel_multiple": 12,
    "live_relevance": 9,
}
TURNS, TURN_CASES = "multi_turn_base", 60
TURN_SHARERS_MIN = 4  # steps that share their functions: 5,000 tokens or more, which the prompt cache then holds
ROUNDS = 10
PLOT = Path(__file__).parents[1] / "docs" / "decisions" / "092-confidence.svg"
SVG = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12"'
COLORS = ("#999", "#b35900", "#0a6ebd", "#1a7f37")
STYLE = "svg{background:#fff}.grid{stroke:#ddd}.tick{fill:#666}.line{fill:none;stroke-width:1.5}" + "".join(
    f".line.s{number}{{stroke:{color}}}.dot.s{number}{{fill:{color}}}" for number, color in enumerate(COLORS)
)
LEASTS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)
Row = Mapping[str, Any]


def draw_cases() -> list[Mapping[str, Any]]:
    """Draw the cases of all kinds, in one order."""
    dice = random.Random(SEED)
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    drawn: list[Mapping[str, Any]] = []
    for case in records("bfcl_cases"):
        kinds.setdefault(case["category"], []).append(case)
    for kind, count in KINDS.items():
        some = [case for case in kinds.get(kind, ()) if case["gt_valid"] or not case["ground_truth"]]
        drawn += dice.sample(some, min(count, len(some)))
    dice.shuffle(drawn)
    return drawn


def draw_steps() -> list[Mapping[str, Any]]:
    """Draw the steps of conversations of several turns, which BFCL's own environment plays up to them, those that share
    their functions next to each other."""
    python = install_suite("bfcl", CACHE)
    driver = Path(__file__).parent / "scoreboard" / "drivers" / "bfcl_steps.py"
    drawn = subprocess.run([str(python), str(driver), "--cases", str(TURN_CASES)], stdout=subprocess.PIPE, check=True)
    steps = [json.loads(line) for line in drawn.stdout.splitlines()]
    sharers = Counter(json.dumps(step["tools"]) for step in steps)
    shared = [step for step in steps if sharers[json.dumps(step["tools"])] >= TURN_SHARERS_MIN]
    return sorted(shared, key=lambda step: json.dumps(step["tools"]))


def read_rows() -> list[Row]:
    """Read what is known."""
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()] if ROWS.exists() else []


async def answer_cases(model: str, count: int) -> None:
    """Ask a model for what isn't in the rows yet, and add it."""
    known = {row["id"]: row for row in read_rows() if row["model"] == model}
    tier = MlxTier(name=model, model=MODELS[model], max_running=6, max_waiting=24, blas_threads=2)
    print((await tier.wait_for_load(CASE_S)).state, flush=True)
    slots = asyncio.Semaphore(6)

    async def answer(case: Mapping[str, Any]) -> None:
        async with slots:
            began_s = time.monotonic()
            request = build_request(case, max_tokens=TOKENS_MAX, constrained=model in CONSTRAINED)
            events = await collect_events(tier, request)
            took_s = known.get(case["id"], {}).get("seconds") or round(time.monotonic() - began_s, 2)  # the first time
            row = {"model": model, **judge_answer(case, events), "seconds": took_s}
            with ROWS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def leave_out_known(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [case for case in cases if "answer" not in known.get(case["id"], ())]

    for _, sharing in itertools.groupby(leave_out_known(draw_steps()), key=lambda step: json.dumps(step["tools"])):
        first, *others = sharing
        await answer(first)
        await asyncio.gather(*map(answer, others))
    await asyncio.gather(*map(answer, leave_out_known(draw_cases()[:count])))
    await tier.close()


def judge_answer(case: Mapping[str, Any], events: Sequence[Any]) -> dict[str, Any]:
    """Judge a first answer: whether it may be delivered, whether it is right, and its signs if it has calls."""
    text = "".join(event.text for event in events if isinstance(event, Text))
    native: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, CallDelta):
            one = native.setdefault(event.index, ["", ""])
            one[0], one[1] = one[0] or event.name or "", one[1] + event.arguments
    box = build_case_toolbox(case)
    found = extract_calls(text, box)
    calls, _ = collapse_calls(found.calls, box)
    raw = [*calls, *(RawCall(name=name, arguments=given, id="own") for name, given in native.values())]
    said = tuple(message["content"] for message in case["messages"] if isinstance(message.get("content"), str))
    new_id = id_source(case["id"])
    checked = check_calls(raw, box, new_id=new_id, malformed=found.malformed, conversation=said or None)
    called = [(call.name, call.arguments) for call in checked.calls]
    wanted = case["ground_truth"] or case["category"] == "live_relevance"
    valid, end = not checked.violations, events[-1]
    acceptable = case["acceptable"][: len(called) or None] if case["category"] == TURNS else case["acceptable"]
    right = valid and (bool(called) if case["category"] == "live_relevance" else are_right(called, acceptable))
    row = {"id": case["id"], "category": case["category"], "wanted": bool(wanted), "valid": valid, "right": right}
    row["answer"] = text if not native else list(native.values())
    row["unsure"] = [(token, round(by, 3)) for token, by in (end.unsure if isinstance(end, Finish) else None) or ()]
    if valid and called and isinstance(end, Finish) and end.unsure is not None:
        texts = said[::-1]
        asked = texts[0] if case["messages"][-1]["role"] == "user" else ""
        signs = read_signs(checked.calls, box, texts, asked, end.unsure)
        row["signs"] = {name: round(value, 3) for name, value in signs.items()}
    return row


class Played:
    """The first answers of some models on the cases that each of them was asked, with estimates of fits that have not
    seen them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = {model: {row["id"]: row for row in rows if row["model"] == model} for model in MODELS}
        self.rows = {model: known for model, known in self.rows.items() if known}
        self.likely, self.unwanted, self.shares = {}, {}, {}
        for model, known in self.rows.items():
            self.likely[model] = _estimate(known.values(), "right", hit=True)
            self.unwanted[model] = _estimate(known.values(), "wanted", hit=False)
            self.shares[model] = _count_share(_read_points(known.values(), "right", hit=True))

    def find_cases(self, chain: Sequence[str], *, turns: bool = False) -> set[str]:
        """Find the cases that each of these models was asked: of one turn, or of several."""
        asked = set.intersection(*(set(self.rows[model]) for model in chain))
        return {name for name in asked if (self.rows[chain[0]][name]["category"] == TURNS) is turns}

    def judge(self, model: str, calls: Sequence[Row]) -> list[dict[str, Any]]:
        """Judge how well the estimates of a model tell right calls, and unwanted ones."""
        kinds = (self.likely[model], "right", True), (self.unwanted[model], "wanted", False)
        return [
            judge_confidence([known[row["id"]] for row in calls], [row[field] is hit for row in calls])
            for known, field, hit in kinds
        ]

    def play(self, chain: Sequence[str], least: float, ids: Collection[str]) -> dict[str, Any]:
        """Play a chain on these cases."""
        counts, seconds = Counter[str](), 0.0
        for name in ids:
            attempts, answer = self._play_case(chain, name, least)
            right = self._is_right(chain, name, answer)
            before = self._is_right(chain, name, self._play_case(chain, name, 0.0)[1])
            asked = [attempt.tier for attempt in attempts]
            seconds += sum(self.rows[model][name]["seconds"] for model in dict.fromkeys(asked))
            counts["right"] += right
            counts["no call"] += right and not self.rows[chain[0]][name]["wanted"]
            counts["by the last"] += answer == chain[-1]
            counts["last asked"] += chain[-1] in asked
            counts["words"] += answer == "words"
            counts["below the last"] += self.rows[chain[-1]][name]["right"] and not right
            counts["helped"] += right and not before
            counts["harmed"] += before and not right
        return {"cases": len(ids), "seconds": seconds, **counts}

    def _is_right(self, chain: Sequence[str], name: str, answer: str) -> bool:
        row = self.rows[chain[0] if answer == "words" else answer][name]
        return not row["wanted"] if answer == "words" else row["right"]

    def _play_case(self, chain: Sequence[str], name: str, least: float) -> tuple[list[Attempt], str]:
        limits = Limits(retries_max=0, reasks_max=0, attempts_max=9, escalate_on=frozenset(Reason))
        attempts: list[Attempt] = []
        while True:
            here = Situation(chain=tuple(chain), attempts=tuple(attempts), remaining_ns=10**15, limits=limits)
            made = decide(here)
            if isinstance(made, Accept):
                return attempts, "words" if attempts[made.attempt].text_out else attempts[made.attempt].tier
            if not isinstance(made, Call):
                return attempts, attempts[-1].tier  # no tier's answer was valid: that of the last is wrong as well
            doubted = any(attempt.flaw is Flaw.DOUBT for attempt in attempts)
            alone = made.tier == chain[-1] and not doubted
            attempts.append(self._attempt(made, name, least, alone=alone))

    def _attempt(self, call: Call, name: str, least: float, *, alone: bool) -> Attempt:
        row, likely = self.rows[call.tier][name], self.likely[call.tier].get(name)
        made = Attempt(tier=call.tier, ran=True, text_out=call.words, calls_held="signs" in row)
        if call.words:
            return made
        if not row["valid"]:
            return Attempt(tier=call.tier, ran=True, flaw=Flaw.TOOL_CALL_INVALID, detail="invalid")
        if likely is None:
            return made
        unwanted = None if _is_grounded(row["signs"]) else self.unwanted[call.tier].get(name)
        begins = row["category"] != TURNS
        found = Confidence({}, likely, unwanted if begins else None)
        gauge = Gauge(
            calibration=ModelCalibration(right=Calibration(share=self.shares[call.tier])),
            least=least,
            alone=alone,
            texts=(),
            request="",
            words_do=begins,
        )
        if not least or not gauge.explain_doubt(found):
            return made
        return Attempt(
            tier=call.tier,
            ran=True,
            flaw=Flaw.DOUBT,
            calls_held=True,
            confidence=found,
        )


def _is_grounded(signs: Mapping[str, float]) -> bool:
    return not signs["made_up"] and not signs["made_up_optional"]


def _estimate(rows: Collection[Row], field: str, *, hit: bool) -> dict[str, float]:
    """Estimate each call by fits without it, the mean over several ways to part them, and those of several turns by the
    fit of all others; where there are too few of either kind, by their share."""
    calls = sorted((row for row in rows if "signs" in row and row["category"] != TURNS), key=lambda row: row["id"])
    points, signs = _read_points(rows, field, hit=hit), {row["id"]: row["signs"] for row in rows if "signs" in row}
    if not are_enough(points):
        return dict.fromkeys(signs, _count_share(points))
    fitted = fit_calibration(points)
    known = {name: fitted.estimate(own) for name, own in signs.items()}
    known |= dict.fromkeys((row["id"] for row in calls), 0.0)
    for number in range(ROUNDS):
        random.Random(number).shuffle(calls)
        estimates = estimate_unseen([(row["signs"], row[field] is hit) for row in calls])
        for row, one in zip(calls, estimates, strict=True):
            known[row["id"]] += one / ROUNDS
    return known


def _read_points(rows: Collection[Row], field: str, *, hit: bool) -> list[Point]:
    """Read what a fit sees: the calls of cases of one turn."""
    return [(row["signs"], row[field] is hit) for row in rows if "signs" in row and row["category"] != TURNS]


def _count_share(points: Sequence[Any]) -> float:
    return (sum(right for _, right in points) + 0.5) / (len(points) + 1)


def print_figures(played: Played) -> None:
    """Print what the calls of each model tell, and what the chains make of it."""
    print("| model | answers | right | calls | right ones | area | error | unwanted | area | error |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model, turns in itertools.product(played.rows, (False, True)):
        rows = {name: played.rows[model][name] for name in played.find_cases([model], turns=turns)}
        calls = [row for row in rows.values() if "signs" in row]
        if not calls:
            continue
        told = played.judge(model, calls)
        name = NAMES[model] + (", several turns" if turns else "")
        cells = [name, len(rows), sum(row["right"] for row in rows.values()), len(calls)]
        for one in told:
            cells += [one["right"], f"{one['auroc'] or 0:.2f}", f"{one['error']:.3f}"]
        print("|", " | ".join(str(cell) for cell in cells), "|")
        shares = ", ".join(f"{one['likely']:.0%} → {one['right']:.0%}" for one in told[0]["bins"])
        print(f"<!-- {name}, thought to be right → right: {shares} -->")
    for chain in (("small",), ("large",), ("small", "large"), ("tiny", "small"), ("tiny", "small", "large")):
        for turns in (False, True):
            if all(model in played.rows for model in chain) and (ids := played.find_cases(chain, turns=turns)):
                _print_chain(played, chain, ids, ", several turns" if turns else "")


def _print_chain(played: Played, chain: Sequence[str], ids: Collection[str], what: str) -> None:
    last = [played.rows[chain[-1]][name] for name in ids]
    alone, spent = sum(row["right"] for row in last), sum(row["seconds"] for row in last)
    unwanted = sum(not row["wanted"] for row in last)
    print(f"\n{' → '.join(NAMES[model] for model in chain)}{what}: {len(ids)} cases, the last alone right in {alone}, "
          f"{spent / max(1, alone):.0f} s a right answer, {unwanted} cases want no call\n")  # fmt: skip
    print("| min | right | of the last alone | last asked | by the last | in words | no call, right | helped : harmed "
          "| below the last | s/right |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for least in LEASTS:
        one = Counter(played.play(chain, least, ids))
        shares = [f"{one[name] / len(ids):.0%}" for name in ("last asked", "by the last")]
        cells = [least, one["right"], f"{one['right'] / max(1, alone):.0%}", *shares, one["words"], one["no call"]]
        cells += [f"{one['helped']} : {one['harmed']}", one["below the last"]]
        print("|", " | ".join(map(str, [*cells, round(one["seconds"] / max(1, one["right"]))])), "|")


def write_calibrations(played: Played, digests: Mapping[str, str]) -> None:
    """Fit the package's calibrations on all calls of cases of one turn, by the sha256 of the weights."""
    fitted: dict[str, Any] = {}
    for model, rows in played.rows.items():
        parts = {}
        for name, field, hit in (("right", "right", True), ("unwanted", "wanted", False)):
            points = _read_points(rows.values(), field, hit=hit)
            share = _count_share(points)
            alone = Calibration(base=round(math.log(share / (1 - share)), 4), share=round(share, 3))
            made = fit_calibration(points) if are_enough(points) else alone
            if made.weights or name == "right":
                parts[name] = {"base": made.base, "weights": dict(made.weights), "share": made.share}
        fitted[digests[model]] = parts
    CALIBRATIONS.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")


def draw_plot(played: Played) -> None:
    """Draw how often calls were right by how likely they were thought to be, as `evaluate` does."""
    told = {}
    for model, rows in played.rows.items():
        calls = [row for row in rows.values() if "signs" in row and row["category"] != TURNS]
        told[NAMES[model].rpartition("-")[2]] = {"source": str(ROWS), **played.judge(model, calls)[0]}
    figure = draw_confidence(told)
    drawn = figure[figure.index("<svg") : figure.index("</svg>")].replace("<svg", f"<svg {SVG}", 1)
    PLOT.write_text(f"{drawn}<style>{STYLE}</style></svg>\n", encoding="utf-8")


async def find_digests(models: Sequence[str]) -> dict[str, str]:
    """Find the sha256 of each model's weights, as its tier says it."""
    found = {}
    for model in models:
        tier = MlxTier(name=model, model=MODELS[model])
        found[model] = (await tier.wait_for_load(CASE_S)).sha256 or ""
        await tier.close()
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    answers = commands.add_parser("answers", help="ask a model")
    answers.add_argument("--model", choices=list(MODELS), required=True)
    answers.add_argument("--cases", type=int, default=500)
    figures = commands.add_parser("figures", help="print the figures")
    figures.add_argument("--write", action="store_true", help="write the calibrations of the package, and their plot")
    args = parser.parse_args()
    if args.command == "answers":
        asyncio.run(answer_cases(args.model, args.cases))
        return
    played = Played(read_rows())
    print_figures(played)
    if args.write:
        draw_plot(played)
        write_calibrations(played, asyncio.run(find_digests(list(played.rows))))


if __name__ == "__main__":
    main()
