"""The cases of the evaluation of tool calls, recorded or a small set that stands in, and how a call is judged."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reliability.tools import Checked, RawCall, ToolBox, build_toolbox, check_calls, extract_calls, id_source
from tests.support.renderings import schema_of, tool

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT.parent / "shared" / "data"
FIXTURES = Path(__file__).parent / "fixtures"
IDS = id_source("evaluation")

Case = Mapping[str, Any]


@dataclass
class Row:
    """One row of the table: what was found, and what may not be."""

    name: str
    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, word: str, failure: str = "") -> None:
        """Count one case under a word, and note what went wrong."""
        self.total += 1
        self.counts[word] += 1
        self.failures += [failure] * bool(failure)

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


def right(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case["gt_valid"] and case["ground_truth"]]


def box_of(calls: Sequence[Case]) -> ToolBox:
    """Tools for the expected calls: each field has the type of its expected value."""
    known: dict[str, dict[str, Any]] = {}
    for call in calls:
        known.setdefault(call["name"], {}).update(call["arguments"])
    return toolbox([tool(name, schema_of(arguments)) for name, arguments in known.items()])
