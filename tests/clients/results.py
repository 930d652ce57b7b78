"""The table of all clients, for docs/clients.md."""

from collections.abc import Sequence

from loadtests.running import ROOT
from tests.clients.catalog import Client
from tests.clients.checks import AFTER_MAX, Finding
from tests.clients.install import read_version
from tests.clients.players import FAULTS

PAGE = ROOT / "docs" / "clients.md"


def is_met(finding: Finding, *, real: bool = False) -> bool:
    """Return whether a run was as it must be. `real`: the models were real, so that any clear end will do."""
    if real:
        return finding.ended and not finding.wrong
    if finding.wrong:
        return False
    if finding.scenario == "job":
        return finding.done
    if finding.scenario == "dead":  # it may pass: who still asks after a minute, as bidden, has nothing to show yet
        return bool(finding.final) and (finding.shown or not finding.ended)
    return bool(finding.final) and finding.shown and finding.after <= AFTER_MAX


def build_table(clients: Sequence[Client], findings: Sequence[Finding]) -> str:
    heads = ["client", "version", "API", "what to set", "job", "faults mended", "loop", "budget", "chain down", "usage"]
    rows = [f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"]
    for client in clients:
        own = {one.scenario: one for one in findings if one.client == client.name}
        cells = [client.name, read_version(client.packages), client.wire, client.lines, _show_job(own.get("job"))]
        cells += [_show_faults(client, own.get("job"))]
        cells += [_show_end(own.get(name), client.excused.get(name, "")) for name in ("loop", "budget", "dead")]
        rows.append(f"| {' | '.join([*cells, _show_usage(own.values())])} |")
    return "\n".join(rows)


def build_real_table(findings: Sequence[Finding]) -> str:
    """Build the table of runs on real models: whether each came to an end, and to which."""
    heads = ["client", "done", "end", "requests", "calls", "s", "wrong", "last words"]
    rows = [f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"]
    for one in findings:
        end = f"exit code {one.exit_code}" if one.ended else "**had to be stopped**"
        cells = [one.client, "yes" if one.done else "no", end, one.requests, one.calls, one.seconds]
        cells += ["; ".join(one.wrong) or "nothing", one.words.replace("|", "/")]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def _show_job(job: Finding | None) -> str:
    if job is None:
        return "not run"
    return "done" if job.done else "**not done**"


def _show_faults(client: Client, job: Finding | None) -> str:
    if "faults" in client.excused:
        return client.excused["faults"]
    if job is None:
        return "not run"
    bad = [problem for problem in job.wrong if "usage" not in problem]
    return f"**{len(bad)} bad**" if bad else f"{len(job.played)} of {len(FAULTS)}"


def _show_end(finding: Finding | None, excuse: str) -> str:
    if finding is None:
        return "not run"
    shown = "shown" if finding.shown else "not shown" if finding.ended else "still trying after a minute"
    words = f"{finding.final}, {shown}, {finding.after} after" if finding.final else "no error came"
    if is_met(finding):
        return words
    return f"{words}: {excuse}" if excuse else f"**{words}**"


def _show_usage(findings: Sequence[Finding]) -> str:
    checked = sum(one.usage_checked for one in findings)
    wrong = sum("usage" in problem for one in findings for problem in one.wrong)
    return f"**{wrong} wrong**" if wrong else f"{checked} right" if checked else "not asked for"
