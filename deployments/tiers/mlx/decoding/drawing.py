"""From the model's logits to one token a row, in the order in which everybody does it: processors, log-probabilities,
the sampler. And the arrays that rows of different lengths are read as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.tiers.mlx.decoding.rows import Row

__all__ = ["index_rows", "normalise", "pad_lines", "process", "sample"]


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
