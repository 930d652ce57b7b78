"""Requests that once stood the whole server still: the schema by the client, the arguments by a scripted tier; and a
bystander, who asks another tier for a word all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import pytest

from tests.support.http_asking import Outcome, ask, user
from tests.support.serving import Server, until

MORE_S = 1.0  # of the bystander; the law says 0.25, and a busy machine for tests says more
TURNS_MIN = 10
TRIES = 5

T = TypeVar("T")


def nested(depth: int, leaf: Any = "a") -> Any:
    value: Any = {"leaf": leaf}
    for _ in range(depth):
        value = {"op": "xor", "args": [value]}
    return value


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def forms() -> dict[str, Any]:
    inner = {"type": "array", "items": {"$ref": "#/$defs/F"}}
    some = [
        {**object_of(op={"const": op}, args=inner), "required": ["op", "args"]} for op in ("and", "or", "not", "xor")
    ]
    return {"anyOf": [*some, {**object_of(leaf={"type": "string"}), "required": ["leaf"]}]}


def strings(count: int, **keywords: Any) -> dict[str, Any]:
    return object_of(**{f"p{i}": {"type": "string", **keywords} for i in range(count)})


BRANCHES = "|".join(["a"] * 50)
BOMB = object_of(**{f"p{i}": {"type": "string", "pattern": f"({BRANCHES}|b{i})+"} for i in range(5_000)})
WORDS = [f"Word{i}" for i in range(5_000)]


@dataclass(frozen=True)
class Attack:
    """A tool's schema, what the model answers, and what the client gets."""

    schema: dict[str, Any]
    arguments: Any
    delivered: bool


ATTACKS = {
    "bounded-repeats": Attack(object_of(q={"pattern": "(a{1,2}){50}b"}), {"q": "a" * 56 + "!"}, False),
    "words": Attack(object_of(q={"pattern": r"(\w{1,10}\s?){1,20}$"}), {"q": "a" * 100 + "!"}, False),
    "name-patterns": Attack({"patternProperties": {"^(a{1,2}){50}b": False}}, {"a" * 56 + "!": 1}, True),
    "compile-bomb": Attack(BOMB, {"p1": "a"}, True),
    "properties": Attack(strings(9_000), {"p1": "a"}, True),
    "union": Attack({**object_of(f={"$ref": "#/$defs/F"}), "$defs": {"F": forms()}}, {"f": nested(12)}, True),
    "union-wrong": Attack({**object_of(f={"$ref": "#/$defs/F"}), "$defs": {"F": forms()}}, {"f": nested(12, 1)}, False),
    "unique": Attack(object_of(a={"uniqueItems": True}), {"a": [{"a": i, "b": [i]} for i in range(4_000)]}, True),
    "enum": Attack(object_of(a={"items": {"enum": WORDS}}), {"a": [word.lower() for word in WORDS]}, False),
    "booleans": Attack(object_of(a={"items": {"type": "boolean"}}), {"a": ["true"] * 5_000}, False),
    "many-values": Attack(object_of(a={"items": {"type": "integer"}}), {"a": list(range(60_000))}, True),
}


# How the tier that is attacked with answers each of them.
RULES = [
    {"when": {"last_user": f"<{name}>"}, "chunk_chars": 4_096, "answer": [{"tool_call": call}]}
    for name, attack in ATTACKS.items()
    for call in ({"name": "f", "arguments": attack.arguments},)
]


def tools(schema: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


def attack(server: Server, name: str, word: str) -> Outcome:
    schema = {**ATTACKS[name].schema, "description": word}
    return ask(server, user(f"<{name}>"), model="fast", stream=False, tools=tools(schema), tool_choice="required")


class Bystander:
    """Asks for a word again and again, and keeps how long each took."""

    def __init__(self, server: Server) -> None:
        self.waits_s: list[float] = []
        self._over = threading.Event()
        self._url = f"{server.url}/v1/chat/completions"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bystander:
        self._thread.start()
        until(lambda: len(self.waits_s) > TURNS_MIN, "the bystander is served")
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        body = {"model": "standard", "messages": user("hello"), "max_tokens": 16}
        with httpx.Client(timeout=30.0) as client:
            while not self._over.is_set():
                started = time.monotonic()
                assert client.post(self._url, json=body).status_code == 200
                self.waits_s.append(time.monotonic() - started)


def spare_bystander(server: Server, attack: Callable[[str], T]) -> T:
    """Make an attack with the bystander beside it; return what came of it.

    A busy machine holds the bystander up now and then, an attack each time: so it must not be held up at each of
    `TRIES`. `attack` gets a word for its schema, so that the server hasn't seen it at an earlier try.
    """
    waits_s = []
    for number in range(TRIES):
        with Bystander(server) as running:
            quiet_s, before = max(running.waits_s), len(running.waits_s)
            outcome = attack(f"try {number}")
            until(lambda at=before, of=running: len(of.waits_s) > at + TURNS_MIN, "the bystander is served still")
        waits_s.append(max(running.waits_s[before:]) - quiet_s)
        if waits_s[-1] < MORE_S:
            return outcome
    pytest.fail(f"the bystander waited longer than before, by {waits_s} s, at each of {TRIES} tries")
