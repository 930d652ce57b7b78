"""How many tokens an answer may have, from an upstream's words: it refuses what its model can't write, or what doesn't
fit behind the prompt. Pure.

APIs name their limit in many ways. The prompt's and the context's are told apart by their words, and a limit of the
answer is the largest number below what was asked for.
"""

from __future__ import annotations

import re

ROOM_TOKENS = 256  # of an answer, at least: with less a call or sentence is cut off
_CONTEXT_TOKENS = re.compile(r"\bmaximum context length (?:is|of) (\d{1,9})\b", re.IGNORECASE)
_ANSWER_TOKENS = re.compile(
    r"max_?((completion|output|new)_?)?tokens\b|\b(completion|output) tokens\b|\bmaximum tokens (you requested|value)",
    re.IGNORECASE,
)
_PROMPT_TOKENS = re.compile(
    r"\binputs\b|\binput (tokens?|length)\b|prompt|\bmessages\b|\bcontext (length|size|window)", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<![\w.-])(\d{1,3}(?:,\d{3})+(?!\d)|\d{1,9})(?![\w-]|\.\d)")  # which is part of no name
_EXCLUSIVE = re.compile(r"\bexclusive\b|\b(less|lower|smaller) than \W?\d|<\s*\d+(?![\d>])", re.IGNORECASE)


def find_room(words: str, answer_tokens: int) -> int | None:
    """Return how many tokens of an answer fit behind this prompt, where the upstream has refused the prompt because
    `answer_tokens` don't; None where it is about something else, or too little is left. vLLM, SGLang and OpenRouter
    name the context, the answer, and the prompt or the sum."""
    limit = _CONTEXT_TOKENS.search(words)
    counts = [int(count) for count in re.findall(r"\d{1,9}", words)]
    if limit is None or answer_tokens not in counts:
        return None
    context = int(limit[1])
    total = max(counts)
    prompts = [count for count in counts if count < context and count != answer_tokens]
    prompt = total - answer_tokens if total not in (context, answer_tokens) else max(prompts, default=context)
    room = context - prompt
    return room if min(answer_tokens, ROOM_TOKENS) <= room < answer_tokens else None


def limits_answer(words: str) -> bool:
    """Return whether a refusal is about the limit of an answer's tokens, whatever the prompt is."""
    return bool(_ANSWER_TOKENS.search(words)) and not _PROMPT_TOKENS.search(words)


def find_cap(words: str, answer_tokens: int) -> int | None:
    """Return how many tokens the upstream's model writes at most, where it has refused `answer_tokens`: the largest
    number below that. None where the refusal is about something else, or names none."""
    if not limits_answer(words):
        return None
    counts = [int(found.replace(",", "")) for found in _NUMBER.findall(words)]
    cap = max((count for count in counts if count < answer_tokens), default=0)
    cap -= 1 if _EXCLUSIVE.search(words) else 0
    return cap if cap >= min(answer_tokens, ROOM_TOKENS) else None
