"""How likely a valid call is right, and how likely no tool was wanted, told from the answer itself.

By its signs: small numbers that cost next to nothing. Of the model: how unsure it was of the tokens of its calls. Of
the calls: what of their values stands nowhere in the conversation, and what of the request stands in none of them.
How much each sign counts is a model's own: logistic models, fitted on cases with known answers (`Calibration`).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from reliability.answer.judgement import Judged
from reliability.attempt import UNMEASURED, Confidence
from reliability.said import Said, find_field, list_leaves, split_words
from reliability.tools import ToolBox
from reliability.types import Flaw, ToolCall

# The tokens that the model was unsure of: the text of each, and -ln of its probability against the next likeliest.
_Unsure = Sequence[tuple[str, float]]
TEXT_CHARS_MAX = 100_000
_CALLS_MAX, _KEYS_MAX = 16, 64
# Of a request its end is read: what an agent's client puts in front of the user's words tells nothing of the call.
_REQUEST_CHARS_MAX = 1_000
_NAME = re.compile(r"(?<=[\w,;()] )[A-Z][\w-]+|(?<=[\"'“])[^\"'”]{2,40}(?=[\"'”])")
_AND = re.compile(r"\band\b|;|, then\b|\brespectively\b")
_ORDERS_TOOLS = re.compile(
    r"(?i)(?<!not )(?<!n['’]t )(?<!never )(?<!without )(?<!how to )\bus(?:es?|ing)\b[^.\n]{0,40}\b(tool|function)s?\b"
)


def read_signs(
    calls: Sequence[ToolCall], toolbox: ToolBox, texts: Sequence[str], request: str, unsure: _Unsure
) -> dict[str, float]:
    """Read the signs of an answer with calls; none where arguments are no JSON object, as where calls aren't checked.
    `texts`: those of the conversation, the newest first; `request`: what the user has just asked for, "" where the last
    message is not the user's."""
    arguments = _read_arguments(calls)
    if arguments is None:
        return {}
    written = _join(calls)
    telling = [0.0]
    telling += [surprise for text, surprise in unsure if text.strip() in written and any(map(str.isalnum, text))]
    return {
        "most_unsure": min(5.0, max(telling)),
        "unsure": min(15.0, sum(telling)),
        **_read_values(calls, arguments, toolbox, Said("\n".join(texts)[:TEXT_CHARS_MAX])),
        **_read_request(calls, toolbox, request[-_REQUEST_CHARS_MAX:]),
    }


def _read_arguments(calls: Sequence[ToolCall]) -> list[dict[str, Any]] | None:
    try:
        read = [json.loads(call.arguments) for call in calls]
    except (ValueError, RecursionError):
        return None
    return read if all(isinstance(one, dict) for one in read) else None


def _read_values(
    calls: Sequence[ToolCall], arguments: Sequence[Mapping[str, Any]], toolbox: ToolBox, said: Said
) -> dict[str, float]:
    made_up = {True: 0.0, False: 0.0}
    for call, given in list(zip(calls, arguments, strict=True))[:_CALLS_MAX]:
        tool = toolbox.find(call.name)
        schema = tool.parameters if tool is not None else {}
        for key, value in list(given.items())[:_KEYS_MAX]:
            missing = sum(map(said.find_missing, list_leaves(value, find_field(find_field(schema, "properties"), key))))
            made_up[key in schema.get("required", ())] += missing
    return {"made_up": min(4.0, made_up[True]), "made_up_optional": min(4.0, made_up[False])}


def _read_request(calls: Sequence[ToolCall], toolbox: ToolBox, request: str) -> dict[str, float]:
    used = Said(_join(calls))
    asked = Said(request)
    numbers = sum(not used.has_number(number) for number in asked.numbers)
    names = sum(used.find_missing(name) > 0.5 for name in _NAME.findall(request))
    return {
        "named": min(1.0 - asked.find_missing(call.name) for call in calls[:_CALLS_MAX]),
        "unused_numbers": min(4.0, float(numbers)),
        "unused_names": min(4.0, float(names)),
        "ands_a_call": min(4.0, len(_AND.findall(request)) / len(calls)),
        "length": math.log(1 + len(split_words(request))),
        "tools": math.log(max(1, len(toolbox.tools))),
    }


def _is_grounded(signs: Mapping[str, float], calls: Sequence[ToolCall]) -> bool:
    """Return whether there are values, and all of them stand in the conversation: "Open the garage" wants a call,
    though it is as short as words that want none."""
    given = any(call.arguments.strip("{} \n") for call in calls)
    return given and not signs["made_up"] and not signs["made_up_optional"]


def _is_named(toolbox: ToolBox, texts: Sequence[str]) -> bool:
    """Return whether the conversation names one of the tools, or orders their use ("Use the available tools to"), as
    agents' system prompts do: then calls are wanted. Of the cases that calibrations are fitted on few do."""
    said = "\n".join(texts)[:TEXT_CHARS_MAX]  # in which letters are found faster than what may stand before them
    named = any(re.search(rf"{name}(?<!\w{name})(?!\w)", said) for name in map(re.escape, toolbox.names))
    return named or _ORDERS_TOOLS.search(said) is not None


def _join(calls: Sequence[ToolCall]) -> str:
    return " ".join(f"{call.name} {call.arguments}" for call in calls)[:TEXT_CHARS_MAX]


# From here on a call counts as unwanted where other tiers doubt theirs as well, and where one tier alone is asked
# (docs/decisions/092-confidence.md).
UNWANTED_MIN, UNWANTED_ALONE_MIN = 0.4, 0.6
SELDOM_MAX = 0.2  # a model whose calls are right in fewer cases is never sure of one


class Calibration(BaseModel):
    """A logistic model of a call's signs, as `evaluate` fits it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base: float = Field(default=0.0, description="log-odds of a call without signs")
    weights: dict[str, float] = Field(default={}, description="what each sign adds to them")
    share: float = Field(default=1.0, ge=0, le=1, description="in how many of the measured cases it held")

    def estimate(self, signs: Mapping[str, float]) -> float:
        """Return how likely it is, 0 to 1. A sign without a weight says nothing."""
        odds = self.base + sum(self.weights.get(name, 0.0) * value for name, value in signs.items())
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, odds))))


class ModelCalibration(BaseModel):
    """What tells of a model's calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    right: Calibration = Field(default=Calibration(), description="how likely a call is right")
    unwanted: Calibration | None = Field(default=None, description="how likely no tool was wanted")

    @property
    def is_seldom_right(self) -> bool:
        """Whether the model's calls are right in so few cases that each is in doubt."""
        return self.right.share < SELDOM_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What tells how likely the calls of one tier are right, and how likely they have to be (`least`; 0: they need
    not). `alone`: no other tier could make others, so that only unwanted ones are in doubt. `texts` and `request`: as
    in `read_signs`. `words_do`: an answer in words may be what was wanted."""

    calibration: ModelCalibration | None
    least: float
    alone: bool = False
    texts: Sequence[str]
    request: str
    words_do: bool

    def measure(self, judged: Judged, toolbox: ToolBox, unsure: _Unsure | None) -> Confidence:
        """Measure an answer's calls, where they are good otherwise and the tier has told what it was unsure of. Of
        invalid calls only the model is known: once valid, they are right as often as its others are."""
        if judged.flaw is Flaw.TOOL_CALL_INVALID and self.calibration is not None:
            return Confidence({}, self.calibration.right.share)
        if judged.flaw is not None or not judged.calls or unsure is None:
            return UNMEASURED
        signs = read_signs(judged.calls, toolbox, self.texts, self.request, unsure)
        known = self.calibration
        if known is None or not signs:
            return Confidence(signs)
        wanted = not self.words_do or _is_grounded(signs, judged.calls) or _is_named(toolbox, self.texts)
        asks = None if wanted else known.unwanted
        return Confidence(signs, known.right.estimate(signs), None if asks is None else asks.estimate(signs))

    def explain_doubt(self, confidence: Confidence) -> str:
        """Explain why calls are in doubt; "" where they aren't, or nobody knows."""
        likely, unwanted = confidence.likely, confidence.unwanted
        if self.is_unsure(confidence) and not self.alone:
            return f"its tool call is right with a probability of {likely:.0%}"
        known = self.calibration
        needed = self.least and not self.alone
        if likely is not None and needed and known is not None and known.is_seldom_right:
            return f"its model's tool calls are right in {known.right.share:.0%} of cases"
        if unwanted is not None and unwanted >= (UNWANTED_ALONE_MIN if self.alone else UNWANTED_MIN):
            return f"no tool was wanted with a probability of {unwanted:.0%}"
        return ""

    def is_unsure(self, confidence: Confidence) -> bool:
        """Return whether calls are less likely right than they have to be, whoever else could make others."""
        return confidence.likely is not None and confidence.likely < self.least
