"""Models that want something, under a grammar with a real tokenizer of a few hundred tokens, and schemas for them."""

from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.compiler import Constraint, Constraints
from deployments.tiers.mlx.grammar.masker import Masker
from reliability.types import ChatRequest
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PROMPT
from tests.support.renderings import tool as tool
from tests.support.tier_asking import ask

WIDTH = len(tiny.TOKENS) + 10  # models have more outputs than tokens
END = tiny.SPECIAL.index("<|im_end|>")
TOKENS_MAX = 1500
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TWICE = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}}}


def json_answer(schema: Any, **fields: Any) -> ChatRequest:
    return ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, **fields)


def must(constraints: Constraints, request: ChatRequest, **options: Any) -> Constraint:
    found = constraints.of(request, **options)
    assert found is not None
    return found


class Mind:
    """A model that wants something else at every step; `fond_of` are bytes that it wants most of all."""

    def __init__(self, seed: int, fond_of: str = "") -> None:
        self._dice = np.random.default_rng(seed)
        self._fond = wish(50, *map(byte_as_token, fond_of))

    def logits(self, closing: bool) -> Any:
        """`closing`: it wants to come to an end."""
        return mx.array((self._dice.normal(size=WIDTH) + self._fond + closing * CLOSING)[None])


def wish(much: float, *tokens: str) -> Any:
    return np.array([much * (token in tokens) for token in tiny.TOKENS] + [0.0] * (WIDTH - len(tiny.TOKENS)))


# What closes most first, then what ends a number, then what makes one that may end: so it does come to an end.
CLOSING = wish(200, "<|im_end|>") + wish(100, '"', "}", "]") + wish(90, ",") + wish(80, "1", "e")


def byte_as_token(char: str) -> str:
    return tiny.byte_alphabet()[ord(char)]


def says(masker: Masker, mind: Mind, patience: int = 60) -> list[int]:
    """The tokens that a mind writes under a mask, up to the end of the answer."""
    tokens = list(PROMPT)
    while len(tokens) < TOKENS_MAX:
        logits = masker(mx.array(tokens), mind.logits(len(tokens) - len(PROMPT) > patience))
        tokens.append(int(mx.argmax(logits[0]).item()))
        assert tokens[-1] < len(tiny.TOKENS), "the model's spare outputs are no tokens"
        if tokens[-1] == END:
            return tokens[len(PROMPT) : -1]
    raise AssertionError("it never ends")


def spoken(tokenizer: Any, tokens: list[int]) -> str:
    return str(tokenizer.decode(tokens))


class Chant:
    """A model that wants the same few bytes for ever, where it may."""

    def __init__(self, seed: int, unit: str) -> None:
        self._mind, self._unit, self._said = Mind(seed), unit, 0

    def logits(self, closing: bool) -> Any:
        """It never wants to come to an end."""
        self._said += 1
        wanted = wish(50, byte_as_token(self._unit[self._said % len(self._unit)]))
        return self._mind.logits(False) + mx.array(wanted)[None]


LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "enum": ["é", "日本", 'say "x"']},
        {"type": "string", "minLength": 2, "maxLength": 5},
        {"type": "string", "pattern": "^[a-c]{1,3}$"},
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": 3, "maximum": 40},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": ["boolean", "null"]},
        {"type": "string", "nullable": True},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"const": "ü"},
        {},
    ]
)
KEYS = st.sampled_from(["a", "b-c", "ключ", 'q"q', "x y"])


def objects(inner: Any) -> Any:
    return st.dictionaries(KEYS, inner, max_size=3).flatmap(
        lambda properties: st.lists(st.sampled_from([*properties, None]), unique=True).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": [key for key in required if key is not None],
            }
        )
    )


SCHEMAS = st.recursive(
    LEAVES, lambda inner: objects(inner) | inner.map(lambda one: {"type": "array", "items": one, "maxItems": 2})
)
PARAMETERS = objects(SCHEMAS)


class Thinker:
    """The tokenizer of a model that thinks between these tags."""

    has_thinking = True

    def __init__(self, tokenizer: Any, start: str, end: str) -> None:
        self._tokenizer, self.think_start, self.think_end = tokenizer, start, end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)
