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

from __future__ import annotations

import gzip
import json
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from deployments.request.attempt import Reading  # noqa: E402
from deployments.request.attempt_record import record_attempt  # noqa: E402
from reliability.answer.gate import Hold  # noqa: E402
from reliability.answer.judgement import expect  # noqa: E402
from reliability.loops import LoopConfig  # noqa: E402
from reliability.tools import (  # noqa: E402
    CheckConfig,
    Checked,
    RawCall,
    ToolBox,
    build_toolbox,
    check_calls,
    extract_calls,
    id_source,
)
from reliability.types import Finish, FinishReason, Started, Text  # noqa: E402
from tests.evals.damages import DAMAGES, Damaged, hermes  # noqa: E402
from tests.evals.standins import HONEST, STANDINS, declare  # noqa: E402
from tests.support.renderings import schema_of, tool  # noqa: E402
from tests.support.streaming import Outcome, cut_at, play, whole  # noqa: E402

RECORDED = ROOT.parent / "shared" / "data"
FIXTURES = Path(__file__).parent / "fixtures"
VALIDATION_US_MAX = 150.0
SEEDS = 3
IDS = id_source("evaluation")

Case = Mapping[str, Any]


@dataclass
class Row:
    """One row of the table: what was found, and what may not be."""

    name: str
    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = self.counts.most_common()
        shares = ", ".join(f"{word} {n} ({100 * n / self.total:.1f} %)" for word, n in counts)
        verdict = f"FAILED {len(self.failures)}" if self.failures else "ok"
        return f"| {self.name} | {self.total} | {shares} | {verdict} |"


def records(name: str, folder: Path | None = None) -> list[Any]:
    """The records of one data set: from a folder, as recorded, or the set that stands in."""
    for path in ([folder / f"{name}.jsonl.gz"] if folder else []) + [RECORDED / f"{name}.jsonl.gz"]:
        if path.exists():
            return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    fixture = FIXTURES / f"{'agent_runs' if name == 'agent_traces' else name}.jsonl"
    return [json.loads(line) for line in fixture.read_text(encoding="utf-8").splitlines()]


def written_calls() -> tuple[list[Any], list[Case]]:
    """The tools and the samples of how model families write calls into their text: `family`, `text`, `calls`, and
    `where` the text may stand: any, a line, a sentence, last (alone behind other lines), alone, thought (with reasoning
    before it)."""
    tools, *cases = [
        json.loads(line) for line in (FIXTURES / "call_formats.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return tools["tools"], cases


def toolbox(tools: Any) -> ToolBox:
    box = build_toolbox(tools)
    assert isinstance(box, ToolBox), box
    return box


def same(calls: Iterable[Any], expected: Sequence[Case]) -> bool:
    """True where the delivered calls are the expected ones, to the type."""
    got = [(call.name, json.dumps(json.loads(call.arguments), sort_keys=True)) for call in calls]
    return got == [(call["name"], json.dumps(call["arguments"], sort_keys=True)) for call in expected]


def judge_text(text: str, box: ToolBox, conversation: Sequence[str] | None = None) -> Checked:
    found = extract_calls(text, box)
    return check_calls(found.calls, box, new_id=IDS, malformed=found.malformed, conversation=conversation)


def judge_native(calls: Iterable[Case], box: ToolBox, conversation: Sequence[str] | None = None) -> Checked:
    raw = [RawCall(name=call["name"], arguments=call["arguments"], id=f"own_{i}") for i, call in enumerate(calls)]
    return check_calls(raw, box, new_id=IDS, conversation=conversation)


# --- ground truths ------------------------------------------------------------------------------------------


def right(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case["gt_valid"] and case["ground_truth"]]


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
        row.total += 1
        row.counts["passed" if good else "refused"] += 1
        if not good:
            row.failures.append(f"{case['id']}: {[v.violations for v in verdicts]}")
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
        row.total += 1
        row.counts[word] += 1
        if word not in ("repaired", "refused"):
            row.failures.append(f"{word} {case['id']} {surface}: {text[:300]} -> {verdict}")


# --- names --------------------------------------------------------------------------------------------------

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
        row.total += 1
        row.counts["resolved" if good else "refused"] += 1
        if not good:
            row.failures.append(f"{id}: {called} for {truth['name']}: {verdict.violations}")


# --- equal calls --------------------------------------------------------------------------------------------


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
            row.total += 1
            good = flaw is None and same(calls, distinct)
            row.counts["once" if good else "wrong"] += 1
            if not good:
                row.failures.append(f"{case['id']}: {times} times: {flaw} {calls}")
    return row


def read_in_pieces(text: str, box: ToolBox, size: int) -> tuple[Sequence[Any], Any]:
    """What an attempt makes of a text that its tier writes in pieces: the calls and the flaw."""
    reading = Reading(
        tier="fast",
        number=0,
        expected=expect((), box, id_seed="evals", checks=CheckConfig(placeholders=()), loops=LoopConfig()),
        hold=Hold.TOOL_CALLS,
        text_committed=False,
        started_ns=0,
        output_cap=100_000,
    )
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


# --- placeholders -------------------------------------------------------------------------------------------


def stand_ins() -> Iterator[Row]:
    """Honest values that look like placeholders, and texts that only stand in for a value."""
    for name, cases, wanted in (("honest values", HONEST, True), ("stand-ins", STANDINS, False)):
        row = Row(f"placeholders: {name}")
        for case in cases:
            tool_name, key, _, value, said = case
            native = [{"name": tool_name, "arguments": json.dumps({key: value})}]
            verdict = judge_native(native, toolbox([declare(case)]), [said])
            row.total += 1
            row.counts["accepted" if verdict.ok else "convicted"] += 1
            if verdict.ok is not wanted:
                row.failures.append(f"{case}: {verdict.violations}")
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
        row.total += 1
        convicted = [violation for violation in verdict.violations if violation.kind == "placeholder"]
        row.counts["convicted" if convicted else "accepted"] += 1
        row.failures += [f"{id}: {violation}" for violation in convicted]


# --- inline parameters --------------------------------------------------------------------------------------

EDGES = ("", "\n", "\r\n", " ", "\n\n", "  \n")
FRAMED = re.compile(r"(\r?\n).*\1", re.DOTALL)
TAGGED = (
    "<tool_call>\n<function=save>\n<parameter=text>{0}</parameter>\n</function>\n</tool_call>",
    "<function=save><parameter=text>{0}</parameter></function>",
    '<function_calls><invoke name="save"><parameter name="text">{0}</parameter></invoke></function_calls>',
)


def inline_parameters() -> Row:
    """A value between tags, with every kind of edge: it loses one line break of the framing at each end, or nothing."""
    row = Row("tags: values to the letter")
    box = toolbox([tool("save", {"properties": {"text": {"type": "string"}}})])
    for before in EDGES:
        for behind in EDGES:
            for body in ("def f():\n    pass", "a", "a\n\nb", ""):
                value = before + body + behind
                for form in TAGGED:
                    for framed, text in ((False, value), (True, f"\n{value}\n")):
                        if framed or FRAMED.fullmatch(value) is None:
                            _inline(row, judge_text(form.format(text), box), value, text)
    return row


def _inline(row: Row, verdict: Checked, value: str, text: str) -> None:
    got = json.loads(verdict.calls[0].arguments).get("text") if verdict.calls else None
    row.total += 1
    row.counts["kept" if got == value else "CHANGED"] += 1
    if got != value:
        row.failures.append(f"{text!r} -> {got!r} instead of {value!r}")


# --- malformed outputs --------------------------------------------------------------------------------------


def malformed_outputs(cases: Iterable[Case]) -> Iterator[Row]:
    """Tool texts with their calls, and damaged JSON as the arguments of a call, natively and inside an
    envelope."""
    texts, natives, inside = (
        Row("malformed: tool texts"),
        Row("malformed: JSON as native arguments"),
        Row("malformed: JSON in an envelope"),
    )
    for case in cases:
        expected = case["expected"]
        if case["kind"] == "json_text":
            _json_text(case, expected, natives, inside)
        elif expected is not None:
            _malformed(texts, case, judge_text(case["raw"], _box_of(expected)), expected)
    yield from (texts, natives, inside)


def _box_of(calls: Sequence[Case]) -> ToolBox:
    """Tools for the expected calls: each field has the type of its expected value."""
    known: dict[str, dict[str, Any]] = {}
    for call in calls:
        known.setdefault(call["name"], {}).update(call["arguments"])
    return toolbox([tool(name, schema_of(arguments)) for name, arguments in known.items()])


def _json_text(case: Case, expected: Any, natives: Row, inside: Row) -> None:
    box = toolbox([tool("save", {})])
    calls = [{"name": "save", "arguments": expected}] if isinstance(expected, dict) else []
    if case["raw"].strip().strip('"').lower() in ("", "null"):  # no arguments, for a tool that needs none
        calls = [{"name": "save", "arguments": {}}]
    if _valid_object(case["raw"]):  # nothing is wrong with it: it must arrive as it is
        calls = [{"name": "save", "arguments": json.loads(case["raw"])}]
    _malformed(natives, case, judge_native([{"name": "save", "arguments": case["raw"]}], box), calls)
    text = f'<tool_call>\n{{"name": "save", "arguments": {case["raw"]}}}\n</tool_call>'
    _malformed(inside, case, judge_text(text, box), calls)


def _valid_object(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except ValueError:
        return False


def _malformed(row: Row, case: Case, verdict: Checked, expected: Sequence[Case]) -> None:
    exact = bool(verdict.calls) and same(verdict.calls, expected)
    word = ("recovered" if exact else "WRONG" if verdict.calls else "LOST") if verdict.ok else "refused"
    row.total += 1
    row.counts[word] += 1
    if word not in ("recovered", "refused"):
        row.failures.append(f"{word}: {case['raw'][:200]!r} -> {verdict} instead of {str(expected)[:200]}")


# --- calls as families write them ---------------------------------------------------------------------------

STREAM_SIZES = (1, 7)
BEFORE = {
    "any": ("", "I look it up. ", "Ja, é:\n\n"),
    "line": ("", "Ja, é:\n\n"),
    "last": ("", "Ja, é:\n\n"),
    "sentence": ("", "I look it up. "),
}


def families(folder: Path | None = None) -> Iterator[tuple[ToolBox, Case]]:
    """The own samples, and the recorded ones where they are."""
    tools, cases = written_calls()
    yield from ((toolbox(tools), case) for case in cases)
    recorded = (folder or RECORDED) / "call_formats.jsonl"
    if recorded.exists():
        box = toolbox(json.loads(recorded.with_name("call_formats_tools.json").read_text(encoding="utf-8")))
        yield from ((box, json.loads(line)) for line in recorded.read_text(encoding="utf-8").splitlines())


def outcomes(text: str, box: ToolBox) -> list[Outcome]:
    """What an answer comes to: held to its end, and streamed in pieces of several sizes."""
    return [whole(text, box), *(play(cut_at(text, [size]), box) for size in STREAM_SIZES)]


def written_formats(folder: Path | None = None) -> Iterator[Row]:
    """Each family's call is the call, wherever it may stand; in a thought it is none."""
    acting, thinking = Row("calls as model families write them"), Row("the same in a thought, and unclosed")
    for box, case in families(folder):
        calls = [(call["name"], call["arguments"]) for call in case["calls"]]
        for before in BEFORE.get(case.get("where", ""), ("",)):
            _written(acting, case, outcomes(before + case["text"], box), calls)
        if case.get("where") in BEFORE:
            _written(thinking, case, outcomes(f"<think>\n{case['text']}\n</think>\nNo.", box), [])
            _written(thinking, case, outcomes(f"<think>\n{case['text']}", box), [])
    yield acting
    yield thinking


def _written(row: Row, case: Case, found: Sequence[Outcome], expected: Sequence[Any]) -> None:
    first = found[0]
    word = "right" if first.calls == expected and not first.refused else "refused" if first.refused else "LEAKED"
    word = "WRONG" if first.calls and first.calls != expected else word
    word = "STREAMED OTHERWISE" if any(one != first for one in found) else word
    row.total += 1
    row.counts[word] += 1
    if word != "right":
        row.failures.append(f"{word}: {case['family']}: {case['text'][:200]!r} -> {first}")


def prose(folder: Path | None = None) -> Row:
    """What agents said beside their calls, with the tools that they had: no call, no flaw."""
    row, seen = Row("texts of agents that are no calls"), set[str]()
    for run in records("agent_traces", folder) if (RECORDED / "agent_traces.jsonl.gz").exists() else []:
        box = toolbox(_tools_of(run) or [tool(name, {}) for name in ("bash", "search", "edit", "open", "submit")])
        for message in run["messages"]:
            text = message.get("content")
            if message["role"] != "assistant" or not isinstance(text, str) or not text.strip() or text in seen:
                continue
            seen.add(text)
            found = extract_calls(text, box)
            row.total += 1
            row.counts["CALLED" if found.calls else "FLAWED" if found.malformed else "prose"] += 1
            if found.calls or found.malformed:
                row.failures.append(f"{run['id']}: {text[:200]!r} -> {found.calls or found.malformed}")
    return row


def _tools_of(run: Case) -> list[Any]:
    """The tools that a run has used, with the arguments that it gave them."""
    keys: dict[str, set[str]] = {}
    for message in run["messages"]:
        for call in message.get("tool_calls") or []:
            given = call["function"]["arguments"]
            given = json.loads(given) if isinstance(given, str) and _valid_object(given) else given
            keys.setdefault(call["function"]["name"], set()).update(given if isinstance(given, dict) else ())
    return [tool(name, {"properties": {key: {} for key in given}}) for name, given in keys.items()]


# --- cost ---------------------------------------------------------------------------------------------------


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
