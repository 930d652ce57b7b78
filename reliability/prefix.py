"""Why a prompt doesn't begin as the session's last one did.

What a model has computed of a prompt serves the next one as far as both begin alike. Each prompt has a shape, a handful
of digests of what it was made of, and two shapes say what differs; where no part of the shape does, it was the chat
template.

Invariants: each change is found; no word of a conversation stands in `detail`, only names of tools and variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

_NAMES_MAX = 8
_NAME_CHARS_MAX = 64
_ANSWER = "assistant"


class PrefixChange(StrEnum):
    """What of a session's prompt is not as it was the last time. The value stands in reports."""

    SYSTEM_PROMPT = "system_prompt"
    TOOLS = "tools"
    OPTIONS = "template_options"
    HISTORY = "history"
    DATE = "date"
    TEMPLATE = "template"  # the conversation is as it was; the model's template writes it differently now
    NEW_CONVERSATION = "new_conversation"  # in the same session


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPrefix:
    """Where a prompt stops being what the session's last one on the same tier was: `token` is the first that differs,
    of the `of` tokens of the last one's history. `detail`: why, in words for the report."""

    token: int
    of: int
    changes: tuple[PrefixChange, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptShape:
    """What a prompt was made of. `tools`: name and digest of each, in their order; `options`: the digests of the
    template's variables by name; `date`: the one that the template writes, empty where it writes none. `messages`: a
    digest of each, beside its role in `roles`; the first `head` of them are the system prompt."""

    tools: tuple[tuple[str, int], ...] = ()
    options: Mapping[str, int] = field(default_factory=dict)
    date: str = ""
    head: int = 0
    messages: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def system(self) -> tuple[int, ...]:
        """The digests of the system prompt."""
        return self.messages[: self.head]

    @property
    def history(self) -> tuple[int, ...]:
        """The digests of what comes after it."""
        return self.messages[self.head :]


def explain(old: PromptShape, new: PromptShape) -> tuple[tuple[PrefixChange, ...], str]:
    """Say what changed from one prompt of a session to the next, and that in words."""
    if _ANSWER not in new.roles and new.history[:1] != old.history[:1]:
        return (PrefixChange.NEW_CONVERSATION,), "a conversation begins anew"
    found = list(_list_changes(old, new)) or [(PrefixChange.TEMPLATE, _TEMPLATE_WORDS)]
    return tuple(change for change, _ in found), "; ".join(words for _, words in found)


_TEMPLATE_WORDS = (
    "the model's chat template writes earlier messages differently now, as many do with the reasoning of earlier turns "
    "once the user speaks again"
)


def _list_changes(old: PromptShape, new: PromptShape) -> Iterator[tuple[PrefixChange, str]]:
    """List what changed, in the order in which most templates write it."""
    if old.system != new.system:
        yield PrefixChange.SYSTEM_PROMPT, "the system prompt changed"
    if old.date != new.date:
        yield PrefixChange.DATE, "the date that the chat template writes changed"
    if old.options != new.options:
        names = sorted(n for n in old.options.keys() | new.options.keys() if old.options.get(n) != new.options.get(n))
        yield PrefixChange.OPTIONS, f"the template's options changed ({_list_names(names)})"
    if old.tools != new.tools:
        yield PrefixChange.TOOLS, f"the tools changed ({_compare_tools(old.tools, new.tools)})"
    if words := _compare_history(old.history, new):
        yield PrefixChange.HISTORY, f"the history changed at {words}"


def _compare_tools(old: Sequence[tuple[str, int]], new: Sequence[tuple[str, int]]) -> str:
    before, after = dict(old), dict(new)
    parts = [
        ("added", [name for name in after if name not in before]),
        ("removed", [name for name in before if name not in after]),
        ("written differently", [name for name in after if name in before and after[name] != before[name]]),
    ]
    words = [f"{what}: {_list_names(names)}" for what, names in parts if names]
    stay = [name for name in before if name in after]
    if stay != [name for name in after if name in before] or not words:
        words.append("in another order")
    return "; ".join(words)


def _compare_history(old: Sequence[int], new: PromptShape) -> str:
    """Say at which message, counted from 0, the history stops being what it was; empty where it went on."""
    now = new.history
    shared = min(len(old), len(now))
    at = next((i for i in range(shared) if old[i] != now[i]), shared)
    if at == len(old):
        return ""
    if at == len(now):
        return f"message {new.head + at}: it ends there"
    place = f"message {new.head + at} ({new.roles[new.head + at]})"
    if now[at] in old[at:]:
        return f"{place}: {_count(old[at:].index(now[at]))} before it left out"
    if old[at] in now[at:]:
        return f"{place}: {_count(now[at:].index(old[at]))} put in"
    return f"{place}: it was rewritten"


def _count(messages: int) -> str:
    return "one message" if messages == 1 else f"{messages} messages"


def _list_names(names: Sequence[str]) -> str:
    shown = [name[:_NAME_CHARS_MAX] for name in names[:_NAMES_MAX]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
