"""What is checked in each run: of what was delivered, of what came after an error, of what the client showed."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.record import FINAL, Spoken
from tests.clients.wires import Call, Required

AFTER_S = 60.0
AFTER_MAX = 3
SHOWN_WORDS = 5


@dataclass(slots=True)
class Finding:
    """What one run showed. `after`: requests in the minute after the first error that was to come; `words`: the last
    ones that the client showed."""

    client: str
    scenario: str
    done: bool = False
    final: str = ""
    after: int = 0
    shown: bool = False
    ended: bool = False
    exit_code: int | None = None
    requests: int = 0
    calls: int = 0
    seconds: float = 0.0
    played: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    usage_checked: int = 0
    words: str = ""


def check_answers(spoken: Sequence[Spoken]) -> list[str]:
    """List what was delivered and must not be: a bad call, a call as text, an answer that just stops."""
    wrong = []
    for number, one in enumerate(spoken, 1):
        problems = [problem for call in one.answer.calls for problem in check_call(call, one.tools)]
        wrong += [f"request {number}: {problem}" for problem in problems]
        if "<tool_call>" in one.answer.text:
            wrong.append(f"request {number}: a call was delivered as text")
        if not one.is_error and not one.answer.ended:
            wrong.append(f"request {number}: the answer has no end")
    return wrong


def check_call(call: Call, tools: Required) -> list[str]:
    if call.name not in tools:
        return [f"call of {call.name!r}, which isn't declared"]
    required = tools[call.name]
    if required is None or call.free:
        return [] if required is None and call.free else [f"{call.name}: function and custom tool are mixed up"]
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return [f"{call.name}: arguments are no JSON: {call.arguments[:80]!r}"]
    if not isinstance(arguments, dict):
        return [f"{call.name}: arguments are no object"]
    return [f"{call.name}: {key} is missing" for key in required if key not in arguments]


def check_usage(spoken: Sequence[Spoken], reports: Mapping[str, dict[str, Any]]) -> tuple[int, list[str]]:
    """Compare the usage that the client was given with the server's report; return how many were, and what is wrong."""
    checked, wrong = 0, []
    for number, one in enumerate(spoken, 1):
        report = reports.get(one.headers.get("x-request-id", ""))
        if one.is_error or one.answer.usage is None or report is None:
            continue
        last = [attempt["usage"] for attempt in report["attempts"] if attempt["ran"]][-1]
        reported = (last["prompt_tokens"], last["completion_tokens"])
        checked += 1
        if one.answer.usage != reported:
            wrong.append(f"request {number}: usage {one.answer.usage}, reported {reported}")
    return checked, wrong


def find_final(spoken: Sequence[Spoken]) -> Spoken | None:
    for one in spoken:
        known = one.code in FINAL or any(code in json.dumps(one.answer.error) for code in FINAL)
        if one.is_error and (known or one.status >= 500):
            return one
    return None


def count_after(spoken: Sequence[Spoken], final: Spoken) -> int:
    return sum(final.ended_s <= one.at_s <= final.ended_s + AFTER_S for one in spoken if one is not final)


def is_shown(spoken: Sequence[Spoken], output: str) -> bool:
    """Return whether a client's output says what the server said: the first words of one of its messages."""
    seen = " ".join(re.findall(r"\w+", output.replace("\\n", " ")))
    messages = [str((one.answer.error or {}).get("message", "")) for one in spoken if one.is_error]
    starts = [" ".join(re.findall(r"\w+", message)[:SHOWN_WORDS]) for message in messages]
    return any(start and start in seen for start in starts)
