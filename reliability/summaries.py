"""Summaries that stand for a conversation: how they are ordered, by this server or by a client, and what ends them.

An agent condenses its conversation by asking the model for a summary. A small model copies such an order, which is
long, or goes in circles, and its agent then knows no longer what it was asked for. So a client's order is followed by a
short one, which a local model reads in its place (`order_plainly`). Any summary ends with the user's newest words, up
to `_NEWEST_CHARS_MAX`, and stands in the element that its client reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any

from reliability.loops.content import Who, classify_speaker, drop_elements, read_own_text, urges_on
from reliability.thinking import least
from reliability.types import SYSTEM_ROLES, CallDelta, ChatRequest, Event, Text

Message = Mapping[str, Any]
SUMMARY_HEAD = "Summary of the conversation so far, whose messages were removed to save room:\n\n"
NEWEST_HEAD, NEWEST_END = "\n\nThe user's newest message, word for word:\n<message>\n", "\n</message>"
_NEWEST_CHARS_MAX = 8000
_CONTEXT_PARTS, _TOKENS_LEAST = 16, 1024
SUMMARY_ORDER = """\
Summarize this conversation for the assistant that continues it and sees only your summary. Write down:
- what the user has asked for, in the user's own words;
- what was decided, and why;
- what was done and found, with the exact paths, names, commands and figures;
- what failed, and what is known of the cause;
- what is left to do, and the next step.
Answer with the summary alone. Call no tool."""
_PLAIN_ORDER = SUMMARY_ORDER.replace("alone.", "alone, in plain sentences, without <analysis> and XML.")
#: How agents order one: Claude Code, opencode, Codex, qwen-code, Crush and others. What a person orders names files, or
#: says nothing of what the summary is for.
_ORDERS = re.compile(
    r"\b(?:create|write|provide|generate|produce|give|make|prepare|draft)\b[^.\n]{0,60}? summary of "
    r"(?:the|this|our)(?: recent portion of the| \w+)? (?:conversation|session|chat)\b"
    r"|\bsummari[sz]e (?:the|this|our) (?:\w+ )?(?:conversation|session|chat)\b"
    r"|\b(?:provide|create|write) [^.\n]{0,40}?\b(?:prompt|summary) for continuing (?:the|this|our) conversation\b"
    r"|\bautomated summarization request\b"
    r"|\b(?:handoff|continuation|anchored) summary\b|\bconstruct a new summary that combines\b"
    r"|\bcontext checkpoint compaction\b|\bcompact this conversation\b"
    r"|\b(?:create|write|provide|generate|produce) (?:the|a)\b[\w, ]{0,30}?<state_snapshot>",
    re.IGNORECASE,
)
_PURPOSES = re.compile(
    r"\bcontinu|\bresum(?:e|es|ing)\b|\b(?:another|next) (?:agent|llm|assistant|language model|instance)\b|\bgoes? on\b"
    r"|\bcompaction\b|\bcompact this\b|<(?:state_snapshot|summary|analysis)>|\bconversation history above\b"
    r"|\bsummarization request\b|\bwill (?:be )?replaced?\b|\bexplicit requests\b|\blosing context\b|\bInclude:\n"
    r"|\A(?:provide|create) a (?:detailed )?summary of (?:our|the) (?:entire )?conversation(?: above)?[.:]",
    re.IGNORECASE,
)
_CALLS = re.compile(r"<explicit_instructions|\b(?:using|calling) the \w+ tool\b", re.IGNORECASE)
_SHORT = re.compile(r"\btitle\b|\b(?:one|single)[ -](?:sentence|line)\b|\b\d+(?:[ -]\w+)? (?:word|char)", re.IGNORECASE)
_NAMES_FILE, _QUOTES = re.compile(r"\b[\w-]{2,}\.[a-z]{2,5}\b"), re.compile(r"(?<!\w)[`\"'\u201c][^\n]*\Z")
_ORDER_CHARS_MAX, _NEAR_CHARS, _SHORT_ORDER_CHARS = 2_000, 150, 1_000
#: How a client's own summary begins, which is none of the user's words.
_CONTINUES = re.compile(
    r"\s*(?:this (?:session|conversation) is (?:being )?continued from|another language model started|<state_snapshot>"
    r"|(?:(?:here|below) is )?(?:a |the )?(?:summary|snapshot) of (?:the|our|this) (?:\w+ )?conversation)",
    re.IGNORECASE,
)
#: What a harness writes in the user's name beside its elements.
_OF_HARNESS = re.compile(
    r"\s*(?:\[Request interrupted|\[ERROR\]|Stop hook feedback:|# AGENTS\.md|Continue if you have next steps"
    r"|System: Please continue|Please continue working on the task"
    r"|<(?:local-command|command-|bash-|task-notification|turn_aborted|info-msg|environment_))"
)
_KEPT = re.compile(rf"(?:\n\n)?{re.escape(NEWEST_HEAD.strip())}.*?(?:{re.escape(NEWEST_END.strip())}|\Z)", re.DOTALL)
_CLOSED = (f"{NEWEST_END}\n</summary>", f"{NEWEST_END}\n</state_snapshot>")
#: Where clients look for the summary, a draft in front of it, and what their users add to the order.
_ELEMENT = re.compile(r"<(summary|state_snapshot)>")
_DRAFT = re.compile(r"\s*<analysis>(.*?)(?:</analysis>\s*|\Z)", re.DOTALL)
_INSTRUCTED = re.compile(r"(?:\n[^\S\n]*+){1,2}Additional Instructions:\s*\n.*", re.DOTALL)
_CLOSES, _CLOSING_CHARS = re.compile(r"\s*</\w{1,40}>\s*\Z"), 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Let a summary, for which `order` asks, replace a prompt over `bytes_over`. `pauses`: the answer is the summary
    alone."""

    bytes_over: int
    order: str = SUMMARY_ORDER
    pauses: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """A client's order for a summary: the user's `newest` words before it, "" where they aren't known, and the
    `element` in which the client looks for the summary, if it names one."""

    newest: str = ""
    element: str = ""


def find_ordered(messages: Sequence[Message]) -> Ordered | None:
    """Return what a client orders, where the newest message is an order for a summary."""
    texts, place = _locate_order(messages)
    if place is None:
        return None
    element = _ELEMENT.search(texts[place])
    before = {"role": "user", "content": "\n".join(texts[:place])}
    newest = find_newest_words([*messages[:-1], before]) if _shows_work(messages) else ""
    return Ordered(newest, element[1] if element else "")


def _locate_order(messages: Sequence[Message]) -> tuple[list[str], int | None]:
    """Return the texts of the newest message, one for each of its parts, and which of them orders a summary."""
    if not messages or messages[-1].get("role") != "user":
        return [], None
    content = messages[-1].get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [str(part.get("text") or "") if isinstance(part, Mapping) else "" for part in parts]
    # Where no agent works, a message may hold the conversation as a text, whose speakers aren't known.
    read = str if _shows_work(messages) else _read_behind_conversation
    return texts, next((place for place, text in enumerate(texts) if _is_order(read(text))), None)


def _shows_work(messages: Sequence[Message]) -> bool:
    return any(message.get("tool_calls") or message.get("role") == "tool" for message in messages)


def order_plainly(request: ChatRequest, context_tokens: int | None = None) -> ChatRequest:
    """Return a client's order for a summary with a short one behind it, in the same message. A summary is drawn without
    chance, unless the client wants some. Where the context is known (the model is a local one) the short order replaces
    the client's, but for what the user adds to it, and the summary takes a sixteenth of the context at most, its
    thought half as much."""
    texts, place = _locate_order(request.messages)
    if place is None:
        return request
    *before, newest = request.messages
    content = newest["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    if context_tokens is None:
        parts.append({"type": "text", "text": f"\n\n{SUMMARY_ORDER}"})
    else:
        parts[place] = {**parts[place], "text": _replace_order(texts[place])}
    chance = 0.0 if request.temperature is None else request.temperature
    request = replace(request, messages=(*before, {**newest, "content": parts}), temperature=chance)
    if context_tokens is None:
        return request
    most = max(_TOKENS_LEAST, context_tokens // _CONTEXT_PARTS)
    thought = least(request.thinking_tokens_max, most // 2)
    tokens_max = min(request.max_tokens, most + most // 2)
    return replace(request, max_tokens=tokens_max, thinking_tokens_max=thought, summarizes=True)


def _replace_order(text: str) -> str:
    order = (_read_behind_conversation(text) or text).lstrip()
    instructed = _INSTRUCTED.search(order)
    return text.removesuffix(order) + _PLAIN_ORDER + (instructed[0] if instructed else "")


def find_newest_words(messages: Sequence[Message]) -> str:
    """Find the user's newest words, also those that end a summary; "" where they aren't known, or are too many."""
    first = next((at for at, message in enumerate(messages) if message.get("role") == "user"), 0)
    for at in range(len(messages) - 1, first - 1, -1):
        message = dict(messages[at])
        if message.get("role") != "user" or classify_speaker(message) is not Who.SPEAKS:
            continue
        text, before = drop_elements(read_own_text(message)).strip(), messages[at - 1] if at else {}
        # opencode keeps its summary as an answer, and urges the model on behind it.
        answer = read_own_text(dict(before)) if before.get("role") == "assistant" and urges_on(message) else ""
        answer = answer if answer.rstrip().endswith((NEWEST_END, *_CLOSED)) else ""
        continued = is_continued(text)
        kept = read_kept_words(answer) or (read_kept_words(text) if continued or at == first else "")
        if kept or continued:
            return kept
        if text and not _OF_HARNESS.match(text) and not _is_order(text):
            return text if len(text) <= _NEWEST_CHARS_MAX else ""
    return ""


def read_kept_words(summary: str) -> str:
    """Return the user's words that end a summary; "" where there are none."""
    return summary.rpartition(NEWEST_HEAD)[2].rpartition(NEWEST_END)[0] if NEWEST_HEAD in summary else ""


def is_continued(text: str) -> bool:
    """Return whether a user's message is a summary of what came before: a client's, or this server's."""
    return text.startswith(SUMMARY_HEAD) or _CONTINUES.match(text) is not None


def place_restored(messages: Sequence[Message]) -> Sequence[Message]:
    """Return a conversation that begins with a summary so that a weak model reads what it is to do last: the system's
    words, the summary, what a harness restores behind it, the user's words that end the summary, and the call that the
    client kept with its result. Where the user has spoken since, all stays. Decision 059."""
    first = next((at for at, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    said = [at for at, message in enumerate(messages[:first]) if message.get("role") == "user"]
    summary = read_own_text(dict(messages[said[0]])) if len(said) == 1 else ""
    if not is_continued(drop_elements(summary).strip()):
        return messages
    kept = first
    if first < len(messages) and not messages[first].get("tool_calls"):  # the client's acknowledgement
        kept = first + 1 + sum(1 for _ in takewhile(_is_restored, messages[first + 1 :]))
        if kept < len(messages) and not (kept > first + 1 and messages[kept].get("tool_calls")):
            return messages
    results = kept + 1 + sum(1 for _ in takewhile(lambda one: one.get("role") == "tool", messages[kept + 1 :]))
    end = results + sum(1 for _ in takewhile(_is_restored, messages[results:]))
    restored = [*messages[first:kept], *(one for one in messages[results:end] if one.get("role") != "system")]
    systems = [one for one in messages[results:end] if one.get("role") == "system"]
    words = read_kept_words(summary)
    asked = [{"role": "user", "content": words}] if words else []
    head = messages[: said[0]], systems, messages[said[0] : first]
    return tuple(chain(*head, restored, asked, messages[kept:results], messages[end:]))


def _is_restored(message: Message) -> bool:
    role = message.get("role")
    return role == "system" or (role == "user" and classify_speaker(dict(message)) in (Who.NOBODY, Who.REPORTS))


def complete_summary(summary: str, ordered: Ordered) -> str:
    """Return a summary in the element that its client reads. It ends with the user's newest words, which a small model
    may have lost, and with no others: what a model or a result has told in their form is dropped."""
    summary = _KEPT.sub("", summary)
    if ordered.element:
        summary = _frame(summary, ordered.element)
    if not ordered.newest:
        return summary
    closing = _CLOSES.search(summary, max(0, len(summary) - _CLOSING_CHARS))
    end = closing.start() if closing else len(summary)
    return summary[:end] + NEWEST_HEAD + ordered.newest.replace(NEWEST_HEAD, "\n\n") + NEWEST_END + summary[end:]


def _frame(summary: str, element: str) -> str:
    opening, closing = f"<{element}>", f"</{element}>"
    if opening not in summary:
        # A draft that has no end, or nothing behind it, is all of the summary.
        drafted = _DRAFT.match(summary)
        body = summary[drafted.end() :] or drafted[1] if drafted else summary
        return f"{opening}\n{body.strip()}\n{closing}"
    return summary if closing in summary else f"{summary.rstrip()}\n{closing}"


def end_summary(events: Sequence[Event], ordered: Ordered) -> list[Event]:
    """Return the events of a client's summary, completed; a call is none."""
    text = "".join(event.text for event in events if isinstance(event, Text))
    if not text.strip() or any(isinstance(event, CallDelta) for event in events):
        return list(events)
    return [*(event for event in events if not isinstance(event, Text)), Text(complete_summary(text, ordered))]


def replace_history(messages: Sequence[Message], summary: str) -> tuple[Message, ...]:
    """Return what stands for these messages from now on: the system's at their head, and the summary, with what the
    user's newest message shows beside text, where no answer stands behind it yet."""
    head = takewhile(lambda message: message.get("role") in SYSTEM_ROLES, messages)
    newest = messages[-1] if messages and messages[-1].get("role") == "user" else {}
    content, told = newest.get("content"), SUMMARY_HEAD + summary
    shown = [part for part in content if part.get("type") != "text"] if isinstance(content, list) else []
    return (*head, {"role": "user", "content": [{"type": "text", "text": told}, *shown] if shown else told})


def _read_behind_conversation(text: str) -> str:
    """Return what a message says behind the conversation that it holds, and behind the summary of one before that."""
    behind = text.partition("<conversation>")[2].rpartition("</conversation>")[2]
    return behind.rpartition("</prior-summary>")[2]


def _is_order(text: str) -> bool:
    head = drop_elements(text)[:_ORDER_CHARS_MAX]
    found = _ORDERS.search(head)
    if found is None or _PURPOSES.search(head) is None or _CALLS.search(head) or _QUOTES.search(head[: found.start()]):
        return False
    near = head[max(0, found.start() - _NEAR_CHARS) : found.end() + _NEAR_CHARS]
    names_file = len(text) <= _SHORT_ORDER_CHARS and _NAMES_FILE.search(head)
    return not names_file and _SHORT.search(near) is None
