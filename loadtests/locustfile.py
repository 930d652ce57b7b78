"""Agents under load: `locust -f loadtests/locustfile.py --host http://127.0.0.1:8000`, or `make load`.

The users behave as agents do: sessions of several turns whose history grows, with tools and tool results, streamed and
not; some repeat the same call for ever, some leave in the middle, and now and then many come at once.

    Agent    reads files by tool calls, turn upon turn, and starts a new session after `TURNS_MAX`
    Looper   sends the same call and the same result again and again: the server should nudge or break the loop
    Leaver   closes the connection after the first bytes of a stream
    Burst    sends several requests at the same moment

An open workload: each user's turns are due by the clock, however long the server takes. A session takes one turn after
another, so what is due while all of a user's sessions wait for an answer goes to a new session. At most `OPEN_MAX`
requests of a user are open; what is due beyond that is counted as `shed` and fails.

Locust's own rows and plots are of whole requests, from when they were due to their last byte. What else was measured
is in `loadtests/tally.py`: times by tier and outcome, and upstream calls per request by the server's own word
(`X-MLX-Stack-Attempts`, or the report in a stream's last chunk). `--figures FILE.json` writes it, and beside it
`FILE.figures.html` with plots; locust's page is written by `--html FILE`. A refusal that is meant (429, 422, a spent
budget) is an outcome and no failure; an error frame that isn't, a stream that just stops, an answer that can't be read
and no answer at all are. What is still open at the end, or when the run is interrupted, is counted, and fails where it
has been open for `HUNG_S`, or where nothing was answered in the whole run.

`make load` starts a server of its own with `loadtests/scripted.yaml`, whose tiers also give malformed calls and faults.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import requests
from locust import HttpUser, constant_pacing, events, task

# Locust loads this file by its path; what is beside it is found from the project's folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loadtests.real_agents.tap import add_delta
from loadtests.tally import Name, Tally

TURNS_MAX = 12
STREAMED = 0.5
BURST = 6
TIMEOUT_S = 120.0
OPEN_MAX = 64
STATUSES_MEANT = {422, 429}
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)  # what reading an answer raises that isn't one
CODES_MEANT = {"budget_exceeded", "rate_limit_exceeded", "loop_detected", "overloaded"}
SEED = int(os.environ.get("MLX_STACK_LOAD_SEED", "1"))
PACE_S = float(os.environ.get("MLX_STACK_LOAD_PACE_S", "1.0"))
HUNG_S = float(os.environ.get("MLX_STACK_LOAD_HUNG_S", "30.0"))
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
tally = Tally()


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
    """What all of them share: turns that are due by the clock, and one request, measured."""

    abstract = True
    wait_time = constant_pacing(PACE_S)
    turn: Callable[[Talk, float], None]  # one turn of one session, due at that moment

    def on_start(self) -> None:
        """Give each user dice of its own, from one seed."""
        tally.counts["users"] += 1
        self.dice = random.Random(f"{SEED}-{type(self).__name__}-{tally.counts['users']}")
        self.idle: list[Talk] = []
        self.open: dict[gevent.Greenlet, float] = {}  # since when it was due

    def on_stop(self) -> None:
        """Count what is still open, and end it."""
        tally.counts["open_at_end"] += len(self.open)
        for due_s in self.open.values():
            if _since_ms(due_s) > HUNG_S * 1000:
                _fire(f"{type(self).__name__} hung", due_s, RuntimeError(f"no end after {HUNG_S:g} s"))
        gevent.killall(list(self.open))

    @task
    def take_due_turns(self) -> None:
        """Begin the turns that are due, whether or not the last one was answered."""
        due_s = time.perf_counter()
        for _ in range(self.at_once):
            if len(self.open) >= OPEN_MAX:
                tally.counts["shed"] += 1
                error = RuntimeError(f"{OPEN_MAX} requests of this user are open")
                _fire(f"{type(self).__name__} shed", due_s, error)
                continue
            talk = self.idle.pop() if self.idle else Talk(self.dice)
            turn = gevent.spawn(self._turn, talk, due_s)
            self.open[turn] = due_s
            turn.link(lambda done: self.open.pop(done, None))

    at_once = 1

    def _turn(self, talk: Talk, due_s: float) -> None:
        try:
            self.turn(talk, due_s)
        except Exception as error:
            _fire(f"{type(self).__name__} died", due_s, error)
            raise
        if talk.turns < TURNS_MAX:
            self.idle.append(talk)

    def ask(self, talk: Talk, due_s: float, *, stream: bool, leave: bool = False) -> dict[str, Any] | None:
        """Send one request of the session; return the answer's message, or None."""
        body = {
            "model": os.environ.get("MLX_STACK_LOAD_MODEL", "auto"),
            "messages": talk.messages,
            "tools": TOOLS,
            "stream": stream,
            "max_tokens": 256,
        }
        name = f"{type(self).__name__} {'stream' if stream else 'whole'}"
        headers = {"x-mlx-stack-session": talk.name}
        if key := os.environ.get("MLX_STACK_LOAD_KEY"):
            headers["authorization"] = f"Bearer {key}"
        options: dict[str, Any] = {"name": name, "stream": stream, "catch_response": True, "timeout": TIMEOUT_S}
        with self.client.post("/v1/chat/completions", json=body, headers=headers, **options) as response:
            try:
                if response.status_code != 200:
                    return _count_refusal(response, due_s, stream=stream)
                return _read_stream(response, due_s, leave=leave) if stream else _read_whole(response, due_s)
            except MALFORMED as error:  # also JSON that isn't, which is a RequestException as well
                return _count_failure(response, due_s, f"malformed: {type(error).__name__}", stream=stream)
            except requests.RequestException as error:
                return _count_failure(response, due_s, f"broke off: {type(error).__name__}", stream=stream)
            finally:
                response.request_meta["response_time"] = _since_ms(due_s)
                if response.raw is not None:  # there was an answer
                    response.close()  # of a stream that wasn't read to its end: the client leaves


def _count_failure(response: Any, due_s: float, outcome: str, *, stream: bool) -> None:
    """Count what began as an answer and was none."""
    response.failure(outcome)
    _count_cut(response, due_s, outcome, stream=stream)


def _count_cut(response: Any, due_s: float, outcome: str, *, stream: bool) -> None:
    """Count what wasn't answered, or not read to its end: only the headers name its tier and its upstream calls."""
    _note_total(response.headers.get("x-mlx-stack-tier", "none"), outcome, due_s, stream=stream)
    if attempts := response.headers.get("x-mlx-stack-attempts"):
        _count_calls(int(attempts))


def _count_refusal(response: Any, due_s: float, *, stream: bool) -> None:
    """Count a refusal. That there was no answer at all, and so no status, is a failure that locust sees by itself."""
    if not response.status_code:
        return _count_cut(response, due_s, "no answer", stream=stream)
    code = _find_code(response)
    _count_cut(response, due_s, code or f"status {response.status_code}", stream=stream)
    if response.status_code in STATUSES_MEANT or code in CODES_MEANT:
        return response.success()
    return response.failure(f"status {response.status_code}: {response.text[:300]}")


def _read_whole(response: Any, due_s: float) -> dict[str, Any]:
    message: dict[str, Any] = response.json()["choices"][0]["message"]
    tally.counts["parallel"] += len({call["id"] for call in message.get("tool_calls") or ()}) > 1
    headers = response.headers
    loop = headers.get("x-mlx-stack-loop")
    tier = headers.get("x-mlx-stack-tier", "none")
    _note_total(tier, f"answered, loop {loop}" if loop else "answered", due_s, stream=False)
    _count_calls(int(headers.get("x-mlx-stack-attempts", "1")))
    return message


def _read_stream(response: Any, due_s: float, *, leave: bool) -> dict[str, Any] | None:
    """Read a stream to its end, or leave it at the first text or call."""
    message: dict[str, Any] = {"content": ""}
    at_s, report, finish = [], {}, None
    for chunk in _read_chunks(response):
        if chunk is None:
            break
        report = chunk.get("mlx_stack", report)
        if "error" in chunk:
            return _count_error_frame(response, due_s, chunk["error"].get("code"), report)
        for choice in chunk.get("choices", ()):
            delta, finish = choice["delta"], choice.get("finish_reason") or finish
            if not delta.get("content") and not delta.get("tool_calls"):
                continue
            at_s.append(time.perf_counter())
            if leave:
                tally.counts["left"] += 1
                return _count_cut(response, due_s, "left", stream=True)
            add_delta(message, delta)
    else:
        return _count_failure(response, due_s, "the stream just stopped", stream=True)
    if finish is None:
        raise ValueError("a stream without a finish_reason")
    _note_times(due_s, at_s, report)
    tally.counts["parallel"] += len(message.get("tool_calls") or ()) > 1
    return message


def _count_error_frame(response: Any, due_s: float, code: str | None, report: dict[str, Any]) -> None:
    if report:
        _note_total(report.get("tier") or "none", f"error frame {code}", due_s, stream=True)
        _count_calls(_count_ran(report))
    else:
        _count_cut(response, due_s, f"error frame {code}", stream=True)
    if code not in CODES_MEANT:
        response.failure(f"error frame: {code}")


def _note_times(due_s: float, at_s: list[float], report: dict[str, Any]) -> None:
    """Note the times of a stream that came to its end."""
    tier, loop = report.get("tier") or "none", report.get("loop")
    outcome = f"{report.get('outcome', 'answered')}{f', loop {loop}' if loop else ''}"
    _note_total(tier, outcome, due_s, stream=True)
    _count_calls(_count_ran(report) or 1)
    if at_s:
        tally.note(Name("ttft", tier, outcome, "stream"), (at_s[0] - due_s) * 1000)
    for before, after in pairwise(at_s):
        tally.note(Name("gap", tier, outcome, "stream"), (after - before) * 1000)


def _count_ran(report: dict[str, Any]) -> int:
    return sum(bool(attempt["ran"]) for attempt in report.get("attempts", ()))


class Agent(Person):
    """See the module."""

    weight = 12

    def turn(self, talk: Talk, due_s: float) -> None:
        """Take one turn of the session."""
        message = self.ask(talk, due_s, stream=self.dice.random() < STREAMED)
        if message is not None:
            talk.take(message)


class Looper(Person):
    """See the module."""

    weight = 2

    def turn(self, talk: Talk, due_s: float) -> None:
        """Send the same call with the same result, once more."""
        self.ask(talk, due_s, stream=self.dice.random() < STREAMED)
        function = {"name": "read_file", "arguments": '{"path": "main.py"}'}
        call = {"id": f"call_{talk.turns}", "type": "function", "function": function}
        talk.messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "the same as before"},
        ]


class Leaver(Person):
    """See the module."""

    weight = 2

    def turn(self, talk: Talk, due_s: float) -> None:
        """Ask, and go at the first bytes."""
        self.ask(Talk(self.dice), due_s, stream=True, leave=True)


class Burst(Person):
    """See the module."""

    weight = 1
    wait_time = constant_pacing(10 * PACE_S)
    at_once = BURST

    def turn(self, talk: Talk, due_s: float) -> None:
        """Ask as one of several at once, each a session of its own."""
        self.ask(Talk(self.dice), due_s, stream=False)


def _read_chunks(response: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the chunks of a stream; None for its proper end."""
    for raw in response.iter_lines(chunk_size=None):
        if raw == b"data: [DONE]":
            yield None
        elif raw.startswith(b"data: "):
            yield json.loads(raw[6:])


def _find_code(response: Any) -> str:
    """Return the error's code, where the body has one."""
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _note_total(tier: str, outcome: str, due_s: float, *, stream: bool) -> None:
    tally.note(Name("total", tier, outcome, "stream" if stream else "whole"), _since_ms(due_s))


def _since_ms(due_s: float) -> float:
    return (time.perf_counter() - due_s) * 1000


def _count_calls(count: int) -> None:
    tally.counts["requests"] += 1
    tally.counts["calls"] += count


def _fire(name: str, due_s: float, error: Exception) -> None:
    """Add a row of locust's for what was never sent."""
    events.request.fire(
        request_type="POST", name=name, response_time=_since_ms(due_s), response_length=0, exception=error, context={}
    )


@events.init_command_line_parser.add_listener
def _add_options(parser: Any) -> None:
    parser.add_argument("--figures", default=os.environ.get("MLX_STACK_LOAD_JSON", ""), help="a JSON file to write")


@events.quitting.add_listener
def _write_figures(environment: Any, **_: Any) -> None:
    environment.runner.stop()  # where the run was interrupted: what is open is counted first
    requests_made = [
        {
            "name": entry.name,
            "requests": entry.num_requests,
            "failures": entry.num_failures,
            "per_second": round(entry.total_rps, 3),
            **{f"p{share}": entry.get_response_time_percentile(share / 100) for share in (50, 95, 99)},
        }
        for entry in environment.stats.entries.values()
    ]
    figures = tally.figures() | {"requests": requests_made}
    print(f"upstream calls per request: {figures['calls_per_request']}, {figures['counts']}")
    for row in figures["rows"]:
        print(
            "{kind:6} {how:7} {tier}, {outcome}: {count}, p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms".format(**row)
        )
    if tally.counts["open_at_end"] and not requests_made:
        environment.process_exit_code = 1
        print(f"nothing was answered, and {tally.counts['open_at_end']} requests are open", file=sys.stderr)
    if path := environment.parsed_options.figures:
        Path(path).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        Path(path).with_suffix(".figures.html").write_text(tally.page(), encoding="utf-8")
