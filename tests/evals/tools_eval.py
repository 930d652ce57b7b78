"""Tool calls on recorded data: prints the rows of the evals table and fails below the floor.

    ground truths            right calls through extraction and validation: none may be refused or changed
    damaged ground truths    one seeded damage each: mended, or refused with the place, never wrong
    renamed tools            right calls under another spelling of their names: the declared tool's, with a repair
    equal calls              right calls said twice and three times over, in pieces, in each format: each of them once
    placeholders             right calls (BFCL, recorded agents) and honest values: none refused; stand-ins: none passes
    inline parameters        values between tags: to the letter, but for one line break of the framing at each end
    malformed outputs        recovered exactly or refused; a share is printed, loss and change are failures
    written calls            as model families write them, whole and streamed: read to the letter; none of them in a
                             thought, and none in prose
    cost                     median of one validation, and of one extraction

Run it with a folder of data, or without: then the recorded data is read, or a small set that stands in for
it.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deployments.request.attempt import record_attempt
from reliability.answer.judgement import expect
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, Checked, RawCall, ToolBox, check_calls, extract_calls
from reliability.types import Finish, FinishReason, Started, Text
from tests.evals.damages import DAMAGES, Damaged, hermes
from tests.evals.standins import HONEST, STANDINS, declare
from tests.evals.texts_eval import inline_parameters, malformed_outputs, prose, written_formats
from tests.evals.tool_cases import IDS, Case, Row, judge_native, judge_text, records, right, same, toolbox
from tests.support.readings import open_state
from tests.support.renderings import tool

VALIDATION_US_MAX = 150.0
SEEDS = 3


def ground_truths(cases: Iterable[Case]) -> Row:
    """Right calls, natively and as text, with and without the conversation: all pass unchanged."""
    row = Row("BFCL ground truths, valid by their own schema")
    for case in right(cases):
        box, truth = toolbox(case["tools"]), case["ground_truth"]
        said = [str(message["content"]) for message in case["messages"]]
        native = [{"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in truth]
        text = "\n".join(hermes(call["name"], call["arguments"]) for call in truth)
        verdicts = [judge_native(native, box, words) for words in (None, said)]
        verdicts += [judge_text(text, box, words) for words in (None, said)]
        good = all(verdict.ok and not verdict.repairs and same(verdict.calls, truth) for verdict in verdicts)
        row.add("passed" if good else "refused", "" if good else f"{case['id']}: {[v.violations for v in verdicts]}")
    return row


def outcome(verdict: Checked, truth: Case, damaged: Damaged) -> str:
    """What became of one damaged call."""
    if verdict.ok:
        return "repaired" if verdict.calls and same(verdict.calls, [truth]) else ("WRONG" if verdict.calls else "LOST")
    named = any(violation.path.startswith(damaged.place) for violation in verdict.violations)
    return "refused" if named else "REFUSED WITHOUT PLACE"


def damaged_truths(cases: Sequence[Case], seeds: int = SEEDS) -> Iterator[Row]:
    """Each damage on each right call, on both surfaces."""
    for name, damage in DAMAGES.items():
        row = Row(f"damaged: {name}")
        for seed in range(seeds):
            dice = Random(f"{seed} {name}")
            for case in right(cases):
                box = toolbox(case["tools"])
                truth = dice.choice(case["ground_truth"])
                found = box.find(truth["name"])
                hurt = damage(truth, found.parameters if found else {}, dice)
                if hurt is not None:
                    _damaged(row, case, truth, hurt, box)
        yield row


def _damaged(row: Row, case: Case, truth: Case, hurt: Damaged, box: ToolBox) -> None:
    verdicts = []
    if hurt.native is not None:
        verdicts.append(("native", hurt.native, judge_native([{"name": hurt.name, "arguments": hurt.native}], box)))
    if hurt.hermes is not None:
        verdicts.append(("hermes", hurt.hermes, judge_text(hurt.hermes, box)))
    for surface, text, verdict in verdicts:
        word = outcome(verdict, truth, hurt)
        wrong = word not in ("repaired", "refused")
        row.add(word, f"{word} {case['id']} {surface}: {text[:300]} -> {verdict}" if wrong else "")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "a.b": lambda name: name.replace("_", "."),
    "a__b": lambda name: name.replace("_", "__"),
    "functions.a_b": lambda name: f"functions.{name}",
    "functions.a.b": lambda name: f"functions.{name.replace('_', '.', 1)}",
    "default_api.a_b": lambda name: f"default_api.{name}",
    "mcp__server__a_b": lambda name: f"mcp__server__{name}",
}


def renamed(cases: Iterable[Case]) -> Row:
    """Right calls whose tools are called by another spelling, natively and as text: all pass under the declared name,
    with a repair, and never as another tool."""
    row = Row("BFCL ground truths, tools under other spellings")
    for case in right(cases):
        truth = case["ground_truth"][0]
        for spell in SPELLINGS.values():
            other = spell(truth["name"])
            if other != truth["name"]:
                _renamed(row, case["id"], toolbox(case["tools"]), truth, other)
    return row


def _renamed(row: Row, id: str, box: ToolBox, truth: Case, called: str) -> None:
    native = [{"name": called, "arguments": json.dumps(truth["arguments"])}]
    for verdict in (judge_native(native, box), judge_text(hermes(called, truth["arguments"]), box)):
        good = verdict.ok and same(verdict.calls, [truth]) and any(r.kind == "name" for r in verdict.repairs)
        failure = f"{id}: {called} for {truth['name']}: {verdict.violations}"
        row.add("resolved" if good else "refused", "" if good else failure)


def repeated(cases: Iterable[Case], dice: Random) -> Row:
    """All calls of a case, said twice, three times and forty times over, as text in pieces of a drawn size: each is
    delivered once, in order. One truth of the set holds equal calls itself (four random numbers): that counts as said
    over again, too."""
    row = Row("BFCL ground truths, said over again in pieces")
    for case in right(cases):
        box = toolbox(case["tools"])
        distinct = list({json.dumps(call, sort_keys=True): call for call in case["ground_truth"]}.values())
        for times in (2, 3, 40):
            text = "\n".join(hermes(call["name"], call["arguments"]) for call in case["ground_truth"] * times)
            calls, flaw = read_in_pieces(text, box, dice.randint(1, 60))
            good = flaw is None and same(calls, distinct)
            row.add("once" if good else "wrong", "" if good else f"{case['id']}: {times} times: {flaw} {calls}")
    return row


def read_in_pieces(text: str, box: ToolBox, size: int) -> tuple[Sequence[Any], Any]:
    """What an attempt makes of a text that its tier writes in pieces: the calls and the flaw."""
    expected = expect((), box, id_seed="evals", checks=CheckConfig(placeholders=()), loops=LoopConfig())
    reading = open_state(expected, 100_000)
    events = [
        Started(),
        *(Text(text[at : at + size]) for at in range(0, len(text), size)),
        Finish(reason=FinishReason.STOP),
    ]
    for event in events:
        if reading.loop is None and reading.end is None:
            reading.take([event], 1)
    reading.finish()
    return () if reading.judged is None else reading.judged.calls, record_attempt(reading, 2).flaw


def stand_ins() -> Iterator[Row]:
    """Honest values that look like placeholders, and texts that only stand in for a value."""
    for name, cases, wanted in (("honest values", HONEST, True), ("stand-ins", STANDINS, False)):
        row = Row(f"placeholders: {name}")
        for case in cases:
            tool_name, key, _, value, said = case
            native = [{"name": tool_name, "arguments": json.dumps({key: value})}]
            verdict = judge_native(native, toolbox([declare(case)]), [said])
            failure = "" if verdict.ok is wanted else f"{case}: {verdict.violations}"
            row.add("accepted" if verdict.ok else "convicted", failure)
        yield row


def recorded_calls(runs: Iterable[Case]) -> Row:
    """The calls of recorded agents, as if every text were required and described by its name: none is a placeholder."""
    row = Row("placeholders: calls of recorded agents")
    for run in runs:
        said: list[str] = []
        for message in run["messages"]:
            for call in message.get("tool_calls") or ():
                _recorded_call(row, run["id"], call["function"], said)
            said += [message["content"]] if isinstance(message.get("content"), str) else []
    return row


def _recorded_call(row: Row, id: str, function: Case, said: Sequence[str]) -> None:
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return
    if not isinstance(arguments, dict):
        return
    texts = [key for key, value in arguments.items() if isinstance(value, str)]
    properties = {key: {"type": "string", "description": f"The {key.replace('_', ' ')}"} for key in texts}
    box = toolbox([tool(function["name"], {"properties": properties, "required": texts})])
    for words in (None, said):
        verdict = judge_native([function], box, words)
        convicted = [violation for violation in verdict.violations if violation.kind == "placeholder"]
        row.add("convicted" if convicted else "accepted", f"{id}: {convicted}" if convicted else "")


def costs(cases: Sequence[Case]) -> Row:
    """Median microseconds of one validation, and of one extraction, on right calls."""
    row = Row("cost, median")
    checks, extractions = [], []
    for case in right(cases):
        box, call = toolbox(case["tools"]), case["ground_truth"][0]
        raw = [RawCall(name=call["name"], arguments=json.dumps(call["arguments"]), id="own")]
        text = "I'll look that up.\n" + hermes(call["name"], call["arguments"])
        for _ in range(2):  # the second time is measured: schemas are compiled once
            start = time.perf_counter()
            check_calls(raw, box, new_id=IDS)
            middle = time.perf_counter()
            extract_calls(text, box)
            end = time.perf_counter()
        checks.append(1e6 * (middle - start))
        extractions.append(1e6 * (end - middle))
    row.total = len(checks)
    row.name += f": validation {statistics.median(checks):.0f} µs, extraction {statistics.median(extractions):.0f} µs"
    if statistics.median(checks) > VALIDATION_US_MAX:
        row.failures.append(f"one validation costs more than {VALIDATION_US_MAX:.0f} µs")
    return row


def table(folder: Path | None = None) -> list[Row]:
    """All rows."""
    cases, outputs = records("bfcl_cases", folder), records("malformed_tool_calls", folder)
    return [
        ground_truths(cases),
        *damaged_truths(cases),
        renamed(cases),
        repeated(cases, Random("pieces")),
        *stand_ins(),
        recorded_calls(records("agent_traces", folder)),
        inline_parameters(),
        *malformed_outputs(outputs),
        *written_formats(folder),
        prose(folder),
        costs(cases),
    ]


def main(arguments: Sequence[str]) -> int:
    rows = table(Path(arguments[0]) if arguments else None)
    print("| on | n | found | verdict |\n|---|---|---|---|")
    print("\n".join(map(str, rows)))
    for failure in [failure for row in rows for failure in row.failures][:20]:
        print(failure, file=sys.stderr)
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
