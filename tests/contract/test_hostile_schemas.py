"""What one client's schemas and one model's arguments may cost the others: nothing that they would notice.

Each attack is a request that once stood the whole server still: the schema by the client, the arguments by a scripted
tier. Beside it a bystander asks another tier for a word, all the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import pytest

from tests.support import scripts
from tests.support.http_asking import Outcome, ask, report_of, user
from tests.support.serving import Deploy, Server, until

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


@pytest.fixture(scope="module")
def near(deploy: Deploy) -> Server:
    return deploy(args(), "refused-schemas")


@pytest.fixture(scope="module")
def server(deploy_on_ray: Deploy) -> Server:
    """In processes of its own: the bystander, too, waits for nobody but the server."""
    return deploy_on_ray(args(), "hostile-schemas")


def args() -> dict[str, Any]:
    answers = [
        {
            "when": {"last_user": f"<{name}>"},
            "chunk_chars": 4_096,
            "answer": [{"tool_call": {"name": "f", "arguments": attack.arguments}}],
        }
        for name, attack in ATTACKS.items()
    ]
    tiers = {
        "fast": {"kind": "scripted", "script": [*answers, {"answer": "Hello."}]},
        "standard": scripts.tier("standard"),
    }
    escalation = {"chain": ["fast", "standard"], "max_retries_before_escalate": 0}
    budget = {"max_output_tokens": 200_000}
    reliability = {"escalation": escalation, "token_budget": budget, **scripts.UNBOUNDED}
    return {"tiers": tiers, "reliability": reliability}


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


def tools(schema: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


def attacked(server: Server, name: str, word: str) -> Outcome:
    schema = {**ATTACKS[name].schema, "description": word}
    return ask(server, user(f"<{name}>"), model="fast", stream=False, tools=tools(schema), tool_choice="required")


# A union, a large answer; several at once bring a pattern and work that goes to another process. The others are their
# further ways.
EACH_TIME = ("union-wrong", "many-values")


@pytest.mark.ray
@pytest.mark.parametrize(
    "name", [name if name in EACH_TIME else pytest.param(name, marks=pytest.mark.nightly) for name in ATTACKS]
)
def test_a_schema_costs_nobody_else_their_time(server, name):
    """The call is delivered where it is valid, refused where it isn't; the bystander is served all the while."""
    outcome = spare_bystander(server, lambda word: attacked(server, name, word))

    if ATTACKS[name].delivered:
        assert outcome.calls == [("f", ATTACKS[name].arguments)]
    else:
        assert (outcome.status, outcome.error["code"]) == (400, "invalid_answer")


@pytest.mark.ray
def test_several_attackers_at_once_cost_no_more(server):
    """The large work of many waits for its turn, away from the small."""
    names = ("compile-bomb", "unique", "enum") * 2

    def attack(word: str) -> list[int]:
        with ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(lambda name: attacked(server, name, word).status, names))

    assert spare_bystander(server, attack) == [200, 200, 400] * 2


def test_what_isnt_checked_is_said_in_the_report(near):
    """A pattern that no linear engine has is not asserted; the call leaves, with a note."""
    schema = object_of(q={"type": "string", "pattern": "(a)\\1"})
    outcome = ask(near, user("<bounded-repeats>"), model="fast", stream=False, tools=tools(schema))

    assert outcome.calls == [("f", {"q": "a" * 56 + "!"})]
    (note,) = report_of(near, outcome)["notes"]
    assert note == "not checked in the arguments of f: /properties/q/pattern: the pattern refers back to a group"


def doubling(levels: int) -> dict[str, Any]:
    parts = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{levels}": {"type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "place", "said"),
    [
        ({"$ref": "https://example.com/s.json"}, ".$ref", "only references inside the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, ".properties.a.$ref", "leads nowhere"),
        (doubling(30), "", "references multiply"),
        ({"type": "strange"}, ".type", "is no valid JSON Schema"),
        ({"properties": {"a": {"pattern": "("}}}, ".properties.a.pattern", "is no regular expression"),
        (strings(30_000), "", "larger or deeper"),
    ],
)
def test_an_answers_schema_is_refused_by_its_place(near, schema, place, said):
    """`response_format` is held to the bounds of a tool's schema, on arrival, whatever the tier."""
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    outcome = ask(near, user("hello"), model="standard", stream=False, response_format=wanted)

    assert (outcome.status, outcome.error["code"]) == (400, "invalid_request")
    assert outcome.error["param"].startswith("response_format.json_schema.schema" + place)
    assert said in outcome.error["message"]


def test_a_good_answers_schema_passes(near):
    """As it did: the schema goes to the tier as it came."""
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": object_of(leaf={"type": "string"})},
    }

    assert ask(near, user("hello"), model="standard", stream=False, response_format=wanted).status == 200
