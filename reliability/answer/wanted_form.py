"""The form that a request asks of an answer's text: is this the JSON that `response_format` wants?

    text ──▶ one JSON document (a fence or prose around it goes) ──▶ schema ──▶ as it is, repaired, refused

Without the client's `strict`, and for any JSON object, the form is a wish: the last answer is delivered as it came. A
request that wants one tool called asks for a form, too: a text that is the arguments of that tool is its call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliability.steps import Steps
from reliability.surrogates import join_all, may_hold_halves
from reliability.tool_calls import Flaws, RawCall, Repair, RepairKind, Violation, join
from reliability.tools import Checked, Extraction, ToolBox, extract_calls
from reliability.tools.check.calls import parse_choice
from reliability.tools.check.complaints import describe
from reliability.tools.check.repair import repair_arguments
from reliability.tools.extract.literal import dump
from reliability.tools.extract.text import read_document
from reliability.tools.schema.compiled import compile_schema
from reliability.tools.schema.dialects import BadSchema
from reliability.tools.schema.toolbox import BadTools, Tool
from reliability.tools.schema.validator import UNBOUNDED
from reliability.types import Finish, FinishReason

SCHEMA_CHARS_MAX = 4_000
_ERRORS_CHARS_MAX = 2_000


# "as JSON", "in JSON", "return a JSON list", "JSON: name and input"; not "read config.json" or "fix the JSON parser".
_JSON = r"(?:(?:an?|one|valid|plain|pure|raw|compact|pretty|minified|single|me|it|them|only|just) ){0,4}json"
_ENDS = r"(?=[^\w\n]*+(?:\Z|\n)|[.,:;!?]| ?[({\[]| (?:format|objects?|lists?|arrays?|with|and|of|only|please)\b)"
_ORDERS = r"(?:\A|[.:,;!?\n]\s{0,32}+|\b(?:and|then|please) )(?:return|give|output|answer|respond|reply|write|print)"
_ASKS_JSON = re.compile(
    rf"\b(?:as|in|to|into|als|en) {_JSON}{_ENDS}"
    rf"|{_ORDERS} {_JSON}{_ENDS}"
    r"|\A\W*json\b|\bjson only\b|(?<![.\w])json:?\s*[{\[]",
    re.IGNORECASE,
)
_REQUEST_CHARS = 4_000


def asks_for_json(request: str) -> bool:
    """Return whether the user asks for an answer in JSON."""
    return len(request) <= _REQUEST_CHARS and _ASKS_JSON.search(request) is not None


@dataclass(frozen=True, slots=True)
class WantedForm:
    """The compiled schema, and whether the client insists on it."""

    schema: Tool
    strict: bool

    def judge(self, text: str, steps: Steps | None = None) -> tuple[str, Checked]:
        """Judge the whole text of an answer; return what may be delivered, and what was changed or is wrong. Raises
        `OutOfSteps`, but not where the steps are final; None: as many as it takes."""
        read = read_document(text, self.schema.parameters)
        if isinstance(read, str):
            return text, _refuse(f"can't be read as JSON: {read}")
        kinds, value = read.repair_kinds, read.value
        if may_hold_halves(text):
            try:
                value = join_all(read.value)
            except ValueError as error:
                return text, _refuse(str(error))
            kinds = kinds if value is read.value else (*kinds, RepairKind.SURROGATE)
        repaired = repair_arguments(value, self.schema, steps or Steps(UNBOUNDED))
        changed = bool(read.repair_kinds or repaired.repairs) or value is not read.value
        return dump(repaired.value) if changed else text, Checked(
            repairs=(
                *(Repair(kind, "") for kind in dict.fromkeys(kinds)),
                *(Repair(kind, join(*path)) for kind, path in repaired.repairs),
            ),
            violations=tuple(_rename(one) for one in describe(repaired.errors, 0, self.schema)),
        )


def _refuse(words: str) -> Checked:
    return Checked(violations=(Violation(Flaws.FORM, "", words),))


def _rename(found: Violation) -> Violation:
    message = found.message.replace("is no parameter of this tool", "is no member that the schema allows")
    return replace(found, kind=Flaws.FORM, path=found.path.removeprefix("/0/arguments"), message=message, tool=None)


def judge_form(
    form: WantedForm | None, checked: Checked, found: Extraction, text: str, finish: Finish, steps: Steps | None
) -> tuple[Extraction, Checked]:
    """Judge the text of an answer that is no call. JSON of the wanted form that looks like a broken call is no call."""
    if form is None or checked.calls or finish.reason is not FinishReason.STOP or not text.strip():
        return found, checked
    said = extract_calls(text, ToolBox()).text if checked.violations else found.text
    delivered, judged = form.judge(said, steps)
    forced = any(one.kind is Flaws.TOOL_CHOICE for one in checked.violations)
    if checked.violations and (judged.violations or forced):
        return found, checked
    return replace(found, text=delivered, calls=(), malformed=()), judged


def find_forced_tool(toolbox: ToolBox, tool_choice: Any) -> Tool | None:
    """Find the one tool that the request wants called; None where it leaves the model a choice."""
    choice = parse_choice(tool_choice, toolbox)
    if isinstance(choice, BadTools) or not choice.must:
        return None
    names = choice.may or tuple(toolbox.by_name)
    return toolbox.by_name[names[0]] if len(names) == 1 else None


def read_forced_call(tool: Tool | None, found: Extraction, text: str, finish: Finish) -> Extraction:
    """Read a text as the call of the forced tool: a JSON object with all keys that it requires, and no strange ones."""
    if tool is None or not tool.required or finish.reason is not FinishReason.STOP or not text.strip():
        return found
    if any(call.name == tool.name for call in found.calls):
        return found
    said = extract_calls(text, ToolBox()).text if found.calls or found.malformed else found.text
    read = read_document(said, tool.parameters)
    if isinstance(read, str) or not isinstance(read.value, dict):
        return found
    keys, declared = read.value.keys(), tool.parameters.get("properties") or {}
    if not keys <= declared.keys() or not all(key in keys for key in tool.required):
        return found
    kinds = dict.fromkeys((RepairKind.ENVELOPE, *read.repair_kinds))
    repairs = tuple(Repair(kind, "") for kind in kinds)
    call = RawCall(name=tool.name, arguments=read.value, format="arguments", repairs=repairs)
    return replace(found, text="", calls=(call,), malformed=())


def read_wanted_form(response_format: Mapping[str, Any] | None, steps: Steps) -> WantedForm | BadSchema | None:
    """Read the form that a request asks for; None where it asks for none. Raises `OutOfSteps`."""
    kind = (response_format or {}).get("type", "text")
    if response_format is None or kind not in ("json_object", "json_schema"):
        return None
    given = response_format.get("json_schema") if kind == "json_schema" else {"schema": {"type": "object"}}
    if not isinstance(given, Mapping) or not isinstance(given.get("schema"), Mapping):
        return None
    compiled = compile_schema(given["schema"], steps, arguments=False)
    if isinstance(compiled, BadSchema):
        return compiled
    schema = Tool(name="response_format", description="", strict=True, compiled=compiled)
    return WantedForm(schema, strict=given.get("strict") is True)


def form_message(violations: Sequence[Violation], response_format: Mapping[str, Any] | None) -> str:
    """Write the text of a re-ask: what was wrong with the form, and the form itself."""
    errors = "; ".join(f"{one.path} {one.message}".strip() for one in violations)[:_ERRORS_CHARS_MAX]
    given = (response_format or {}).get("json_schema") or {}
    schema = json.dumps(given.get("schema", {"type": "object"}), ensure_ascii=False)
    shown = f" that matches this schema: {schema}" if len(schema) <= SCHEMA_CHARS_MAX else ""
    return (
        f"Your previous response is not the JSON that was asked for. The error was: {errors}. "
        f"Respond with one JSON document and nothing else, no code fence and no remark{shown}"
    )
