"""Rows of the evaluation of tool calls that read texts: values between tags, damaged texts and JSON, calls as model
families write them, and prose that is none."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from reliability.tools import Checked, ToolBox, extract_calls
from tests.evals.tool_cases import (
    RECORDED,
    Case,
    Row,
    box_of,
    judge_native,
    judge_text,
    records,
    same,
    toolbox,
    written_calls,
)
from tests.support.renderings import tool
from tests.support.streaming import Outcome, cut_at, play, whole

EDGES = ("", "\n", "\r\n", " ", "\n\n", "  \n")
TAGGED = (
    "<tool_call>\n<function=save>\n<parameter=text>{0}</parameter>\n</function>\n</tool_call>",
    "<function=save><parameter=text>{0}</parameter></function>",
    '<function_calls><invoke name="save"><parameter name="text">{0}</parameter></invoke></function_calls>',
)


def inline_parameters() -> Row:
    """A value between tags, with every kind of edge. A line break behind the opening tag is layout, and so then is one
    before the closing tag; a value on the line of its opening tag loses nothing."""
    row = Row("tags: values to the letter")
    box = toolbox([tool("save", {"properties": {"text": {"type": "string"}}})])
    for before in EDGES:
        for behind in EDGES:
            for body in ("def f():\n    pass", "a", "a\n\nb", ""):
                value = before + body + behind
                for form in TAGGED:
                    for framed, text in ((False, value), (True, f"\n{value}\n")):
                        if framed or not value.startswith(("\n", "\r\n")):
                            _inline(row, judge_text(form.format(text), box), value, text)
    return row


def _inline(row: Row, verdict: Checked, value: str, text: str) -> None:
    got = json.loads(verdict.calls[0].arguments).get("text") if verdict.calls else None
    changed = got != value
    row.add("CHANGED" if changed else "kept", f"{text!r} -> {got!r} instead of {value!r}" if changed else "")


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
            _malformed(texts, case, judge_text(case["raw"], box_of(expected)), expected)
    yield from (texts, natives, inside)


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
    failure = f"{word}: {case['raw'][:200]!r} -> {verdict} instead of {str(expected)[:200]}"
    row.add(word, "" if word in ("recovered", "refused") else failure)


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
    # What the prompt has opened has left as text by the time that it is closed.
    compared = [one[:2] if case.get("where") == "thought" else one for one in found]
    word = "STREAMED OTHERWISE" if any(one != compared[0] for one in compared) else word
    row.add(word, "" if word == "right" else f"{word}: {case['family']}: {case['text'][:200]!r} -> {first}")


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
            wrong = found.calls or found.malformed
            word = "CALLED" if found.calls else "FLAWED" if found.malformed else "prose"
            row.add(word, f"{run['id']}: {text[:200]!r} -> {wrong}" if wrong else "")
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
