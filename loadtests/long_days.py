"""Sessions of many turns with published agents on a real local model whose context they outgrow.

    python -m loadtests.long_days [--agents codex opencode qwen claude] [--turns 42] [--model large] [--context 16384]
        [--tools deferred]

Each agent is started by `mlx-stack-serve launch`, as its users start it, turn by turn in one conversation. A turn asks
it to read one more file. What counts: does every turn end with an answer, and how many tokens the model read in each
turn (the prompt less what the cache served). The lines of a running session are printed as they come; the rows go into
`loadtests/results/long_days.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from deployments.models.sources import CODER_LARGE, CODER_SMALL
from loadtests.real_agents.agents import Launch
from loadtests.real_agents.runs import run_launch
from loadtests.running import ROOT, handle_end_signals, run_server, short_folder
from tests.clients.install import install

CACHE = Path.home() / ".cache" / "mlx-stack-agents"
ROWS = ROOT / "loadtests" / "results" / "long_days.jsonl"
MODELS = {"small": CODER_SMALL, "large": CODER_LARGE}
TURN_S = 1500.0
LINES = 24
NAMES = ("Mira", "Tomas", "Lena", "Oskar", "Ida", "Pavel", "Nora")
# The package, the arguments of a first turn, and those of each later one in the same conversation.
AGENTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "codex": (
        "codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        ("exec", "resume", "--last", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    ),
    "claude": (
        "claude-code",
        ("--dangerously-skip-permissions", "-p"),
        ("--dangerously-skip-permissions", "--continue", "-p"),
    ),
    "opencode": ("opencode", ("run",), ("run", "--continue")),
    "qwen": ("qwen-code", ("--yolo", "-p"), ("--yolo", "--continue", "-p")),
}


def run_session(agent: str, url: str, folder: Path, turns: int) -> Iterator[dict[str, Any]]:
    """Run one session; yield a row a turn: its requests with outcome, and of each attempt the tokens of its prompt and
    those that were read."""
    package, first, later = AGENTS[agent]
    programs = install(package, CACHE)
    work, home = folder / f"{agent}-work", folder / f"{agent}-home"
    work.mkdir()
    home.mkdir()
    for turn in range(turns):
        name = f"part_{turn:02}.txt"
        (work / name).write_text(_write_part(turn), encoding="utf-8")
    seen = {one["id"] for one in _list_requests(url)}  # of other sessions
    for turn in range(turns):
        prompt = f"Read the file part_{turn:02}.txt and say what its owner's name is."
        command = [sys.executable, "-m", "deployments", "launch", package.partition("-")[0], "--url", url, "--"]
        environment = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "IS_SANDBOX": "1"}
        launch = Launch([*command, *(later if turn else first), prompt], environment)
        begun = time.monotonic()
        code, output = run_launch(launch, work, home, lambda: False, TURN_S)
        requests = [one for one in _list_requests(url) if one["id"] not in seen]
        seen |= {one["id"] for one in requests}
        row = {"agent": agent, "turn": turn, "exit": code, "seconds": round(time.monotonic() - begun, 1)}
        yield row | {"named": _name_owner(turn) in output, "end": output[-200:]} | _sum_up(requests)


def _write_part(turn: int) -> str:
    lines = [f"Entry {number} of part {turn}: item {turn * 37 + number * 11} is in order." for number in range(LINES)]
    lines.insert(LINES // 2, f"The owner's name is {_name_owner(turn)}.")
    return "\n".join(lines) + "\n"


def _name_owner(turn: int) -> str:
    return f"{NAMES[turn % len(NAMES)]}-{turn * 7919 % 1000:03}"


def _list_requests(url: str) -> list[dict[str, Any]]:
    """List the finished requests, the oldest first."""
    answer = httpx.get(f"{url}/v1/reliability/requests", params={"limit": 200}, timeout=60.0)
    return list(reversed(answer.raise_for_status().json()["data"]))


def _sum_up(requests: list[dict[str, Any]]) -> dict[str, Any]:
    known = [attempt for one in requests for attempt in one["attempts"] if not attempt["estimated"]]
    usages = [attempt["usage"] for attempt in known if attempt["usage"]]
    prompts = [usage["prompt_tokens"] for usage in usages]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    return {
        "requests": len(requests),
        "outcomes": [one["outcome"] for one in requests],
        "prompts": prompts,
        "read": [whole - kept for whole, kept in zip(prompts, cached, strict=True)],
        "notes": sorted({note for one in requests for note in one["notes"]}),
    }


def build_table(rows: list[dict[str, Any]]) -> str:
    """Build the table: a line an agent."""
    lines = ["| agent | turns with an answer | requests | longest prompt | tokens read a turn: median, most |"]
    lines.append("|---|---|---|---|---|")
    for agent in AGENTS:
        turns = [row for row in rows if row["agent"] == agent]
        if not turns:
            continue
        read = [sum(row["read"]) for row in turns]
        ended = sum(row["exit"] == 0 for row in turns)
        longest = max(prompt for row in turns for prompt in row["prompts"] or [0])
        count = sum(row["requests"] for row in turns)
        middle, most = statistics.median(read), max(read)
        lines.append(f"| {agent} | {ended} of {len(turns)} | {count} | {longest:,} | {middle:,.0f}, {most:,} |")
    return "\n".join(lines)


def main() -> int:
    """Run the sessions, one agent after the other."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.long_days", description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--turns", type=int, default=42)
    parser.add_argument("--model", choices=MODELS, default="large")
    parser.add_argument("--context", type=int, default=16_384)
    parser.add_argument("--tools", choices=("all", "deferred"), default="all")
    args = parser.parse_args()
    handle_end_signals()
    tier = {"kind": "mlx", "model": MODELS[args.model], "context_tokens": args.context, "tools": args.tools}
    budget = {"per_session": None, "per_hour": None}
    reliability = {"token_budget": budget, "context": "shorten", "escalation": {"chain": ["fast"]}}
    rows = []
    ROWS.parent.mkdir(exist_ok=True)
    with short_folder() as folder, run_server({"tiers": {"fast": tier}, "reliability": reliability}, folder) as running:
        for agent in args.agents:
            for row in run_session(agent, running.url, folder, args.turns):
                rows.append(row)
                print(json.dumps(row), flush=True)
                with ROWS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    print(build_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
