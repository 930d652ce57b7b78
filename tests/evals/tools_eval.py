"""Tool calls on recorded data: prints the rows of the evals table and fails below the floor.

    ground truths            right calls through extraction and validation: none may be refused or changed
    damaged ground truths    one seeded damage each: mended, or refused with the place, never wrong
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
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reliability.tools import (  # noqa: E402
    Checked,
    RawCall,
    ToolBox,
    build_toolbox,
    check_calls,
    extract_calls,
    id_source,
)
from tests.evals.damages import DAMAGES, Damaged, hermes  # noqa: E402
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
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


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
