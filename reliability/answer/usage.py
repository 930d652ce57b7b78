"""Is what a tier reports that an answer has cost possible at all?

An upstream counts its tokens itself, and whoever is charged by its word believes it. A count that is wrong by a bug, or
on purpose, would spend a budget that nobody has used (10^15 tokens end a session for as long as it is remembered), or
leave one untouched that is long gone. So each count is held against what can be known here:

    prompt       at most a token for each byte that could be read (`prompt_tokens_most`), and what the upstream reads
                 beside it: hidden instructions, templates, the wording of tools
    completion   at most the tokens that it was allowed or a token for each byte that it wrote, whichever is more; and,
                 where it says that it reasoned, reasoning that some providers count beyond `max_tokens`
    both         at least a token for so many bytes as no tokenizer puts into one
    cached       at most the prompt; reasoning at most the completion

A count that is possible is believed, to the token. One that isn't is replaced by an estimate of our own, and the report
says so. No count, and 0 for something that is there, is no lie but a server that doesn't count (Ollama says 0
for a prompt that it had cached): the estimate stands without a word.

What must never happen: a report that costs a session more than one very long answer, whatever it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.answer.estimate import tokens_max, tokens_near
from reliability.types import CallDelta, Event, Passed, Reasoning, Refusal, Text, Usage

# What an upstream reads beside the request: the instructions for tools are some hundred tokens at the known providers,
# hidden system prompts and pages of a search some thousand.
HIDDEN_TOKENS_MAX = 8_192
# Beyond `max_tokens`: the longest thinking that providers who count so allow by default.
REASONING_TOKENS_MAX = 65_536
CALL_TOKENS = 16  # a tool call's name and the delimiters around it
ENDS_TOKENS_MAX = 64  # delimiters around an answer and its calls, which no text shows
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


def verify_usage(reported: Usage, possible: Possible) -> tuple[Usage, bool]:
    """Return what to book for an attempt that is reported to have cost `reported`, and whether that was impossible."""
    prompt_holds, prompt_lie = _check_prompt_count(reported.prompt_tokens, possible)
    completion_holds, completion_lie = _check_completion_count(reported, possible)
    estimate = possible.estimate
    prompt = reported.prompt_tokens if prompt_holds else estimate.prompt_tokens
    completion = reported.completion_tokens if completion_holds else estimate.completion_tokens
    if (
        prompt_holds
        and completion_holds
        and reported.cached_tokens <= prompt
        and reported.reasoning_tokens <= completion
    ):
        return reported, False
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(reported.cached_tokens, prompt) if prompt_holds else 0,
        reasoning_tokens=min(reported.reasoning_tokens, completion) if completion_holds else 0,
        exact=reported.exact and prompt_holds and completion_holds,
    )
    return usage, prompt_lie or completion_lie


def _check_prompt_count(tokens: int, possible: Possible) -> tuple[bool, bool]:
    """Return whether the count holds, and whether it is a lie."""
    size = possible.prompt_bytes
    if tokens <= 0:
        return size <= 0, False
    if tokens < (size - PROMPT_FREE_BYTES) // PROMPT_TOKEN_BYTES_MOST:
        return False, True
    holds = tokens <= size + HIDDEN_TOKENS_MAX or tokens <= possible.prompt_most() + HIDDEN_TOKENS_MAX
    return holds, not holds


def _check_completion_count(reported: Usage, possible: Possible) -> tuple[bool, bool]:
    tokens, written = reported.completion_tokens, possible.written_bytes
    if tokens <= 0:
        return written <= 0, False
    most = max(possible.output_cap, written) + ENDS_TOKENS_MAX
    most += REASONING_TOKENS_MAX if reported.reasoning_tokens > 0 else 0
    holds = (written - ANSWER_FREE_BYTES) // ANSWER_TOKEN_BYTES_MOST <= tokens <= most
    return holds, not holds


def estimate_written_tokens(event: Event) -> int:
    """Estimate the tokens that a model has written for this piece of its answer."""
    match event:
        case Text(text) | Reasoning(text) | Refusal(text):
            return tokens_near(text)
        case Passed(text_bytes=size):
            return tokens_max(size)
        case CallDelta(name=name, arguments=arguments):
            return (tokens_near(arguments) if arguments else 0) + (CALL_TOKENS if name else 0)
    return 0
