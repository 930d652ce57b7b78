"""Sample the next token: a request's settings over the tier's, samplers and logits processors in mlx-lm's own forms.

An invalid field is refused by its name: MLX doesn't check indexes, so a token that the model doesn't have must never
reach it. An exception in a processor would ruin the step for all sequences, so `Guarded` keeps it for its own. After a
failed step a processor may see the same tokens twice: it derives its state from the tokens that it is given.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deployments.tiers.lazy_mlx import mx
from deployments.tiers.prompt import refuse
from reliability.types import ChatRequest

_BIAS_ENTRIES_MAX = 1024
_BIAS_MAX = 100.0
# Field, least, most. A repetition penalty divides.
_BOUNDS = (
    *((name, 0.0, math.inf) for name in ("temperature", "top_p", "top_k", "min_p")),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.01, 10.0),
)

Processor = Callable[[Any, Any], Any]  # None: it has nothing to say of this answer any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is drawn. Temperature 0 takes the most likely one. Presence and frequency are OpenAI's: they
    count the answer's tokens only. Repetition divides, and counts the prompt too. `logit_bias` is added, by token."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()


def read_sampling(request: ChatRequest, defaults: Sampling, vocabulary: int) -> Sampling:
    """Read the settings of `request` over `defaults`. `vocabulary`: the number of tokens. Raises `RequestRefused`."""
    given = {**request.extra, "temperature": request.temperature, "top_p": request.top_p}
    values: dict[str, Any] = {}
    for name, least, most in _BOUNDS:
        value = given.get(name)
        values[name] = getattr(defaults, name) if value is None else _check_number(name, value, least, most)
    values["top_k"] = int(values["top_k"])
    return Sampling(
        **values,
        seed=defaults.seed if request.seed is None else request.seed,
        logit_bias=_read_logit_bias(given.get("logit_bias"), vocabulary),
    )


def _check_number(name: str, value: Any, least: float, most: float) -> float:
    """Check its bounds; a value that is no number, or none that a float holds, is within none."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if numeric and least <= value <= min(most, sys.float_info.max):
        return float(value)
    bounds = "that is not negative" if (least, most) == (0.0, math.inf) else f"from {least:g} to {most:g}"
    raise refuse(name, f"{name} must be a number {bounds}")


def _read_logit_bias(given: Any, vocabulary: int) -> tuple[tuple[int, float], ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > _BIAS_ENTRIES_MAX:
        raise refuse("logit_bias", f"logit_bias must be an object of at most {_BIAS_ENTRIES_MAX} tokens")
    bias = []
    for key, value in given.items():
        text = str(key)
        # A short run of plain digits: `int` takes more than that, and very long ones raise.
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < vocabulary):
            message = f"logit_bias: {text[:20]!r} is no token of this model (0 to {vocabulary - 1})"
            raise refuse("logit_bias", message)
        bias.append((int(text), _check_number("logit_bias", value, -_BIAS_MAX, _BIAS_MAX)))
    return tuple(bias)


class Guarded:
    """A processor that never raises. `error` is what it raised; `over`: it isn't called again."""

    def __init__(self, inner: Processor) -> None:
        self._inner = inner
        self.error: Exception | None = None
        self.over = False

    def __call__(self, tokens: Any, logits: Any) -> Any:
        if self.over:
            return logits
        try:
            out = self._inner(tokens, logits)
            if out is None:
                self.over = True
                return logits
            if out.shape != logits.shape:
                raise ValueError(f"logits of shape {out.shape}, not {logits.shape}")
        except Exception as error:  # whatever it is: only its own sequence ends
            self.error, self.over = error, True
            return logits
        return out


def build_penalties(sampling: Sampling, prompt_tokens: int) -> list[Processor]:
    """Build the processors that the settings ask for."""
    made: list[Processor] = []
    if sampling.logit_bias:
        biased, bias = (mx.array(list(column)) for column in zip(*sampling.logit_bias, strict=True))
        made.append(lambda _, logits: logits.at[:, biased].add(bias.astype(logits.dtype)))
    if (penalty := sampling.repetition_penalty) != 1:

        def penalize(tokens: Any, logits: Any) -> Any:
            seen = logits[:, tokens]
            logits[:, tokens] = mx.where(seen < 0, seen * penalty, seen / penalty)
            return logits

        made.append(penalize)
    if sampling.presence_penalty or sampling.frequency_penalty:
        made.append(_build_count_penalty(sampling.presence_penalty, sampling.frequency_penalty, prompt_tokens))
    return made


def _build_count_penalty(presence: float, frequency: float, prompt_tokens: int) -> Processor:
    def process(tokens: Any, logits: Any) -> Any:
        answer = tokens[prompt_tokens:]
        if answer.size == 0:
            return logits
        counts = mx.zeros(logits.shape[-1], logits.dtype).at[answer].add(1)
        return logits - frequency * counts - presence * (counts > 0).astype(logits.dtype)

    return process


def make_sampler(sampling: Sampling, drawn: int = 0) -> Callable[[Any], Any] | None:
    """Make a function from log-probabilities to tokens; None for the most likely token. With a seed it draws from a
    stream of its own, whoever else is running. `drawn`: how many tokens of that stream were drawn before."""
    if sampling.temperature == 0:
        return None
    from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p

    keys = None if sampling.seed is None else [mx.random.key(sampling.seed % 2**63)]
    for _ in range(drawn if keys else 0):
        keys = [mx.random.split(key)[0] for key in keys or ()]

    def sample(logprobs: Any) -> Any:
        if sampling.top_p < 1:
            logprobs = apply_top_p(logprobs, sampling.top_p)
        if sampling.min_p > 0:
            logprobs = apply_min_p(logprobs, min(sampling.min_p, 1.0))
        if 0 < sampling.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, sampling.top_k)
        now = None
        if keys is not None:
            keys[0], now = mx.random.split(keys[0])
        return mx.random.categorical(logprobs * (1 / sampling.temperature), key=now)

    return sample
