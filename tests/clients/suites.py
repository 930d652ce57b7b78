"""Suites of others on this server: the features of the AI SDK by each provider, and Open Responses' compliance tests.

    python -m tests.clients.suites [--cache DIR] [--open-responses FOLDER] [--write]

The AI SDK is installed from npm, in both versions that are in use; version 7 needs Node 22, which comes as a package.
Open Responses is no package: `FOLDER` is a checkout of https://github.com/openresponses/openresponses. Of its tests
those over HTTP are run; `SKIPPED` are for what this server doesn't offer. Behind the server stands a played model.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.real_agents.agents import CACHE
from loadtests.running import handle_end_signals, run_server, short_folder
from loadtests.table import put, stamp
from tests.clients.install import install, read_version
from tests.clients.launches import DRIVERS, KEY
from tests.clients.results import PAGE
from tests.support.named_plays import play_named
from tests.support.plays import Play, Seen, good, tools
from tests.support.upstream import Upstream

SUITE_S = 300.0
NAMED, ANY = "named", "any"
SKIPPED = ("websocket-", "compact-")
SDKS = {"Vercel AI SDK 6": "ai-sdk-6", "Vercel AI SDK 7": "ai-sdk-7"}
OPEN_RESPONSES = "open-responses"


@dataclass(frozen=True, slots=True)
class Result:
    """What one suite showed. `wrong`: by the names of the cases that failed, why."""

    suite: str
    version: str
    cases: int
    wrong: Mapping[str, str]


def play_suite(seen: Seen) -> Play:
    """Play a model that calls the first tool wherever a user asks and there is one."""
    declared, last = seen.body.get("tools") or (), seen.body["messages"][-1]
    if not declared or last["role"] != "user":
        return good("Hello to all of you.")
    function = declared[0]["function"]
    return tools((function["name"], dict.fromkeys(function["parameters"].get("required", ()), "San Francisco")))


def read_features(output: str) -> tuple[int, dict[str, str]]:
    """Read what `ai_sdk_features.mjs` prints: how many cases there were, and what was wrong."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return len(lines), {line["case"]: line["wrong"] for line in lines if line["wrong"]}


def read_compliance(output: str) -> tuple[int, dict[str, str]]:
    """Read the report of Open Responses: how many tests there were, and what was wrong."""
    results = json.loads(output[output.index("{") :])["results"]
    failed = {one["id"]: "; ".join(one.get("errors") or ["?"]) for one in results if one["status"] != "passed"}
    return len(results), failed


def build_table(results: list[Result]) -> str:
    head = "| suite | version | cases | failed |\n|---|---|---|---|"
    rows = [f"| {one.suite} | {one.version} | {one.cases} | {', '.join(one.wrong) or 'none'} |" for one in results]
    return "\n".join([head, *rows])


def main() -> int:
    """Run the suites; 0 only if no case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suites", description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the packages are (default: %(default)s)")
    parser.add_argument("--open-responses", type=Path, metavar="FOLDER", help="a checkout of Open Responses")
    parser.add_argument("--write", action="store_true", help="put the table into docs/clients.md")
    given = parser.parse_args()
    handle_end_signals()
    with short_folder() as folder, Upstream() as upstream:
        upstream.plays(NAMED, play_named)
        upstream.plays(ANY, play_suite)
        with run_server(_build_args(upstream.base_url), folder) as server:
            results = [_run_features(suite, packages, given.cache, server.url) for suite, packages in SDKS.items()]
            if given.open_responses is not None:
                results.append(_run_compliance(given.open_responses, given.cache, server.url))
    print(build_table(results))
    for one in results:
        for case, words in one.wrong.items():
            print(f"{one.suite}: {case}: {words}", file=sys.stderr)
    if given.write:
        put("suites", f"{stamp('python -m tests.clients.suites')}\n\n{build_table(results)}", PAGE)
    return 1 if any(one.wrong or not one.cases for one in results) else 0


def _build_args(base_url: str) -> dict[str, Any]:
    """Build the server's `args`: a tier for each played model, with breakers that no fault of a suite opens."""
    hosted = {"kind": "hosted", "base_url": base_url}
    tiers = {"fast": hosted | {"model": NAMED}, "suite": hosted | {"model": ANY}}
    health = {"failures_max": None, "rate_percent": None}
    escalation = {"chain": ["fast"], "max_retries_before_escalate": 0}
    return {"tiers": tiers, "reliability": {"escalation": escalation, "tier_health": health}}


def _run_features(suite: str, packages: str, cache: Path, url: str) -> Result:
    programs = install(packages, cache)
    node = programs / "node" if (programs / "node").exists() else "node"
    env = os.environ | {"NODE_PREFIX": str(programs.parents[1])}
    output = _run([str(node), str(DRIVERS / "ai_sdk_features.mjs"), url], programs.parents[1], env)
    return Result(suite, read_version(packages), *read_features(output))


def _run_compliance(checkout: Path, cache: Path, url: str) -> Result:
    """Run the tests over HTTP from a copy that stands beside their packages."""
    programs = install(OPEN_RESPONSES, cache)
    copy = programs.parents[1] / "suite"
    for part in ("bin", "src"):
        shutil.copytree(checkout / part, copy / part, dirs_exist_ok=True)
    asked = [str(programs / "tsx"), "bin/compliance-test.ts", "--base-url", f"{url}/v1", "--api-key", KEY]
    text = (copy / "src" / "lib" / "compliance-tests.ts").read_text(encoding="utf-8")
    listed = [line.partition('"')[2].partition('"')[0] for line in text.splitlines() if line.startswith('    id: "')]
    wanted = ",".join(name for name in listed if not name.startswith(SKIPPED))
    output = _run([*asked, "--model", "suite", "--json", "--filter", wanted], copy, dict(os.environ))
    when = _run(["git", "log", "-1", "--format=%cs"], checkout, dict(os.environ)).strip()
    return Result("Open Responses, over HTTP", f"commit of {when or '?'}", *read_compliance(output))


def _run(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    """Run a suite, which ends with 1 where a case failed; return what it printed."""
    done = subprocess.run(
        command, cwd=folder, env=dict(env), capture_output=True, text=True, timeout=SUITE_S, check=False
    )
    if not done.stdout:
        sys.stderr.write(done.stderr[-4000:])
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
