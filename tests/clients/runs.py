"""Runs: one client in one scenario, in folders of its own, for a bounded time, and what was found."""

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from loadtests.real_agents.runs import run_launch
from loadtests.real_agents.tap import listen
from tests.clients.catalog import Client
from tests.clients.checks import AFTER_S, Finding, check_answers, check_usage, count_after, find_final, is_shown
from tests.clients.launches import CODEX_MODEL, Place
from tests.clients.moves import ANSWER, FILE, NOTES, TASK
from tests.clients.players import Players
from tests.clients.record import Record
from tests.support.upstream import Upstream

WEAK_AND_GOOD = {"fast": "weak", "standard": "good"}
RUN_S = 150.0
REQUESTS_MAX = 80
# aider waits for its user after three tries: how often the user has to say the same until the end comes.
USER_SAYS = {"loop": 2, "budget": 3}
AFTER_REQUESTS_MAX = 40
OUTPUT_CHARS_MAX = 4_000
WORDS_CHARS_MAX = 120


def build_server_args(base_url: str) -> dict[str, Any]:
    """Build the server's `args`: two hosted tiers on an upstream, a budget that stops; all else as shipped."""
    tiers = {name: {"kind": "hosted", "base_url": base_url, "model": model} for name, model in WEAK_AND_GOOD.items()}
    budget = {"per_session": 500_000, "per_hour": None, "policy": "hard_stop"}
    reliability = {"escalation": {"chain": list(tiers)}, "token_budget": budget}
    return {"tiers": tiers, "reliability": reliability, "server": {"aliases": {CODEX_MODEL: "fast"}}}


def run_client(
    client: Client,
    scenario: str,
    programs: Path,
    url: str,
    upstream: Upstream | None,
    folder: Path,
    seconds: float = RUN_S,
) -> tuple[Finding, Record]:
    """Run one client against the server at `url`, whose models are played on `upstream`; None: they are real ones, and
    only the end of the run counts. `seconds`: the longest that it may take."""
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    (work / FILE).write_text(NOTES, encoding="utf-8")
    players = Players(scenario, client.moves, {"file": str(work / FILE), "folder": str(work)}, client.style)
    if upstream is not None:
        for model in WEAK_AND_GOOD.values():
            upstream.plays(model, partial(players.play, weak=model == "weak"))
        _close_breakers(url)
    begun = time.monotonic()
    with listen(url, Record()) as record:
        place = Place(programs, work, home, record.url, TASK, says=USER_SAYS.get(scenario, 1))
        launch = client.build(place)
        code, output = run_launch(launch, work, home, lambda: _is_enough(record, scenario), seconds)
    finding = Finding(client.name, scenario, exit_code=code, seconds=round(time.monotonic() - begun, 1))
    finding.ended = code is not None
    finding.requests, finding.calls = len(record.spoken), sum(len(one.answer.calls) for one in record.spoken)
    finding.played = sorted(players.played)
    notes = (work / FILE).read_text(encoding="utf-8", errors="replace") if (work / FILE).exists() else ""
    _judge(finding, record, _read_reports(record, url), notes, output)
    finding.words = " ".join(output.split())[-WORDS_CHARS_MAX:]
    if upstream is not None:
        finding.done = finding.done and ANSWER in " ".join(output.split())
    print(json.dumps(asdict(finding)), file=sys.stderr, flush=True)
    record.output = output[-OUTPUT_CHARS_MAX:]
    return finding, record


def _close_breakers(url: str) -> None:
    """Let no run feel what the one before has done to the tiers."""
    for tier in WEAK_AND_GOOD:
        httpx.post(f"{url}/v1/reliability/tiers/{tier}/close", timeout=30.0).raise_for_status()


def _is_enough(record: Record, scenario: str) -> bool:
    if len(record.spoken) >= REQUESTS_MAX:
        return True
    final = find_final(record.spoken) if scenario != "job" else None
    if final is None:
        return False
    over = time.monotonic() - record.begun > final.ended_s + AFTER_S
    return over or count_after(record.spoken, final) >= AFTER_REQUESTS_MAX


def _judge(finding: Finding, record: Record, reports: Mapping[str, Any], notes: str, output: str) -> None:
    finding.wrong = check_answers(record.spoken)
    finding.usage_checked, wrong_usage = check_usage(record.spoken, reports)
    finding.wrong += wrong_usage
    if finding.scenario == "job":
        asked = json.dumps([one.body for one in record.spoken])
        ran = f"3 {FILE}" in asked + output
        finding.done = notes == NOTES.replace("red", "blue") and ran
        return
    final = find_final(record.spoken)
    if final is not None:
        report = reports.get(final.headers.get("x-request-id", ""), {})
        finding.final = f"{final.status} {report.get('outcome') or final.code}"
        finding.after = count_after(record.spoken, final)
        finding.shown = is_shown(record.spoken, output)


def _read_reports(record: Record, url: str) -> dict[str, Any]:
    """Read the server's reports of all requests, by their id."""
    reports = {}
    with httpx.Client(base_url=url, timeout=30.0) as client:
        for one in record.spoken:
            request_id = one.headers.get("x-request-id", "")
            response = client.get(f"/v1/reliability/requests/{request_id}") if request_id else None
            if response is not None and response.status_code == 200:
                reports[request_id] = response.json()
    return reports


def read_findings(folder: Path) -> list[Finding]:
    """Read what the last run of each client in each scenario showed."""
    paths = sorted(folder.glob("*.json"))
    return [Finding(**json.loads(path.read_text(encoding="utf-8"))["finding"]) for path in paths]


def write_record(folder: Path, finding: Finding, record: Record) -> None:
    """Write all that was seen of a run as JSON, over the run before."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = {"finding": asdict(finding), "output": record.output, "others": record.others}
    seen["exchanges"] = [asdict(one) for one in record.spoken]
    name = re.sub(r"\W+", "-", finding.client).strip("-").lower()
    path = folder / f"{name}.{finding.scenario}.json"
    path.write_text(json.dumps(seen, indent=1, ensure_ascii=False), encoding="utf-8")
