"""mlx-lm as it comes, without this server: the loop that the engine is compared with."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from deployments.models.artifact import resolve
from deployments.models.sources import DEFAULT_SOURCE, parse_source

DECODE_TOKENS = 64
QUESTION = "Write a long story about a fox who lives at the edge of a forest."

Moment = tuple[float, float, int]


def take_moment(tokens: int) -> Moment:
    """Read the wall clock and the CPU time of this process, beside how many tokens there are by now."""
    return time.perf_counter(), time.process_time(), tokens


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second, and tokens a second of CPU time, which doesn't count the time that others had the machine."""

    wall: float
    cpu: float

    @classmethod
    def between(cls, seen: list[Moment]) -> Speed:
        """Compute the speed from the first moment to the last."""
        (wall_0, cpu_0, first), (wall_1, cpu_1, last) = seen[0], seen[-1]
        return cls((last - first) / (wall_1 - wall_0), (last - first) / (cpu_1 - cpu_0))


class Bare:
    """mlx-lm alone, with its own copy of the model."""

    def __init__(self) -> None:
        from mlx_lm import load

        self.model, self.tokenizer = load(str(resolve(parse_source(DEFAULT_SOURCE)).path))
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": QUESTION}], add_generation_prompt=True, tokenize=False
        )
        self.prompt = self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, count: int, tokens: int = DECODE_TOKENS) -> Speed:
        """Measure while `count` sequences decode."""
        generator = self._generator()
        generator.insert([list(self.prompt)] * count, max_tokens=[tokens] * count)
        while len(generator.next()[1]) < count:
            pass
        made, seen = 0, [take_moment(0)]
        while True:
            responses = generator.next()[1]
            if len(responses) < count or any(r.finish_reason for r in responses):
                return Speed.between(seen)
            made += len(responses)
            seen.append(take_moment(made))

    def prefill(self, tokens: int) -> float:
        """Measure prompt tokens a second."""
        generator = self._generator()
        generator.insert([[random.randrange(1000, 40000) for _ in range(tokens)]], max_tokens=[1])
        began_s = time.perf_counter()
        while not generator.next()[1]:
            pass
        return tokens / (time.perf_counter() - began_s)

    def _generator(self) -> Any:
        from mlx_lm.generate import BatchGenerator

        stops = [[token] for token in self.tokenizer.eos_token_ids]
        return BatchGenerator(self.model, stop_tokens=stops, prefill_step_size=512)
