"""Agents under load: `locust -f loadtests/locustfile.py --host http://127.0.0.1:8000`, or `make load`.

The users behave as agents do: sessions of several turns whose history grows, with tools and tool results, streamed and
not; some repeat the same call for ever, some leave in the middle, and now and then many come at once. An open workload:
each user starts a turn when its time has come (`constant_pacing`), whether or not the server is quick.

    Agent    reads files by tool calls, turn upon turn, and starts a new session after `TURNS_MAX`
    Looper   sends the same call and the same result again and again: the server should nudge or break the loop
    Leaver   closes the connection after the first bytes of a stream
    Burst    sends several requests at the same moment

Besides locust's own numbers there are rows of kind `TTFT`, `GAP` (the mean between two pieces of a stream) and `TIER`
(the whole time, by the tier that answered and the outcome), and `calls per request`: upstream calls by the server's own
word (`X-MLX-Stack-Attempts`, or the report in a stream's last chunk). `--figures FILE` writes all of it as JSON, and
`--html FILE` the page with the plots. A refusal that is meant (429, 422) is an outcome and no failure; a stream that
just stops is one.

`make load` starts a server of its own with `loadtests/scripted.yaml`, whose tiers also give malformed calls and faults.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
from locust import HttpUser, constant_pacing, events, task

__all__ = ["Agent", "Burst", "Leaver", "Looper"]

TURNS_MAX = 12
STREAMED = 0.5
BURST = 6
TIMEOUT_S = 120.0
OUTCOMES_MEANT = {422, 429}
SEED = int(os.environ.get("MLX_STACK_LOAD_SEED", "1"))
PACE_S = float(os.environ.get("MLX_STACK_LOAD_PACE_S", "1.0"))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": words,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
                "required": ["path"],
            },
        },
    }
    for name, words in (("read_file", "Read a file"), ("list_folder", "List a folder"), ("run_tests", "Run tests"))
]
asked: Counter[str] = Counter()


class Talk:
    """One session: its history, and how a turn is added to it."""

    def __init__(self, dice: random.Random) -> None:
        self.name = f"load-{uuid.UUID(int=dice.getrandbits(128))}"
        self.dice = dice
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You are a careful engineer. " * 40},
            {"role": "user", "content": f"Fix bug {dice.randrange(10**6)}."},
        ]

    @property
    def turns(self) -> int:
        """Answers so far."""
        return sum(message["role"] == "assistant" for message in self.messages)

    def take(self, message: dict[str, Any]) -> None:
        """Append an answer and the results of its calls; without calls the user says something new."""
        self.messages.append({"role": "assistant", "content": message.get("content") or ""})
        if calls := message.get("tool_calls"):
            self.messages[-1] = {"role": "assistant", "content": None, "tool_calls": calls}
        for call in calls or ():
            result = f"result {self.dice.randrange(10**6)} " * self.dice.randrange(4, 40)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not calls:
            self.messages.append({"role": "user", "content": f"Go on with step {self.dice.randrange(10**6)}."})


class Person(HttpUser):
    """What all of them share: one request, measured."""

    abstract = True
    wait_time = constant_pacing(PACE_S)

    def on_start(self) -> None:
        """Each has dice of its own, from one seed."""
        asked["users"] += 1
        self.dice = random.Random(f"{SEED}-{type(self).__name__}-{asked['users']}")
        self.talk = Talk(self.dice)

    def ask(self, *, stream: bool, leave: bool = False) -> dict[str, Any] | None:
        """One request of the session; the answer's message, or None."""
        body = {
            "model": os.environ.get("MLX_STACK_LOAD_MODEL", "auto"),
            "messages": self.talk.messages,
            "tools": TOOLS,
            "stream": stream,
            "max_tokens": 256,
        }
        name = f"{type(self).__name__} {'stream' if stream else 'whole'}"
        headers = {"x-mlx-stack-session": self.talk.name}
        if key := os.environ.get("MLX_STACK_LOAD_KEY"):
            headers["authorization"] = f"Bearer {key}"
        began = time.perf_counter()
        options: dict[str, Any] = {"name": name, "stream": stream, "catch_response": True, "timeout": TIMEOUT_S}
        with self.client.post("/v1/chat/completions", json=body, headers=headers, **options) as response:
            try:
                if response.status_code != 200:
                    return self._refused(response, began)
                return self._streamed(response, began, leave=leave) if stream else self._whole(response, began)
            finally:
                response.close()  # of a stream that wasn't read to its end: the client leaves

    def _refused(self, response: Any, began: float) -> None:
        _note("TIER", f"none, {response.status_code}", began)
        if response.status_code in OUTCOMES_MEANT:
            response.success()
        else:
            response.failure(f"status {response.status_code}: {response.text[:300]}")

    def _whole(self, response: Any, began: float) -> dict[str, Any]:
        tier = response.headers.get("x-mlx-stack-tier", "none")
        _note("TIER", f"{tier}, answered", began)
        _calls(int(response.headers.get("x-mlx-stack-attempts", "1")))
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message

    def _streamed(self, response: Any, began: float, *, leave: bool) -> dict[str, Any] | None:
        text, calls, pieces, first, report = "", [], 0, 0.0, None
        for chunk in _chunks(response):
            if chunk is None:
                break
            if "error" in chunk:
                _note("TIER", "none, error frame", began)
                return None
            report = chunk.get("mlx_stack", report)
            for choice in chunk.get("choices", ()):
                delta = choice["delta"]
                if not delta.get("content") and not delta.get("tool_calls"):
                    continue
                pieces += 1
                if not first:
                    first = time.perf_counter()
                    _note("TTFT", "stream", began)
                if leave:
                    asked["left"] += 1
                    return None
                text += delta.get("content") or ""
                _collect(calls, delta.get("tool_calls") or ())
        else:
            response.failure("the stream just stopped")
            return None
        if pieces > 1:
            _note("GAP", "stream", first, share=pieces - 1)
        if report is not None:
            _note("TIER", f"{report['tier']}, {report['outcome']}", began)
            _calls(sum(bool(attempt["ran"]) for attempt in report["attempts"]))
        return {"content": text, "tool_calls": calls}


class Agent(Person):
    """See the module."""

    weight = 12

    @task
    def turn(self) -> None:
        """One turn of the session."""
        if self.talk.turns >= TURNS_MAX:
            self.talk = Talk(self.dice)
        message = self.ask(stream=self.dice.random() < STREAMED)
        if message is not None:
            self.talk.take(message)


class Looper(Person):
    """See the module."""

    weight = 2

    @task
    def turn(self) -> None:
        """The same call with the same result, once more."""
        if self.talk.turns >= TURNS_MAX:
            self.talk = Talk(self.dice)
        self.ask(stream=self.dice.random() < STREAMED)
        function = {"name": "read_file", "arguments": '{"path": "main.py"}'}
        call = {"id": f"call_{self.talk.turns}", "type": "function", "function": function}
        self.talk.messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "the same as before"},
        ]


class Leaver(Person):
    """See the module."""

    weight = 2

    @task
    def turn(self) -> None:
        """Ask, and go at the first bytes."""
        self.talk = Talk(self.dice)
        self.ask(stream=True, leave=True)


class Burst(Person):
    """See the module."""

    weight = 1
    wait_time = constant_pacing(10 * PACE_S)

    @task
    def many(self) -> None:
        """Several at once, each a session of its own."""
        gevent.joinall([gevent.spawn(self._once) for _ in range(BURST)])

    def _once(self) -> None:
        self.talk = Talk(self.dice)
        self.ask(stream=False)


def _chunks(response: Any) -> Iterator[dict[str, Any] | None]:
    """The chunks of a stream; None for its proper end."""
    for raw in response.iter_lines(chunk_size=None):
        if raw == b"data: [DONE]":
            yield None
        elif raw.startswith(b"data: "):
            yield json.loads(raw[6:])


def _collect(calls: list[dict[str, Any]], deltas: Any) -> None:
    for delta in deltas:
        while len(calls) <= delta["index"]:
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[delta["index"]], delta.get("function", {})
        call["id"] = delta.get("id") or call["id"]
        call["function"]["name"] = function.get("name") or call["function"]["name"]
        call["function"]["arguments"] += function.get("arguments", "")


def _note(kind: str, name: str, began: float, share: int = 1) -> None:
    """A row of our own: milliseconds since `began`, shared out."""
    took_ms = (time.perf_counter() - began) * 1000 / share
    events.request.fire(
        request_type=kind, name=name, response_time=took_ms, response_length=0, exception=None, context={}
    )


def _calls(count: int) -> None:
    asked["requests"] += 1
    asked["calls"] += count


@events.init_command_line_parser.add_listener
def _options(parser: Any) -> None:
    parser.add_argument("--figures", default=os.environ.get("MLX_STACK_LOAD_JSON", ""), help="a JSON file to write")


@events.quitting.add_listener
def _write(environment: Any, **_: Any) -> None:
    rows = [
        {
            "kind": entry.method,
            "name": entry.name,
            "requests": entry.num_requests,
            "failures": entry.num_failures,
            "per_second": round(entry.total_rps, 3),
            **{f"p{share}": entry.get_response_time_percentile(share / 100) for share in (50, 95, 99)},
        }
        for entry in environment.stats.entries.values()
    ]
    per_request = asked["calls"] / asked["requests"] if asked["requests"] else None
    figures = {"calls_per_request": per_request, "left": asked["left"], "rows": rows}
    print(f"upstream calls per request: {per_request}, clients that left: {asked['left']}")
    if path := environment.parsed_options.figures:
        Path(path).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
