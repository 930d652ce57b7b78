"""What goes through the proxy between a client and the server, in the client's own API."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtests.real_agents.tap import Tap
from tests.clients.wires import Answer, Required, chat, messages, read_json, responses

WIRES = {"/chat/completions": chat, "/messages": messages, "/responses": responses}
# What ends each of the three runs that end in an error.
FINAL = ("loop_detected", "budget_exceeded", "upstream_error", "no_tier_available")
ERROR_CHARS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Spoken:
    """One request to a model and its answer. `at_s`: when it came; `ended_s`: when its answer had been passed on, both
    since the run began."""

    at_s: float
    ended_s: float
    wire: str
    body: dict[str, Any]
    tools: Required
    status: int
    headers: dict[str, str]
    answer: Answer

    @property
    def code(self) -> str:
        """The server's code of the error, empty where there is none."""
        error = self.answer.error or {}
        return str(error.get("code") or error.get("type") or "error") if error else ""

    @property
    def is_error(self) -> bool:
        return self.status >= 400 or self.answer.error is not None


@dataclass
class Record(Tap):
    """All that went through. `others`: requests for anything but an answer of a model, and their status; `output`: what
    the client showed."""

    spoken: list[Spoken] = field(default_factory=list)
    others: list[tuple[str, int]] = field(default_factory=list)
    output: str = ""

    def keep(self, at_s: float, path: str, body: bytes, status: int, headers: Mapping[str, str], raw: bytes) -> None:
        wire = next((end for end in WIRES if path.rstrip("/").endswith(end)), None)
        asked = read_json(body)
        if wire is None or asked is None:
            self.others.append((path, status))
            return
        answer = WIRES[wire].read_answer(raw)
        if status >= 400 and answer.error is None:
            answer.error = {"message": raw.decode("utf-8", "replace")[:ERROR_CHARS_MAX]}
        tools = WIRES[wire].read_tools(asked)
        ended_s = time.monotonic() - self.begun
        self.spoken.append(Spoken(at_s, ended_s, wire, asked, tools, status, dict(headers), answer))
