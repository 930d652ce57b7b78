"""How many tokens an answer may have, from an upstream's words: it refuses what its model can't write, or what doesn't
fit behind the prompt. Pure. A number is a limit only where the words call it one.
"""

from __future__ import annotations

import re

ROOM_TOKENS = 256  # of an answer, at least: with less a call or sentence is cut off
# Part of no name; Chinese has no space around it.
_NUMBER = r"(?<![a-zA-Z0-9_.-])(\d{1,3}(?:,\d{3}){1,3}(?!\d)|\d{1,9})(?![a-zA-Z0-9_-]|\.\d)"
_LABELLED = re.compile(
    r"(?i)\b(http(/[\d.]+)?|(status|error)?_?code|status|error|deployment|region|version|line|column|(request )?id)\b"
    r"\W{0,4}\d[\w.-]*|<\d{3}>|^\W*\d{3}\b(?! *\+)"
)
# Of the prompt and the answer together: vLLM, SGLang and OpenRouter; TGI and Together; Anthropic; vLLM again.
_CONTEXT_TOKENS = re.compile(
    rf"(?i)\bmaximum context length (?:is|of) {_NUMBER}|\+ \W?max_(?:new_)?tokens\W? must be <= ?{_NUMBER}"
    rf"|\bcontext limit: {_NUMBER} \+ {_NUMBER} > {_NUMBER}|\bmax_model_len=(?:max_total_tokens=)?{_NUMBER}"
)
# vLLM reads a prompt no further than to where it doesn't fit, or not at all.
_UNCOUNTED = re.compile(r"\bat least \d+ input tokens|\bcontains \d+ characters\b|\bmax_model_len=", re.IGNORECASE)
_BYTES_PER_TOKEN = (3.6, 3.0)  # of a request's body: many have fewer tokens, and nearly all
_TOTAL = re.compile(
    rf"\bmax_total_tokens \({_NUMBER}\) must be [a-z ]{{1,30}} max_seq_len \({_NUMBER}\)", re.IGNORECASE
)  # SiliconFlow
_ANSWER_TOKENS = re.compile(
    r"(?i)max_?((completion|output|new)_?)?token(s|_?count)(?![a-z0-9_])|\b(completion|output) tokens\b"
    r"|\bmax tokens (must|can|may|should|is|exceeds|too)|\bmaximum tokens (you requested|value)"
)
_PROMPT_TOKENS = re.compile(
    r"(?i)\binputs\b|\binput (tokens?|length)\b|prompt|\bmessages\b|\bcontext (length|size|window)"
    r"|\btotal token length"
)
_RENAMED = re.compile(r"\buse \W?max_completion_tokens", re.IGNORECASE)
_TOO_FEW = re.compile(r"\bminimum\b|\bat least\b|\bgreater than\b|\btoo (small|low)\b|\bhigher\b", re.IGNORECASE)
# The lower end of a range.
_LEAST = r"(?:\W{0,2}(?!\d{1,3}(?:,\d{3}){1,3}(?!\d))\d{1,3}(?: \(inclusive\))?\W{0,2}(?:,|~|-|–|and|to|\.\.)\W{0,2})?"
_LIMIT = re.compile(
    rf"(?i)(?:\bat most|\bup to|\bmax(?:imum)?\b|\blimit\b|\blimited to|\bexceeds?\b|[<>≤]=?|\brange\b|\bbetween\b"
    rf"|\b(?:less|lower|smaller|more|greater|larger) (?:than|or equal)|取值范围|最大"
    rf"|\bwithin\b|\bbelow\b|\b(?:be|in|from)\b(?=\W{{0,3}}\d\D))"
    rf"[^\d.;]{{0,40}}?{_LEAST}{_NUMBER}"
    rf"|{_NUMBER}[^\d.;]{{0,20}}\b(?:is|being|as) (?:the|its|our) (?:max|limit|upper)"
)
_EXCLUSIVE = re.compile(r"\bexclusive\b|\b(less|lower|smaller) than \W?\d|<\s*\d+(?![\d>])", re.IGNORECASE)
_AFFORDED = re.compile(rf"\bcan only afford {_NUMBER}", re.IGNORECASE)  # OpenRouter's


def find_room(words: str, answer_tokens: int, *, named: bool = True, body_bytes: int = 0) -> int | None:
    """Return how many tokens of an answer fit behind this prompt, or can be paid for, where `answer_tokens` don't; None
    where the words are about something else, or too little is left. Where they don't count the prompt, its `body_bytes`
    tell about how long it is; 0, for all that are left, where the client has `named` no number."""
    words, least = _LABELLED.sub("", words), min(answer_tokens, ROOM_TOKENS)
    if (afforded := _AFFORDED.search(words)) is not None:
        room = _read(afforded[1])
    elif (sums := _TOTAL.search(words)) is not None:
        room = answer_tokens + _read(sums[2]) - _read(sums[1])
    else:
        limit, counts = _CONTEXT_TOKENS.search(words), [_read(found) for found in re.findall(_NUMBER, words)]
        if limit is None or answer_tokens not in counts:
            return None
        context = _read([found for found in limit.groups() if found][-1])
        if leaves_uncounted(words):
            return _guess_room(context, answer_tokens, body_bytes) if named else 0
        total = max(counts)
        prompts = [count for count in counts if count < context and count != answer_tokens]
        prompt = total - answer_tokens if total not in (context, answer_tokens) else max(prompts, default=context)
        room = context - prompt
    return room if least <= room < answer_tokens else None


def leaves_uncounted(words: str) -> bool:
    """Return whether a refusal of a prompt doesn't say how long it is."""
    return bool(_UNCOUNTED.search(words))


def _guess_room(context: int, answer_tokens: int, body_bytes: int) -> int | None:
    """Guess fewer tokens than `answer_tokens`: what the request's size leaves of the context, else a part of them."""
    left = context
    for bytes_per_token in _BYTES_PER_TOKEN:
        left = context - int(body_bytes / bytes_per_token)
        if body_bytes and ROOM_TOKENS <= left < answer_tokens:
            return left
    room = min(context, answer_tokens) // (2 if left >= ROOM_TOKENS else 4)
    return room if room >= ROOM_TOKENS else None


def limits_answer(words: str) -> bool:
    """Return whether a refusal is about the limit of an answer's tokens, whatever the prompt is."""
    return bool(_ANSWER_TOKENS.search(words)) and not _PROMPT_TOKENS.search(words)


def asks_for_fewer(words: str) -> bool:
    """Return whether a refusal says that an answer may not have so many tokens."""
    return limits_answer(words) and not _TOO_FEW.search(words)


def find_cap(words: str, answer_tokens: int) -> int | None:
    """Return how many tokens the upstream's model writes at most, where it has refused `answer_tokens`: the largest
    limit below that. None where the refusal is about something else, or names none."""
    words = _LABELLED.sub("", words)
    if not limits_answer(words) or _RENAMED.search(words):
        return None
    counts = [_read(found) for groups in _LIMIT.findall(words) for found in groups if found]
    cap = max((count for count in counts if count < answer_tokens), default=0)
    cap -= 1 if _EXCLUSIVE.search(words) else 0
    return cap if cap >= min(answer_tokens, ROOM_TOKENS) else None


def _read(number: str) -> int:
    return int(number.replace(",", ""))
