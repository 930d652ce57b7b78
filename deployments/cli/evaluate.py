"""`mlx-stack-serve evaluate`: run or continue an evaluation, write the report, compare, apply.

Ctrl-C, SIGTERM and the end of the terminal end it, and the report is written all the same; the same command continues.
Exit codes: 0 done, 1 a regression from the older report, or nothing could be measured, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.config.app_config import AppConfig
from deployments.config.config_errors import ConfigError
from deployments.config.config_paths import BUILT_IN, announce_config
from deployments.evaluate.apply_proposal import check_proposal, show_difference, write_file, write_proposal
from deployments.evaluate.cell_journal import CellJournal
from deployments.evaluate.evaluation_plan import PlanPhase, Settings
from deployments.evaluate.evaluation_run import ProgressLine, run_evaluation
from deployments.evaluate.evaluation_target import NoServer, OwnTarget, Target, UrlTarget, read_config
from deployments.evaluate.figures.comparison import compare_reports, is_comparable
from deployments.evaluate.kept_reports import find_kept_folder, keep_report
from deployments.evaluate.pages.report_pages import render_page, render_summary
from deployments.evaluate.report_data import FORMAT, build_report

INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions(Settings):
    """The command line, with the size (`deployments/cli/commands.py` says what each option is for)."""

    config: Path | None
    url: str | None
    models: Sequence[str]
    out: Path
    fresh: bool
    cloud: bool
    compare: Path | None
    apply: bool
    yes: bool


def evaluate(arguments: EvaluateOptions) -> int:
    """Do what the command line asks for; return the exit code."""
    if arguments.models and arguments.url is None:
        raise ConfigError("--model needs --url: of a configuration all tiers are measured")
    if arguments.config is not None and arguments.url is not None:
        raise ConfigError(f"name {arguments.config} or --url, not both: one of them would not be measured")
    old = _read_report(arguments.compare, arguments.seed) if arguments.compare else None
    source = None if arguments.url is not None else announce_config(arguments.config)
    try:
        config = read_config(source) if source else None
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    target, words = _choose_target(arguments, source, config)
    line = ProgressLine(arguments.budget_minutes * 60)
    journal = CellJournal(arguments.out, _name_plan(arguments.seed, words, config), fresh=arguments.fresh)
    phases: list[PlanPhase] = []
    code = 0
    try:
        with _take_signals():
            phases = run_evaluation(target, arguments, journal, line)
    except KeyboardInterrupt:
        line.say("ended: what is finished is kept, and the same command goes on with it")
        code = INTERRUPTED
    except NoServer as error:
        line.say(str(error))
        return 1
    finally:
        journal.close()
    if not journal.facts.get("models") and not (phases and journal.facts.get("unavailable")):
        line.say("nothing was measured: no model could be asked" if not code else "nothing was measured yet")
        return code or 1
    if code:
        phases = target.plan(journal.facts["models"], arguments)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    report = build_report(journal.cells, journal.facts, phases, arguments, config, target=words, made=made)
    differences = None if old is None else compare_reports(old, report)
    _write_report(arguments.out, report, differences, line)
    if not report["models"]:
        line.say("nothing was measured but the floor: no model could be asked")
        code = code or 1
    if code == 0 and arguments.apply:
        _apply(source, report, line, sure=arguments.yes)
    return code or int(any(one["kind"] == "worse" for one in differences or ()))


@contextlib.contextmanager
def _take_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end it as Ctrl-C does, so that no server stays; an ignored one (`nohup`) stays ignored."""
    taken = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


def _choose_target(arguments: EvaluateOptions, source: Path | None, config: AppConfig | None) -> tuple[Target, str]:
    if source is not None and config is not None:
        return OwnTarget(source, config, cloud=arguments.cloud), f"the configuration {source}"
    from deployments.cli.server_client import find_url, read_key

    url = find_url(arguments.url, None)
    return UrlTarget(url, read_key(os.environ), arguments.models, cloud=arguments.cloud), f"the server at {url}"


def _name_plan(seed: int, words: str, config: AppConfig | None) -> str:
    """Name what must be the same for cells to belong together. How many there are and how long it may take isn't."""
    what = config.model_dump_json(exclude={"evaluate", "state", "telemetry"}) if config else words
    return hashlib.sha256(f"1 {seed} {what}".encode()).hexdigest()[:16]


def _read_report(path: Path, seed: int) -> dict[str, Any]:
    """Read the older report; what can't be compared is found before anything is measured."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--compare: {path} can't be read as a report: {error}") from None
    if not isinstance(report, dict) or "outcomes" not in report:
        raise ConfigError(f"--compare: {path} is no report of an evaluation: report.json of its folder is one")
    if why := is_comparable(report, {"format": FORMAT, "seed": seed}):
        raise ConfigError(f"--compare: {path}: {why}")
    return report


def _write_report(
    folder: Path, report: Mapping[str, Any], differences: Sequence[Mapping[str, Any]] | None, line: ProgressLine
) -> None:
    page, summary = render_page(report, differences), render_summary(report, differences)
    for name, text in (("json", json.dumps(report, indent=1)), ("html", page), ("md", summary)):
        path = folder / f"report.{name}"
        path.unlink(missing_ok=True)  # a link goes, and not what it leads to: the folder may be a repository's
        path.write_text(text, encoding="utf-8")
    try:
        keep_report(find_kept_folder(), report, page, summary)
    except OSError as error:
        line.say(f"the control room will not show it: {error.filename}: {error.strerror}")
    for name, one in report["verdicts"].items():
        line.say(f"{name}: {one['verdict']}: {one['reasons'][0] if one['reasons'] else ''}")
    for name, why in report["unavailable"].items():
        line.say(f"{name}: unavailable: {why}")
    for one in differences or ():
        line.say(f"{one['kind']}: {one['words']}")
    line.say(f"the report: {folder / 'report.html'}")


def _apply(source: Path | None, report: Mapping[str, Any], line: ProgressLine, *, sure: bool) -> None:
    patch = report["cascade"].get("proposal")
    if source is None or not patch:
        line.say(f"nothing to apply: {report['cascade'].get('why') or 'a running server has no file here'}")
        return
    old = source.read_bytes().decode("utf-8")  # with its ends of lines
    new = write_proposal(old, patch)
    check_proposal(source, new, patch)
    # The built-in file belongs to the package: what is chosen here is written as the folder's own.
    path = Path(source.name) if source.parent == BUILT_IN else source
    print(show_difference(path, old, new))  # noqa: T201
    if not sure and not _ask(f"Write this into {path}? [y/N] "):
        line.say("nothing was changed")
        return
    write_file(path, new)
    line.say(f"written: {path}. It holds from the server's next start on")


def _ask(question: str) -> bool:
    with contextlib.suppress(EOFError):
        return sys.stdin.isatty() and input(question).strip().lower() in ("y", "yes")
    return False
