"""From the fields of a request to how its tokens are drawn; a field of nonsense is refused by its name.

The request's own settings stand over the tier's. Bounds are OpenAI's, where it has any. A token that the model doesn't
have must never reach the engine: MLX doesn't check indexes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from deployments.tiers.prompt import Refused
from deployments.tiers.sampling import Sampling
from reliability.types import ChatRequest, Failed, Fault

__all__ = ["sampling_of"]

# A top_p of 0 asks for the most likely token, as a very small one does; mlx-lm would take 0 for "off".
_TOP_P_MIN = 1e-6
_BIAS_ENTRIES_MAX = 1024
_BIAS_MAX = 100.0
# Field, least, most. A repetition penalty divides.
_PENALTIES = (("presence_penalty", -2.0, 2.0), ("frequency_penalty", -2.0, 2.0), ("repetition_penalty", 0.01, 10.0))


def sampling_of(request: ChatRequest, defaults: Sampling, vocabulary: int) -> Sampling:
    """The settings of `request` over `defaults`; `vocabulary`: how many tokens the model has. Raises `Refused`."""
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.extra.get("top_k"),
        "min_p": request.extra.get("min_p"),
    }
    values = {
        name: getattr(defaults, name) if v is None else _number(name, v, 0.0, math.inf) for name, v in given.items()
    }
    penalties = {
        name: getattr(defaults, name) if (v := request.extra.get(name)) is None else _number(name, v, least, most)
        for name, least, most in _PENALTIES
    }
    return Sampling(
        temperature=values["temperature"],
        top_p=max(values["top_p"], _TOP_P_MIN),
        top_k=int(values["top_k"]),
        min_p=values["min_p"],
        seed=defaults.seed if request.seed is None else request.seed,
        logit_bias=_bias(request.extra.get("logit_bias"), vocabulary),
        **penalties,
    )


def _number(name: str, value: Any, least: float, most: float) -> float:
    """Within its bounds; what is no number, or none that a float holds, is within none."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if numeric and least <= value <= min(most, sys.float_info.max):
        return float(value)
    bounds = "that is not negative" if (least, most) == (0.0, math.inf) else f"from {least:g} to {most:g}"
    raise _refused(name, f"{name} must be a number {bounds}")


def _bias(given: Any, vocabulary: int) -> tuple[tuple[int, float], ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > _BIAS_ENTRIES_MAX:
        raise _refused("logit_bias", f"logit_bias must be an object of at most {_BIAS_ENTRIES_MAX} tokens")
    return tuple((_token(key, vocabulary), _number("logit_bias", v, -_BIAS_MAX, _BIAS_MAX)) for key, v in given.items())


def _token(key: Any, vocabulary: int) -> int:
    text = str(key)
    # A short run of plain digits: `int` takes more than that, and very long ones raise.
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < vocabulary:
        return int(text)
    raise _refused("logit_bias", f"logit_bias: {text[:20]!r} is no token of this model (0 to {vocabulary - 1})")


def _refused(name: str, message: str) -> Refused:
    return Refused(Failed(fault=Fault.BAD_REQUEST, message=message, param=name))
