"""Which fields of a request, or which values of them, an upstream refuses, from its words. Pure.

A refusal is read clause by clause. It names a field in any spelling, or as `param`; a name that is an English word too
(`user`) counts where it is quoted or called a field. What stands behind a condition or in a list of allowed values is
no refused field. The value alone is refused where the words name it, or list others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from deployments.tiers.hosted.upstream_errors import UpstreamComplaint

_CLAUSE = re.compile(r"[.!?][\"'`)]*,?\s+|[;。]|\n(?!  )")  # pydantic's refusal stands indented behind the name
_REFUSES = re.compile(
    r"n't\b|\bnot\b|\bcannot\b|\bun(support|known|recogni|expect)|\b(invalid|illegal|deprecated|only|mandatory|must|should"
    r"|exceeds?|exceeded|above|below|greater|less|range|incompatible|extra|forbidden|conflicts?|exclusive|required|restricted|rejected)\b"
    r"|\btoo (long|large|big|high|low|small|many)\b|\bextra_forbidden\b|非法|不支持",
    re.IGNORECASE,
)
_MISSES = re.compile(
    r"\bmissing\b|\brequired (parameter|field|argument|property)|\bis (a )?required\b|\bfield required\b", re.IGNORECASE
)
_CONDITION = re.compile(
    r"(?i)\b(when|if|unless|while|with|without|instead|because|did you mean|must be|should be|expected"
    r"|(supported|allowed|valid|possible) values|(?<!works )in (thinking|reasoning) mode)\b|, value: "
)
_PLACE = re.compile(r"[\[(]['\"]body['\"], ['\"](\w+)['\"][^\])]{0,200}[\])]")  # FastAPI's and Mistral's
_REQUEST = re.compile(
    r"(?i)^\W*(\w+\W+){0,5}request\W+(\w+\W+){0,2}because\b"  # Vertex's errors begin so, and Bedrock's
    r"|\ban error occurred \(\w+\) when calling the \w+ operation\b"
)
_CONDITION_FIRST = re.compile(r"^\W*(when|if|while|with|for)\b[^,]*,", re.IGNORECASE)
_TOGETHER = re.compile(
    r"(?i)\bboth\b|\bonly one of\b|\bmutually exclusive\b|\btogether\b|\bat the same time\b|\bsimultaneously\b"
)
_WHOLE_FIELD = re.compile(
    r"(?i)unsupported|not? (longer )?support|n't support|not permitted|not allowed|extra_forbidden|unrecognized"
    r"|deprecated|(unknown|unexpected) (name|field|parameter|argument|property|keyword)|cannot find field"
)
_ONE_VALUE = re.compile(
    r"(?i)unsupported[ _]value|(supported|allowed|valid|possible) values|\bone of\b|input should be|\bbeing set to\b"
    r"|unknown variant|invalid[ _]value|\bonly [^,;]{1,30} (is|are) (allowed|supported)"
)
_DEFAULT_ONLY = re.compile(r"\bonly the default\b", re.IGNORECASE)  # which needs no field
_KIND = (
    r"(?:parameters?|arguments?|fields?|propert(?:y|ies)|options?|keywords?|names?|supplied|values?|keys?(?= \[)|参数)"
)
_PLAIN = frozenset({"temperature", "verbosity"})  # words that mean nothing else in a refusal
_THINKING = frozenset({
    "reasoning_effort", "reasoning", "thinking", "thinking_budget", "enable_thinking", "chat_template_kwargs"
})  # fmt: skip
_IN_WORDS = (
    (
        re.compile(
            r"(?i)\b(thinking|reasoning)(_?(budget|level|config))?\b(?! (block|content|text|model|token)s?\b)"
            r"|\bthink (value|level)\b|(?<!best[ -])\beffort\b"
        ),
        _THINKING,
    ),
    (re.compile(r"\bpenalt(y|ies)\b", re.IGNORECASE), frozenset({"frequency_penalty", "presence_penalty"})),
)
_ALWAYS_THINKS = re.compile(
    r"\bmandatory\b|\brequired\b|disabl|\bonly works in\b|\b(turn|switch)(ed)? off\b", re.IGNORECASE
)
_OFF = re.compile(r"\bfalse\b|\"none\"|\"disabled\"|^0$|\": 0\b")
# What is refused where all of these stand in the words: that a model which thinks must call a tool, an effort next to
# tools, and the field `strict` of a tool.
CALL_IN_THOUGHT = re.compile(r"tool_?choice", re.IGNORECASE), re.compile(r"\b(think|reason)", re.IGNORECASE)
EFFORT_WITH_TOOLS = (
    re.compile(
        r"(?i)\btools?\b[^.,:]{0,20}\bwith\W{1,3}reasoning_effort"
        r"|\breasoning_effort\b[^.,:]{0,40}\b(with|when|if)\b[^.,:]{0,20}\btools?\b"
    ),
)
STRICT = (re.compile(r"(?<!schema)[\"'`.]strict\b(?!\W{1,2}mode)"),)
_VALUE_CHARS_MAX = 64  # of one that words name


def find_refused(
    complaint: UpstreamComplaint, ours: Collection[str], sent: Mapping[str, Any]
) -> tuple[set[str], dict[str, Any]]:
    """Return the fields that are refused whatever they say, and those that are refused with the value that was sent."""
    fields: set[str] = set()
    values: dict[str, Any] = {}
    words = f"{complaint.code} {complaint.message}"
    default_only = bool(_DEFAULT_ONLY.search(words))
    whole = default_only or bool(_WHOLE_FIELD.search(words) and not _ONE_VALUE.search(words))
    for clause, names in _list_named(complaint, {*ours, *sent}):
        for name in names:
            value_only = not default_only and name in sent and _says(clause, name, sent[name])
            if whole and not value_only:
                fields.add(name)
            elif name in sent:
                values[name] = sent[name]
        values |= {} if names else _find_in_words(clause, sent)
    return fields, values


def refuses(complaint: UpstreamComplaint, words: Collection[re.Pattern[str]]) -> bool:
    """Return whether what these words name is refused."""
    return bool(_REFUSES.search(complaint.message)) and all(word.search(complaint.said) for word in words)


def find_off_switches(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that switch thinking off."""
    return {name: value for name, value in sent.items() if name in _THINKING and _OFF.search(json.dumps(value))}


def _list_named(complaint: UpstreamComplaint, known: Collection[str]) -> list[tuple[str, list[str]]]:
    param = (complaint.param or "").removeprefix("body.").split(".")[0].replace("_", "").lower()
    pointed = [name for name in known if name.replace("_", "") == param]
    if pointed:
        return [] if _MISSES.search(complaint.message) else [(complaint.message, pointed)]
    clauses = [clause for clause in _CLAUSE.split(complaint.message) if _REFUSES.search(clause)]
    return [(clause, _find_names(clause, known)) for clause in clauses]


def _find_names(clause: str, known: Collection[str]) -> list[str]:
    if _MISSES.search(clause):
        return []
    subject = _cut(clause)
    places = {name: found.start() for name in known if (found := _compile(name).search(subject)) is not None}
    names = sorted(places, key=places.__getitem__)
    return names[1:] if _TOGETHER.search(clause) else names


def _find_in_words(clause: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    subject = _cut(clause)
    meant = {name for pattern, family in _IN_WORDS if pattern.search(subject) for name in family}
    found = {name: value for name, value in sent.items() if name in meant}
    return find_off_switches(found) if _ALWAYS_THINKS.search(clause) else found


def _cut(clause: str) -> str:
    """Cut off what stands behind a condition, and in a field."""
    clause = _CONDITION_FIRST.sub("", _REQUEST.sub("", _PLACE.sub(r"'\1'", clause)))
    condition = _CONDITION.search(clause)
    return clause if condition is None else clause[: condition.start()]


@cache
def _compile(name: str) -> re.Pattern[str]:
    words, body = name.split("_"), r"(?:body\.)?"
    inside = rf"(?:^\W*|- ){body}{name}(?:\.\w+)+\W?:"
    if len(words) == 1 and name not in _PLAIN:
        marked = rf"[\"'`]{body}{name}[\"'`]|(?:^|[:,] |\n){body}{name}(?::|\n  )|{inside}"
        called = rf"{_KIND}\W{{1,3}}{name}(?!\w|\.\w)|(?<![\w.]){name}\W{{0,2}}{_KIND}"
        return re.compile(f"{marked}|{called}", re.IGNORECASE)
    # Digits and letters of English alone: Chinese has no space behind a name.
    before, behind = r"(?<![a-z0-9_.\]-])" + body, r"(?![a-z0-9_]|[.\[-]\w)"
    return re.compile(before + "[_ -]?".join(words) + behind + f"|{inside}", re.IGNORECASE)


def _says(clause: str, name: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(re.search(rf"\b{name}\.\w", clause))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    spelled = {str(value)[:_VALUE_CHARS_MAX], f"{value:g}" if isinstance(value, float) else ""} - {""}
    return any(re.search(rf"(?<![\w.]){re.escape(one)}(?!\w|\.\d)", clause) for one in spelled)
