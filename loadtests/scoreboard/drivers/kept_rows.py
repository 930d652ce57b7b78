"""What every driver shares: its arguments, the rows of a file, and a request to the server that is tried."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

REQUEST_S = 1800.0
TOKENS_MAX = 512
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Given:
    """What the scoreboard asks of a driver. `cases`: the most of each kind; `minutes`: no case begins after them."""

    url: str
    model: str
    rows: Path
    seeds: tuple[int, ...]
    cases: int
    minutes: float

    @classmethod
    def parse(cls) -> Given:
        """Parse the command line."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--url", required=True)
        parser.add_argument("--model", required=True)
        parser.add_argument("--rows", type=Path, required=True)
        parser.add_argument("--seeds", type=int, required=True)
        parser.add_argument("--cases", type=int, required=True)
        parser.add_argument("--minutes", type=float, required=True)
        args = parser.parse_args()
        return cls(args.url, args.model, args.rows, tuple(range(1, args.seeds + 1)), args.cases, args.minutes)


@dataclass(slots=True)
class Asked:
    """One case as it is run: what it costs is counted over all of its requests."""

    given: Given
    seed: int
    tokens_in: int = 0
    tokens_out: int = 0
    answers: list[Any] = field(default_factory=list)

    async def ask(self, client: httpx.AsyncClient, messages: list[Row], **fields: Any) -> Row:
        """Return the message of a chat completion; an error of the server is an answer without text.

        Raises:
            httpx.TransportError: the server doesn't answer.
        """
        body = {"model": self.given.model, "messages": messages, "seed": self.seed, "max_tokens": TOKENS_MAX}
        body |= {"temperature": 0.0} | fields
        response = await client.post(f"{self.given.url}/chat/completions", json=body)
        if not response.is_success:
            self.answers.append({"status": response.status_code, "body": response.text[:2000]})
            return {"role": "assistant", "content": None}
        answer = response.json()
        usage, choice = answer.get("usage") or {}, answer["choices"][0]
        self.tokens_in += usage.get("prompt_tokens") or 0
        self.tokens_out += usage.get("completion_tokens") or 0
        self.answers.append({"message": choice["message"], "finish_reason": choice.get("finish_reason")})
        return dict(choice["message"])


def run_cases(given: Given, cases: Iterable[tuple[str, Any]], run: Callable[[Asked, Any, Any], Awaitable[Row]]) -> None:
    """Run what isn't in the rows yet, seed by seed, and add a row for each: `run` gives at least `right`."""
    asyncio.run(_run_all(given, list(cases), run))


async def _run_all(
    given: Given, cases: list[tuple[str, Any]], run: Callable[[Asked, Any, Any], Awaitable[Row]]
) -> None:
    known = read_keys(given.rows)
    ends_s = time.monotonic() + 60 * given.minutes
    async with httpx.AsyncClient(timeout=REQUEST_S) as client:
        for seed in given.seeds:
            for name, case in cases:
                if (name, seed) in known:
                    continue
                if time.monotonic() > ends_s:
                    print(f"the {given.minutes:g} minutes are over at {name}, seed {seed}", flush=True)
                    return
                asked, began_s = Asked(given, seed), time.monotonic()
                row = await run(asked, client, case)
                counted = {"in": asked.tokens_in, "out": asked.tokens_out, "seconds": time.monotonic() - began_s}
                add_row(given.rows, {"case": name, "seed": seed} | counted | row | {"answers": asked.answers})


def read_keys(rows: Path) -> set[tuple[str, int]]:
    """Read which cases and seeds have a row."""
    if not rows.exists():
        return set()
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    return {(line["case"], line["seed"]) for line in lines}


def add_row(rows: Path, row: Row) -> None:
    """Add a row, and say so."""
    row["seconds"] = round(row["seconds"], 2)
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, default=str) + "\n")
    print(f"{row['case']} seed {row['seed']}: {'right' if row['right'] else 'wrong'}, {row['seconds']} s", flush=True)


def read_calls(message: Row) -> list[tuple[str, str]]:
    """Read the calls of a message: name and arguments as text."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [(function["name"], function["arguments"]) for function in functions]
