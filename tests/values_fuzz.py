"""A differential fuzz of values: what a model writes is what the client gets, in every format and every dialect.

    python -m tests.values_fuzz --values 1000000 --seed 1 --processes 2

A value is drawn, written as a family writes it (with variants of its layout and its spelling), read whole and streamed
in random cuts, judged, sent in each dialect, whole and streamed, and read with the official SDK's models. It must
arrive as it was drawn, to the type and the digit. What a format can't say is in `CANT_SAY`, with the reason: then the
call must be refused, or arrive right, or its change be noted as a repair. A seed and a number name a case:
`--seed 1 --only 4711` runs that one again.
"""

import argparse
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from reliability.surrogates import join_all
from reliability.tool_calls import RepairKind
from tests.support import renderings
from tests.support.call_values import MARKS, made
from tests.support.value_paths import WAYS, deliver, read_native, read_text

NAMES = ("get_weather", "q7", "files.read", "Search-Web")
ARGUMENTS_MAX = 14
NOTED = {RepairKind.LAYOUT, RepairKind.LITERAL, RepairKind.ENVELOPE, RepairKind.SURROGATE}


def _own_tags(mark: str, call: str) -> str:
    """The tags that the calls of a family have themselves, and what this reader takes off as layout."""
    return rf"</?{mark}parameter|</{mark}{call}|<!\[CDATA\[|</[^<>]{{0,16}}(?:function|invoke)>\s*[<\[\]]"


_HARMONY = re.compile(r"<\|(?:message|call|channel|start|end|constrain|return)\|>")
_BARE_KEY = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Cant:
    """What formats can't say. `kinds`: whose; `says`: of a key and a value, whether it is this. `noted`: it may arrive
    changed, with a repair that says so; else it is refused, or arrives as it was."""

    reason: str
    kinds: frozenset[str]
    says: Callable[[str, Any], bool]
    noted: bool = True


def _is_text(value: Any, pattern: str) -> bool:
    return isinstance(value, str) and re.search(pattern, value) is not None


def _holds(value: Any, pattern: str | re.Pattern[str]) -> bool:
    """Whether this stands in the text that a value is written as."""
    return re.search(pattern, renderings.bare(value)) is not None


ELEMENTS = frozenset({"qwen3_coder", "qwen3_coder without opener", "seed", "minimax", "invoke", "muse"})
OWN_MARKS: dict[frozenset[str], str | re.Pattern[str]] = {
    frozenset({"qwen3_coder", "qwen3_coder without opener", "seed"}): _own_tags("", "function"),
    frozenset({"minimax", "invoke"}): _own_tags("", "invoke"),
    frozenset({"muse"}): _own_tags("atem:", "invoke"),
    frozenset({"deepseek v3.2"}): _own_tags(" ?[|｜]{1,2} ?DSML ?[|｜]{1,2} ?", "invoke"),
    frozenset({"gigachat 3.5"}): _own_tags(" ?[|｜]{1,2} ?GCML ?[|｜]{1,2} ?", "invoke"),
    frozenset({"glm"}): r"</?(?:\w{1,16}[_|:])?arg_",
    frozenset({"kimi k3"}): r"<\|(?:close|open|sep)\|>",
    frozenset({"solar 2"}): r"<\|tool_(?:arg|call):",
    frozenset({"minimax m3"}): r"\]<\]minimax\[>\[",
}
CANT_SAY: tuple[Cant, ...] = (
    Cant("a text holds the special tokens of Harmony, which no text in it has", frozenset(renderings.ALL),
        lambda key, value: _HARMONY.search(f"{key}{renderings.bare(value)}") is not None, noted=False),
    Cant("a call without marks holds the beginning of another one", frozenset({"python alone"}),
        lambda _, value: _holds(value, r"(?:get_weather|q7)\("), noted=False),
    *(Cant("a text holds the marks of its own format: they may be the call's", kinds,
        lambda _, value, marks=marks: _holds(value, marks))  # type: ignore[misc]
      for kinds, marks in OWN_MARKS.items()),
    Cant("a text that stands inline begins with a line break, which other templates write as layout",
        frozenset({"seed", "minimax", "invoke", "muse"}), lambda _, value: _is_text(value, r"\A\r?\n")),
    Cant("a text that stands on lines ends with half a line break of Windows, which may be half the layout's",
        frozenset({"qwen3_coder", "qwen3_coder without opener"}), lambda _, value: _is_text(value, r"\r\Z"),
        noted=False),
    Cant("a text in JSON's quotes: they may be the text's, or stand around it", frozenset({"glm"}),
        lambda _, value: _is_text(value, r'\A\s*"[\s\S]*"\s*\Z')),
    Cant("a text holds the quotes of its own format", frozenset({"gemma"}),
        lambda _, value: any('<|"|>' in text for text in renderings.strings(value))),
    Cant("a key without quotes holds what ends a key, or white space at its ends", frozenset({"gemma"}),
        lambda _, value: any(not _BARE_KEY.fullmatch(key) for key in renderings.keys(value))),
)  # fmt: skip


# What looks like another type, like nothing, or like a part of what stands around it.
WHOLE = (
    "", " ", "\n", "\r\n", "\t", "007", "0", "-0", "1", "1.0", "1e3", "1e400", "0x1F", "1_000", "true", "True", "null",
    "None", "undefined", "NaN", "Infinity", "{}", "[]", '""', "''", '"x"', "'x'", " x ", "x ", " x", "\nx\n", "x\n",
    "\nx", "  x\n    y\n  ", "{'a': 1}", '{"a": 1}', "[1, 2]", "C:\\new\\table", "\\", "\\\\", '\\"', "\\u0041",
    "\\ud83d", "$&", "/* x */", "// x", "# x", "a=1", "key: value", "x,y", "f(a=1)", "```json\n{}\n```", "---",
    "<![CDATA[x]]>", "&lt;&amp;", "12345678901234567890123", "2026-11-25", "../../etc", "%00", "${x}", "{{ x }}",
    "{% if %}", "x\u2028y",
)  # fmt: skip
PIECES = (
    *MARKS, "\x00", "\x01", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\xa0", "\u200b", "\u200d", "\u2028", "\u2029",
    "\u202e", "\ufeff", "\ufffd", "\ufffe", "e\u0301", "ß", "İ", "א", "ب", "漢", "ﬁ", "😀", "👨\u200d👩\u200d👧", "🇳🇴",
    "\U0010ffff", "“", "”", "«", "`", "\n", "\r\n", "\r", "\t", "  ", "\n    ", "\\n", "\\t", "\\x41", "\\_", "_", "<",
    ">", "&", "</", "/>", "|>", "<|", "a", "Z", "</minimax:tool_call>", "<tool_call|>", "<|tool_call>", "<escape>",
    "<tool_sep>", "<|close|>argument<|sep|>", "✿RESULT✿", "</arg_value>", "<｜DSML｜", "]<]minimax[>[", "</invoke>",
    "<|eom_id|>", "<|im_end|>", "[/TOOL_CALLS]", "<｜tool▁call▁end｜>", "</param>", '<param name="x">', "</content>",
    "</a>", '<parameter name="a">', "<parameter=a>", "</atem:parameter>", "</｜DSML｜invoke>", "</｜GCML｜parameter>",
)  # fmt: skip
KEYS = (
    "a", "b", "path", "content", "x_1", "type", "name", "arguments", "id", "Key", "from_", "items", "properties", "n",
)  # fmt: skip
INTEGERS = (
    0, 1, -1, 7, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 12345678901234567890123, 10**400,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, 0.1 + 0.2, 1e16, 1e22, 1e23, 1.5e-7, 5e-324, 1.7976931348623157e308, 123456789.123456789, -2.5,
)  # fmt: skip


def draw_text(dice: Random) -> str:
    """A short text: one that means something else, or one of pieces."""
    if dice.random() < 0.3:
        return dice.choice(WHOLE)
    return "".join(dice.choice(PIECES) for _ in range(dice.randint(0, 5)))


def draw_number(dice: Random) -> int | float:
    """A number at the edge of some reader, or any other."""
    match dice.randrange(4):
        case 0:
            return dice.choice(INTEGERS)
        case 1:
            return dice.choice(FLOATS)
        case 2:
            return dice.randint(-(10 ** dice.randint(1, 40)), 10 ** dice.randint(1, 40))
    return dice.uniform(-1, 1) * 10.0 ** dice.randint(-20, 20)


def draw_value(dice: Random, depth: int = 3) -> Any:
    kind = dice.randrange(10 if depth else 7)
    if kind < 4:
        return draw_text(dice)
    if kind < 6:
        return draw_number(dice)
    if kind == 6:
        return dice.choice((None, True, False))
    if kind == 7:
        return [draw_value(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    return {draw_key(dice): draw_value(dice, depth - 1) for _ in range(dice.randint(0, 3))}


def draw_key(dice: Random) -> str:
    return dice.choice(KEYS) if dice.random() < 0.5 else draw_text(dice)


def draw_schema(dice: Random, value: Any) -> dict[str, Any] | None:
    """A schema that takes the value: its type, several, none; None for a property that isn't declared."""
    kind = "number" if isinstance(value, float) else TYPES[type(value)]
    either = {"anyOf": [{"type": kind}, {"type": dice.choice(("string", "integer", "null", "object"))}]}
    found = dice.choice(({"type": kind}, {"type": kind}, {"type": kind}, either, {"type": [kind, "null"]}, {}, None))
    return None if found is None else found | {"description": "may be empty"}


TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null",
}  # fmt: skip


def count_values(value: Any) -> int:
    """How many values there are in one, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count_values, inner))


def exact(value: Any) -> str:
    """A spelling that differs where anything does: a type, a digit, a sign, the order of nothing."""
    return json.dumps(value, sort_keys=True)


@dataclass
class Tally:
    """What a run has seen. `failures`: the cases by their numbers; `allowed`: of each reason, how often."""

    cases: int = 0
    values: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    allowed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Case:
    """One call: how it is written, its tool, and what must arrive. `cant`: what its format can't say of it."""

    kind: str
    name: str
    arguments: dict[str, Any]
    properties: dict[str, Any]
    written: str
    wanted: dict[str, Any]
    cant: Cant | None


def draw_case(dice: Random) -> Case:
    """Draw a call: of arguments that its format can say, or with one that it can't."""
    kind = dice.choice((*renderings.ALL, "native"))
    renderings.SPELLING = {"ensure_ascii": False}  # until the values are known, which are looked through as they are
    names = [n for n in NAMES if n.isidentifier()] if kind in renderings.PYTHON else NAMES
    name, bare = dice.choice(names), kind in renderings.PYTHON or kind in renderings.PLAIN
    arguments: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    cant: Cant | None = None
    for _ in range(dice.randint(0, ARGUMENTS_MAX)):
        key, value = (dice.choice(KEYS) if bare else draw_key(dice)), draw_value(dice)
        cants = [c for c in CANT_SAY if kind in c.kinds and c.says(key, value)]
        found = max(cants, key=lambda c: c.noted, default=None)
        if key in arguments or (found and (arguments or cant)):
            continue
        arguments[key], schema, cant = value, draw_schema(dice, value), cant or found
        if schema is not None:
            properties[key] = schema
        if found:
            break
    if kind in ("minimax m3", "kimi k3"):
        arguments = {key: value for key, value in arguments.items() if not isinstance(value, list | dict)}
    spelling = {"ensure_ascii": dice.random() < 0.5, "separators": dice.choice((None, (",", ":"), (" , ", " : ")))}
    renderings.SPELLING = spelling if kind in renderings.JSON else {"ensure_ascii": False}
    if kind == "native" or (kind in renderings.JSON and spelling["ensure_ascii"] and dice.random() < 0.2):
        arguments = {**arguments, "half": dice.choice(("\ud83d", "a\udc00b", {"\ud83d": 1}, ["\ude00\ud83d"]))}
    written = renderings.text(arguments) if kind == "native" else renderings.ALL[kind](name, arguments)
    wanted = {key: _expect(kind, value, properties.get(key)) for key, value in arguments.items()}
    return Case(kind, name, arguments, properties, written, join_all(wanted), cant)


def _expect(kind: str, value: Any, schema: dict[str, Any] | None) -> Any:
    """What arrives of a value: bare text has no type, so that where a text is allowed every value is one but null."""
    if kind not in (ELEMENTS | {"glm", "minimax m3", "solar 2"}):
        return value
    kinds = {} if schema is None else schema
    allowed = kinds.get("type") or [one["type"] for one in kinds.get("anyOf", ())] or "string"
    if value in (None, "null") and "null" in allowed:
        return None
    return renderings.bare(value) if "string" in allowed else value


def run_case(dice: Random, tally: Tally) -> str | None:
    """Run one case; return what is wrong, None where nothing is."""
    case = draw_case(dice)
    tally.cases += 1
    tally.values += sum(map(count_values, case.arguments.values()))
    schema = {"type": "object", "properties": case.properties}
    box = made([renderings.tool("other_tool", {"type": "object"}), renderings.tool(case.name, schema)])
    if case.kind == "native":
        answers = {"native": read_native(case.name, case.written, box, dice)}
    else:
        answers = {"whole": read_text(case.written, box), "streamed": read_text(case.written, box, dice)}
    results = {}
    for how, (events, judged) in answers.items():
        if judged.violations or judged.flaw:
            results[how] = "refused"
            continue
        ways = WAYS if len(results) == len(answers) - 1 else dice.sample(list(WAYS), 1)
        for way in ways:
            given = deliver(events, judged, way)
            noted = {repair.kind for repair in judged.repairs} & NOTED
            results[how] = _compare(case, given, bool(noted))
            if results[how] not in ("", "noted"):
                return f"{how}, {way}: {results[how]}\n{case}"
    return _settle(case, results, tally)


def _compare(case: Case, given: list[tuple[str, Any]], noted: bool) -> str:
    if [name for name, _ in given] != [case.name]:
        return f"calls {given}"
    if exact(given[0][1]) == exact(case.wanted):
        return ""
    if case.cant and case.cant.noted and noted:
        return "noted"
    return f"changed to {given[0][1]!r}"


def _settle(case: Case, results: dict[str, str], tally: Tally) -> str | None:
    if len(set(results.values())) > 1:
        return f"whole and streamed differ: {results}\n{case}"
    result = next(iter(results.values()))
    if result == "":
        return None
    if case.cant is None:
        return f"refused\n{case}"
    tally.allowed[f"{case.kind}: {case.cant.reason}: {result}"] += 1
    return None


def run(seed: int, start: int, step: int, values_max: int, tally: Tally) -> Iterator[None]:
    """Run the cases `start`, `start + step` and so on, until so many values are through; yield after each."""
    for at in itertools.count(start, step):
        if tally.values >= values_max:
            return
        try:
            wrong = run_case(Random(f"{seed}/{at}"), tally)
        except Exception as error:  # whatever breaks is a finding
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            tally.failures[at] = wrong
        yield


def _work(seed: int, start: int, step: int, values_max: int) -> Tally:
    tally = Tally()
    for _ in run(seed, start, step, values_max, tally):
        pass
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.values_fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", type=int, help="one case, by its number")
    asked = parser.parse_args()
    if asked.only is not None:
        print(run_case(Random(f"{asked.seed}/{asked.only}"), Tally()) or "right")
        return 0
    each = -(-asked.values // asked.processes)
    with ProcessPoolExecutor(asked.processes) as pool:
        works = [pool.submit(_work, asked.seed, at, asked.processes, each) for at in range(asked.processes)]
        tallies = [work.result() for work in works]
    for at, wrong in (failure for tally in tallies for failure in tally.failures.items()):
        print(f"case {at}: {wrong}\n")
    allowed = sum((tally.allowed for tally in tallies), Counter())
    print("\n".join(f"{count:8,} {reason}" for reason, count in sorted(allowed.items())))
    found = sum(len(tally.failures) for tally in tallies)
    print(f"{sum(t.values for t in tallies):,} values in {sum(t.cases for t in tallies):,} calls: {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
