"""The lines of the terminal during a start and a stop: from news to lines. Pure.

News is one JSON object a line, from driver and session leader. Each change of a tier is one line, except a percentage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deployments.running.terminal_text import clean_text

_WORDS_MAX = 300
STARTING = frozenset({"starting", "loading"})
_SHARE = re.compile(r"\d+ %")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)(?:\([\w.]*\))?: ")
_OURS = re.compile(r"(?:^|[\s:])(?:\w+\.)*(?:ConfigError|ScriptError): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """Where the server is, and what a client needs. `keyed`: whether it needs a key."""

    url: str
    config: str
    log: str
    keyed: bool = False


@dataclass(slots=True)
class RunStatus:
    """What is known of a run."""

    tiers: dict[str, dict[str, Any]] = field(default_factory=dict)
    ray_session: str = ""
    failed: str | None = None
    draining: int | None = None
    cut: int | None = None
    ended: dict[str, Any] | None = None

    @property
    def answers(self) -> bool:
        return can_answer(str(tier.get("state")) for tier in self.tiers.values())

    def progress(self, seconds: float, columns: int) -> str:
        """Build the line that is written over: what is being waited for."""
        waiting = [f"{name} {tier['state']}" for name, tier in self.tiers.items() if tier.get("state") in STARTING]
        what = ", ".join(waiting) or ("Ray Serve" if self.ray_session else "Ray")
        return f"  {seconds:.0f} s: waiting for {what}"[: max(0, columns - 1)]


def can_answer(states: Iterable[str]) -> bool:
    """Tell whether a request would be answered soon, by the states of the tiers in its chain. One that sleeps is woken
    by a request, so it counts; but not behind one that is loading, which is there sooner."""
    coming = False
    for state in states:
        if state == "ready" or (state == "asleep" and not coming):
            return True
        coming = coming or state in STARTING
    return False


def read_news(status: RunStatus, line: bytes) -> list[str]:
    """Take one line of news in; return the lines that it is worth on the terminal."""
    try:
        news = json.loads(line)
    except ValueError:
        return []
    lines = []
    for name, tier in news.get("tiers", {}).items():
        shown, status.tiers[name] = status.tiers.get(name), tier
        if shown is None or _strip_share(shown) != _strip_share(tier):
            lines.append(_tier_line(name, tier))
    status.ray_session = news.get("ray_session", status.ray_session)
    status.failed = news.get("failed", status.failed)
    status.draining = news.get("draining", status.draining)
    status.ended = news.get("ended", status.ended)
    status.cut = news.get("drained", {}).get("cut", status.cut)
    return lines


def _tier_line(name: str, tier: Mapping[str, Any]) -> str:
    """Build the line of one tier: its state, what stands behind it, and why it can't answer."""
    what = tier.get("source") or tier.get("model") or tier.get("kind") or ""
    why = tier.get("reason") or ""
    shown = "" if tier.get("state") == "ready" else why
    words = "; ".join(filter(None, (_short(str(what).partition("#")[0]), _short(shown))))
    return f"  {name:<12} {tier.get('state', ''):<12} {words}".rstrip()


def ready_lines(place: ServerPlace, status: RunStatus, seconds: float) -> list[str]:
    """Build the lines of a server that can answer."""
    key = "KEY   # one of the server's API keys" if place.keyed else "unused"
    return [
        f"ready after {seconds:.0f} s: {place.url}",
        "",
        f"  export OPENAI_BASE_URL={place.url}/v1",
        f"  export OPENAI_API_KEY={key}",
        "",
        f"  control room: {place.url}/",
        f"  log:          {place.log}" + (f", more under {status.ray_session}/logs" if status.ray_session else ""),
        "  Ctrl-C stops it",
    ]


def failure(messages: Iterable[str]) -> str:
    """Find the line that says why a start has failed in Serve's messages, which hold whole stacks."""
    lines = [clean_text(line).strip() for message in messages for line in (message or "").splitlines()]
    lines = [line for line in lines if line]
    ours = [_OURS.split(line, maxsplit=1)[1] for line in lines if _OURS.search(line)]
    raised = [line for line in lines if _RAISED.match(line)]
    return _short((ours or raised or lines or ["no reason was given"])[-1])


def _strip_share(tier: Mapping[str, Any]) -> dict[str, Any]:
    return {**tier, "reason": _SHARE.sub("", str(tier.get("reason") or ""))}


def _short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _WORDS_MAX else f"{words[: _WORDS_MAX - 1]}…"
