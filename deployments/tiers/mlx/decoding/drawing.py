"""From the model's logits to tokens, in the order in which everybody does it: processors, log-probabilities, the
sampler. And the arrays that rows of different lengths are read as."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.decoding.rows import Row

__all__ = ["Drawn", "draw_lines", "index_rows", "normalise", "note_drawn", "pad_lines", "process", "sample"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token of an answer; with the last one come the cache and the tokens that it holds."""

    uid: int
    token: int
    logprobs: Any
    finish_reason: str | None = None
    prompt_cache: Any = None
    all_tokens: list[int] | None = None


def process(row: Row, tokens: Any, logits: Any) -> Any:
    """Let the row's processors see these tokens behind those it has."""
    if row.processors:
        if row.context is None:
            from mlx_lm.models.cache import TokenBuffer

            row.context = TokenBuffer(row.tokens)
        context = row.context.update_and_fetch(tokens)
        for processor in row.processors:
            logits = processor(context, logits)
    return logits


def normalise(logits: Any) -> Any:
    """Return log-probabilities."""
    import mlx.core as mx

    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def sample(samplers: Sequence[Any], logits: Any, logprobs: Any) -> Any:
    """Draw one token a row; those that share a sampler's object are drawn in one call.

    Without a sampler it is the likeliest by the logits, so that nobody has to compute the probabilities of a whole
    vocabulary for it.
    """
    import mlx.core as mx

    first = samplers[0]
    if all(one is first for one in samplers):
        return mx.argmax(logits, axis=-1) if first is None else first(logprobs)
    return mx.concatenate(
        [
            mx.argmax(logits[place : place + 1], axis=-1) if one is None else one(logprobs[place : place + 1])
            for place, one in enumerate(samplers)
        ]
    )


def pad_lines(lines: Sequence[Sequence[int]]) -> Any:
    """Build one array of lines of different lengths; what is behind a line is read and never kept."""
    import mlx.core as mx

    longest = max(map(len, lines))
    return mx.array([[*line, *[0] * (longest - len(line))] for line in lines])


def index_rows(places: Sequence[int]) -> Any:
    """Build an index of rows."""
    import mlx.core as mx

    return mx.array(list(places))


def draw_lines(rows: Sequence[Row], lines: Sequence[Sequence[int]], logits: Any, stops: Container[int]) -> list[Drawn]:
    """Draw behind the tokens of each row's line. `logits`: (rows, tokens, vocabulary)."""
    import mlx.core as mx

    logprobs: Any = None
    likely: Any = None
    if any(row.plain for row in rows):
        likely = mx.argmax(logits, axis=-1).tolist()
        logprobs = normalise(logits)  # computed where somebody wants to see them
    drawn: list[Drawn] = []
    for place, (row, line) in enumerate(zip(rows, lines, strict=True)):
        if row.plain:
            drawn += _draw_line(row, line, logprobs[place], likely[place], stops)
        else:  # a penalty that divides wants them as the model gave them
            drawn += _draw_line(row, line, logits[place], None, stops)
    return drawn


def _draw_line(
    row: Row, line: Sequence[int], logits: Any, likely: Sequence[int] | None, stops: Container[int]
) -> list[Drawn]:
    """Draw behind each token of the line, up to the first guess that is wrong; the row holds what stands.

    `logits`: behind each; of a row that takes the `likely` ones, their log-probabilities.
    """
    out: list[Drawn] = []
    row.last = None
    for place, token in enumerate(line):
        if likely is None:
            drawn, logprobs = _draw_one(row, token, logits[place : place + 1])
            if drawn is None:
                return out
        else:
            drawn, logprobs = likely[place], logits[place]
        row.tokens.append(token)
        out.append(note_drawn(row, drawn, logprobs, stops))
        row.last = drawn
        if out[-1].finish_reason or drawn not in line[place + 1 : place + 2]:
            break
    return out


def _draw_one(row: Row, token: int, logits: Any) -> tuple[int | None, Any]:
    """Draw behind `token`; None where a processor failed on it."""
    import mlx.core as mx

    logits = process(row, mx.array([token]), logits)
    if row.failed:
        return None, None
    logprobs = normalise(logits)
    return sample([row.sampler], logits, logprobs).tolist()[0], logprobs[0]


def note_drawn(row: Row, token: int, logprobs: Any, stops: Container[int]) -> Drawn:
    """Count a token as given; it is the last one where it is in `stops`, or there is no room for more."""
    row.given += 1
    if row.lookup is not None:
        row.lookup.append(token)
    reason = None
    if token in stops:
        reason = "stop"
    elif row.given >= row.max_tokens:
        reason = "length"
    return Drawn(row.uid, token, logprobs, reason)
