"""A batch on a model of `random_models.build_family`, each answer of which is compared with plain mlx-lm."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from deployments.tiers.logprobs import LogprobReader
from reliability.types import Event, Finish, TokenLogprob

PLENTY_BYTES = 1 << 40
_TICKETS = itertools.count()


class Numbers:
    """A tokenizer without text: any text is some tokens of the model's, none of which ends an answer."""

    eos_token_ids = ()
    last_segment = ""

    @property
    def detokenizer(self) -> Numbers:
        return self

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        dice = random.Random(text)
        return [dice.randrange(4, 120) for _ in text]

    def add_token(self, token: int) -> None:
        pass

    def finalize(self) -> None:
        pass


@dataclass
class Asked(LogprobReader):
    """A request, and what was drawn for it."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def read(self, token: int, logprobs: Any) -> TokenLogprob:
        self.tokens.append(token)
        self.logprobs.append(logprobs)
        return TokenLogprob(b"", 0.0)

    @property
    def cached_tokens(self) -> int:
        last = self.events[-1]
        assert isinstance(last, Finish), last
        assert last.usage is not None
        return last.usage.cached_tokens


def load(model: Any) -> Any:
    """What the check takes of a loaded model."""
    return SimpleNamespace(model=model, tokenizer=Numbers(), artifact=SimpleNamespace(source="here"), step=None)
