"""Is what a tier says that an answer has cost possible at all?

An upstream counts its tokens itself, and whoever is charged by its word believes it. A count that is wrong by a bug, or
on purpose, would spend a budget that nobody has used (10^15 tokens end a session for as long as it is remembered), or
leave one untouched that is long gone. So each count is held against what can be known here:

    prompt       at most a token for each byte that could be read (`prompt_tokens_most`), and what the upstream reads
                 beside it: hidden instructions, templates, the wording of tools
    completion   at most the tokens that it was allowed or a token for each byte that it wrote, whichever is more; and,
                 where it says that it reasoned, reasoning that some providers count beyond `max_tokens`
    both         at least a token for so many bytes as no tokenizer puts into one
    cached       at most the prompt; reasoning at most the completion

A count that is possible is believed, to the token. One that isn't is replaced by an estimate of our own, and whoever
asked is told so. No count, and 0 for something that is there, is no lie but a server that doesn't count (Ollama says 0
for a prompt that it had cached): the estimate stands without a word.

What must never happen: a report that costs a session more than one very long answer, whatever it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.answer.estimate import tokens_near
from reliability.types import CallDelta, Event, Reasoning, Text, Usage

__all__ = ["HIDDEN_TOKENS_MAX", "REASONING_TOKENS_MAX", "Possible", "believed", "written_tokens"]

# What an upstream reads beside the request: the instructions for tools are some hundred tokens at the known providers,
# hidden system prompts and pages of a search some thousand.
HIDDEN_TOKENS_MAX = 8_192
# Beyond `max_tokens`: the longest thinking that providers who count so allow by default.
REASONING_TOKENS_MAX = 65_536
CALL_TOKENS = 16  # a tool call's name and the marks around it
ENDS_TOKENS_MAX = 64  # marks around an answer and its calls, which no text shows
# What no tokenizer puts into one token, on the average of more than a few: the densest text that was measured is
# formal English and deeply indented code, 10 and 11 bytes (SmolLM2). A prompt may hold lines of blanks or dashes.
ANSWER_TOKEN_BYTES_MOST, ANSWER_FREE_BYTES = 16, 256
PROMPT_TOKEN_BYTES_MOST, PROMPT_FREE_BYTES = 64, 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """What is known of one attempt. `prompt_most` is asked only where a count is beyond the size of the prompt, since
    it walks through the whole request. `estimate` stands in for what isn't possible."""

    prompt_bytes: int
    prompt_most: Callable[[], int]
    output_cap: int
    written_bytes: int
    estimate: Usage


def believed(told: Usage, possible: Possible) -> tuple[Usage, bool]:
    """What to book for an attempt that is said to have cost `told`, and whether that was impossible."""
    prompt_holds, prompt_lie = _prompt(told.prompt_tokens, possible)
    completion_holds, completion_lie = _completion(told, possible)
    estimate = possible.estimate
    prompt = told.prompt_tokens if prompt_holds else estimate.prompt_tokens
    completion = told.completion_tokens if completion_holds else estimate.completion_tokens
    if prompt_holds and completion_holds and told.cached_tokens <= prompt and told.reasoning_tokens <= completion:
        return told, False
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(told.cached_tokens, prompt) if prompt_holds else 0,
        reasoning_tokens=min(told.reasoning_tokens, completion) if completion_holds else 0,
        exact=told.exact and prompt_holds and completion_holds,
    )
    return usage, prompt_lie or completion_lie


def _prompt(tokens: int, possible: Possible) -> tuple[bool, bool]:
    """Whether the count holds, and whether it is a lie."""
    size = possible.prompt_bytes
    if tokens <= 0:
        return size <= 0, False
    if tokens < (size - PROMPT_FREE_BYTES) // PROMPT_TOKEN_BYTES_MOST:
        return False, True
    holds = tokens <= size + HIDDEN_TOKENS_MAX or tokens <= possible.prompt_most() + HIDDEN_TOKENS_MAX
    return holds, not holds


def _completion(told: Usage, possible: Possible) -> tuple[bool, bool]:
    tokens, written = told.completion_tokens, possible.written_bytes
    if tokens <= 0:
        return written <= 0, False
    most = max(possible.output_cap, written) + ENDS_TOKENS_MAX
    most += REASONING_TOKENS_MAX if told.reasoning_tokens > 0 else 0
    holds = (written - ANSWER_FREE_BYTES) // ANSWER_TOKEN_BYTES_MOST <= tokens <= most
    return holds, not holds


def written_tokens(event: Event) -> int:
    """An estimate of the tokens that a model has written for this piece of its answer."""
    match event:
        case Text(text) | Reasoning(text):
            return tokens_near(text)
        case CallDelta(name=name, arguments=arguments):
            return (tokens_near(arguments) if arguments else 0) + (CALL_TOKENS if name else 0)
    return 0
